//! What a start refuses, and starting without the servers.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tollgate_core::{CounterBackend, ErrorKind};
use tollgate_memcached::MemcachedBackend;
use tollgate_testkit::{FaultProxy, MemcachedServer, wait_until};

use super::{PATIENCE, charge, policy};

/// A server that says the same to every command.
async fn stub(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 1_024];
                while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_server_that_cannot_count_is_refused_though_it_answers() {
    let without_cas = MemcachedServer::start_with(&["-C"]).await;
    let old = stub("ERROR\r\n").await;
    let strange = stub("CLIENT_ERROR invalid flag\r\n").await;
    for (address, part) in [
        (without_cas.address(), "-C"),
        (old, "memcached 1.6"),
        (strange, "invalid flag"),
    ] {
        for lenient in [false, true] {
            let builder = MemcachedBackend::builder(format!("memcached://{address}"));
            let outcome = if lenient {
                builder.connect_or_degrade().await
            } else {
                builder.connect().await
            };
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let text = error.to_string();
            assert!(
                text.contains(part) && text.contains(&address.to_string()),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn a_server_that_loses_compare_and_swap_later_is_no_contention() {
    let server = MemcachedServer::start_with(&["-C"]).await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    proxy.refuse().await;
    let backend = MemcachedBackend::builder(proxy.url())
        .connect_or_degrade()
        .await
        .unwrap();
    proxy.restore().await;
    let error = charge(&backend, &policy("5/h"), None, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn settings_that_cannot_be_used_say_which_and_how() {
    let connect = async |builder: tollgate_memcached::Builder| builder.connect().await.unwrap_err();
    let builder = || MemcachedBackend::builder("memcached://127.0.0.1:1");
    for (error, part) in [
        (connect(builder().prefix("")).await, "prefix"),
        (connect(builder().prefix("a b")).await, "prefix"),
        (connect(builder().pool(0)).await, "pool is 0"),
        (
            connect(builder().timeout(Duration::ZERO)).await,
            "timeout is 0",
        ),
        (connect(builder().item_limit(10)).await, "item_limit is 10"),
        (
            connect(MemcachedBackend::builder("memcached://h?pool=5000")).await,
            "pool is 5000",
        ),
        (
            connect(MemcachedBackend::builder("memcacheds://h")).await,
            "plain TCP only",
        ),
    ] {
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn b65_starting_against_a_silent_server_is_bounded() {
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    proxy.stay_silent();
    let limit = Duration::from_millis(200);
    let started = Instant::now();
    let connect = MemcachedBackend::builder(proxy.url()).connect_timeout(limit);
    let error = connect.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let took = started.elapsed();
    assert!(took < limit + Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn b70_a_store_that_comes_up_later_is_used_then() {
    let mut server = MemcachedServer::start().await;
    server.kill();
    let refused = MemcachedBackend::builder(server.url())
        .connect()
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains(&server.address().to_string()));
    let backend = MemcachedBackend::builder(server.url())
        .connect_or_degrade()
        .await
        .unwrap();
    let policy = policy("100000/s");
    let error = charge(&backend, &policy, None, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(backend.ping().await.is_err());
    server.restart().await;
    wait_until("it is used", PATIENCE, async || {
        charge(&backend, &policy, None, 1).await.is_ok()
    })
    .await;
    backend.ping().await.unwrap();
}

#[tokio::test]
async fn a_server_without_memory_does_not_pass_for_well() {
    let server = stub("SERVER_ERROR out of memory storing object\r\n").await;
    let builder = MemcachedBackend::builder(format!("memcached://{server}"));
    let backend = builder.connect_or_degrade().await.unwrap();
    assert_eq!(
        backend.ping().await.unwrap_err().kind(),
        ErrorKind::OutOfMemory
    );
    let error = charge(&backend, &policy("1/s"), None, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
}
