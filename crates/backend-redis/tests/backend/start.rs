//! What a start refuses, what it warns of, and starting without the store.

use std::time::Duration;

use tollgate_core::{CounterBackend, ErrorKind};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{FaultProxy, RedisServer, wait_until};

use super::{PATIENCE, backend, charge, policy, stub};

#[tokio::test]
async fn b70_a_wrong_password_is_refused_and_never_printed() {
    let server = RedisServer::builder().password("right").start().await;
    let address = server.address();
    for (login, query) in [
        ("", ""),
        (":wr0ng@", ""),
        ("svc:wr0ng@", ""),
        ("", "?protocol=resp3"),
        (":wr0ng@", "?protocol=resp3"),
    ] {
        let url = format!("redis://{login}{address}{query}");
        for lenient in [false, true] {
            let builder = RedisBackend::builder(&url);
            let outcome = if lenient {
                builder.connect_or_degrade().await
            } else {
                builder.connect().await
            };
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Auth, "{login}{query} {error}");
            assert!(!error.is_transient());
            assert!(!format!("{error} {error:?}").contains("wr0ng"));
        }
    }
    let right = backend(server.url()).await;
    assert!(
        charge(&right, &policy("1/s"), None, 1)
            .await
            .unwrap()
            .allowed()
    );
    assert!(!format!("{right} {right:?}").contains("right@"));
}

#[tokio::test]
async fn b71_a_refused_connection_prints_no_password() {
    let port = FaultProxy::start("127.0.0.1:1".parse().unwrap()).await;
    port.refuse().await;
    let url = format!("redis://svc:s3cr3t@{}/0", port.address());
    let builder = RedisBackend::builder(&url);
    assert!(!format!("{builder:?}").contains("s3cr3t"));
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        !format!("{error} {error:?}").contains("s3cr3t"),
        "{error:?}"
    );
    let degraded = RedisBackend::builder(&url)
        .connect_or_degrade()
        .await
        .unwrap();
    let error = charge(&degraded, &policy("1/s"), None, 1)
        .await
        .unwrap_err();
    assert!(!format!("{degraded} {degraded:?} {error} {error:?}").contains("s3cr3t"));
}

#[tokio::test]
async fn b22_a_server_that_is_too_old_is_refused() {
    let refused = "-ERR Write commands not allowed after non deterministic commands\r\n";
    let old = stub::start("# Server\r\nredis_version:4.0.14\r\n", refused).await;
    for lenient in [false, true] {
        let builder = RedisBackend::builder(format!("redis://{old}"));
        let outcome = if lenient {
            builder.connect_or_degrade().await
        } else {
            builder.connect().await
        };
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("4.0.14"), "{error}");
    }
    // One that hides its version says so when it is used.
    let hidden = stub::start("# Server\r\n", refused).await;
    let backend = backend(format!("redis://{hidden}")).await;
    let error = charge(&backend, &policy("1/s"), None, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn b61_an_eviction_policy_that_drops_counters_is_warned_of() {
    for (eviction, warned) in [
        ("allkeys-lru", true),
        ("volatile-ttl", false),
        ("noeviction", false),
    ] {
        // INFO tells, so that CONFIG, which managed servers forbid, need not be asked.
        let server = RedisServer::builder()
            .set("maxmemory", "100mb")
            .set("maxmemory-policy", eviction)
            .start()
            .await;
        let backend = backend(server.url()).await;
        let warnings = backend.warnings();
        assert_eq!(!warnings.is_empty(), warned, "{warnings:?}");
        assert!(warnings.iter().all(|warning| warning.contains(eviction)));
    }
}

#[tokio::test]
async fn b61_a_server_that_may_not_be_asked_is_used_all_the_same() {
    let server = RedisServer::builder()
        .user("limiter", "on >pw ~* &* +@all -info -config")
        .start()
        .await;
    let backend = backend(format!("redis://limiter:pw@{}", server.address())).await;
    assert!(backend.warnings()[0].contains("could not tell"));
    assert!(
        charge(&backend, &policy("1/s"), None, 1)
            .await
            .unwrap()
            .allowed()
    );
}

#[tokio::test]
async fn b70_a_store_that_comes_up_later_is_checked_then_and_used() {
    let mut server = RedisServer::builder().password("right").start().await;
    let (good, wrong) = (server.url(), format!("redis://:wr0ng@{}", server.address()));
    server.kill();
    let start = async |url: &str| {
        RedisBackend::builder(url)
            .timeout(Duration::from_millis(200))
            .connect_or_degrade()
            .await
            .unwrap()
    };
    let (good, wrong) = (start(&good).await, start(&wrong).await);
    let policy = policy("100000/s");
    for backend in [&good, &wrong] {
        let error = charge(backend, &policy, None, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(backend.ping().await.is_err());
    }
    server.restart().await;
    wait_until("it is used", PATIENCE, async || {
        charge(&good, &policy, None, 1).await.is_ok()
    })
    .await;
    wait_until("it is refused", PATIENCE, async || {
        charge(&wrong, &policy, None, 1).await.unwrap_err().kind() == ErrorKind::Auth
    })
    .await;
    good.ping().await.unwrap();
}

#[tokio::test]
async fn a_password_that_changes_is_noticed() {
    let server = RedisServer::builder().password("right").start().await;
    let backend = backend(server.url()).await;
    let policy = policy("100000/s");
    charge(&backend, &policy, None, 1).await.unwrap();
    server
        .command(&["CONFIG", "SET", "requirepass", "other"])
        .await;
    // Those who are logged in stay so; a new connection is refused.
    let mut client = tollgate_testkit::RedisClient::connect(server.address(), Some("other"))
        .await
        .unwrap();
    client
        .call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await
        .unwrap();
    wait_until("it is refused", PATIENCE, async || {
        charge(&backend, &policy, None, 1)
            .await
            .is_err_and(|error| error.kind() == ErrorKind::Auth)
    })
    .await;
}
