use super::*;
#[cfg(feature = "containers")]
use crate::MemcachedClient;
use crate::{Reply, wait_until};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn every_flavor_of_this_machine_starts_and_answers() {
    let mut started = 0;
    for flavor in Flavor::ALL {
        if flavor.binary().is_none() {
            continue;
        }
        let server = RedisServer::builder().flavor(flavor).start().await;
        assert_eq!(server.command(&["PING"]).await, Reply::Text("PONG".into()));
        started += 1;
    }
    assert!(
        started > 0,
        "there is no server at all: run scripts/servers"
    );
}

#[tokio::test]
async fn a_killed_server_comes_back_empty_on_its_port() {
    let mut server = RedisServer::start().await;
    let port = server.port();
    server.command(&["SET", "k", "v"]).await;
    assert_eq!(server.calls("set").await, 1);
    server.kill();
    assert!(server.client().await.is_err());
    server.restart().await;
    assert_eq!(server.port(), port);
    assert_eq!(server.command(&["DBSIZE"]).await, Reply::Integer(0));
    server.stop();
    assert!(server.client().await.is_err());
}

#[tokio::test]
async fn a_frozen_server_accepts_and_does_not_answer() {
    let mut server = RedisServer::start().await;
    server.pause();
    let mut client = server.client().await.unwrap();
    let asked = client.call(&["PING"]);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), asked)
            .await
            .is_err()
    );
    server.resume();
    assert_eq!(server.command(&["PING"]).await, Reply::Text("PONG".into()));
}

#[tokio::test]
async fn settings_and_passwords_are_in_force() {
    let server = RedisServer::builder()
        .password("s3cr3t")
        .user("svc", "on >pw ~* &* +@all")
        .set("maxmemory-policy", "allkeys-lru")
        .unix_socket()
        .start()
        .await;
    let policy = server.command(&["CONFIG", "GET", "maxmemory-policy"]).await;
    assert_eq!(
        policy,
        Reply::Array(vec![
            Reply::Bulk(b"maxmemory-policy".to_vec()),
            Reply::Bulk(b"allkeys-lru".to_vec()),
        ])
    );
    let mut stranger = RedisClient::connect(server.address(), None).await.unwrap();
    let refused = stranger.call(&["PING"]).await.unwrap();
    assert!(matches!(refused, Reply::Error(e) if e.starts_with("NOAUTH")));
    let known = stranger.call(&["AUTH", "svc", "pw"]).await.unwrap();
    assert_eq!(known, Reply::Text("OK".into()));
    assert!(server.url().contains(":s3cr3t@"));
    let socket = server.unix_url().replace("redis+unix://", "");
    assert!(std::path::Path::new(&socket).exists());
}

#[tokio::test]
async fn a_server_ends_with_its_value() {
    let server = RedisServer::start().await;
    let (address, pid) = (server.address(), server.process.id());
    drop(server);
    let gone = async || RedisClient::connect(address, None).await.is_err();
    wait_until("the end of the server", SOON, gone).await;
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn the_shared_server_is_one() {
    let (one, other) = (shared_redis().await, shared_redis().await);
    assert!(std::ptr::eq(one, other));
}

#[tokio::test]
async fn a_cluster_has_every_slot_and_its_replicas_follow() {
    let cluster = RedisCluster::start_with_replicas().await;
    assert_eq!((cluster.masters().len(), cluster.nodes().len()), (3, 6));
    assert_eq!(cluster.url().matches("127.0.0.1").count(), 3);
    let moved = cluster.masters()[0].command(&["SET", "b", "1"]).await;
    // Slot of "b" is 3300, the first master's.
    assert_eq!(moved, Reply::Text("OK".into()));
    let elsewhere = cluster.masters()[1].command(&["GET", "b"]).await;
    assert!(matches!(elsewhere, Reply::Error(e) if e.starts_with("MOVED 3300")));
}

#[tokio::test]
async fn a_sentinel_promotes_the_replica() {
    let mut sentinel = Sentinel::start().await;
    assert_eq!(sentinel.primary_port().await, Some(sentinel.first().port()));
    sentinel.fail_over().await;
    let written = sentinel.second().command(&["SET", "k", "v"]).await;
    assert_eq!(written, Reply::Text("OK".into()));
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_server_with_tls_has_a_certificate_for_localhost() {
    let server = RedisServer::builder().tls().start().await;
    assert!(server.tls_url().starts_with("rediss://localhost:"));
    let authority = std::fs::read_to_string(server.tls_authority()).unwrap();
    assert!(authority.starts_with("-----BEGIN CERTIFICATE-----"));
}

#[cfg(feature = "containers")]
#[tokio::test]
async fn a_container_is_frozen_killed_and_restarted_on_its_port() {
    let Some(server) = RedisContainer::start(Flavor::Redis).await else {
        assert_eq!(RedisContainer::image(Flavor::Redis), None);
        return;
    };
    let port = server.address();
    server.command(&["SET", "k", "v"]).await;
    server.pause().await;
    assert_eq!(server.command(&["PING"]).await, None);
    server.resume().await;
    assert_eq!(
        server.command(&["EXISTS", "k"]).await,
        Some(Reply::Integer(1))
    );
    server.kill().await;
    assert!(RedisClient::connect(port, None).await.is_err());
    server.restart().await;
    assert_eq!(
        server.command(&["EXISTS", "k"]).await,
        Some(Reply::Integer(0))
    );
}

#[tokio::test]
async fn a_killed_memcached_comes_back_empty_on_its_port() {
    let mut server = MemcachedServer::start_with(&["-m", "8"]).await;
    let port = server.port();
    assert_eq!(server.command("ms k:% 2 T60\r\nhi").await, "HD");
    assert_eq!(server.command("mg k:% v t").await, "VA 2 t60\nhi");
    let entries = server.entries().await;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].key, "k:%");
    assert!(entries[0].expires_in.unwrap() > Duration::from_secs(50));
    assert_eq!(server.stat("limit_maxbytes").await, 8 << 20);
    server.pause();
    let mut client = server.client().await.unwrap();
    let asked = client.call("mn");
    assert!(
        tokio::time::timeout(Duration::from_millis(50), asked)
            .await
            .is_err()
    );
    server.resume();
    assert_eq!(server.command("mn").await, "MN");
    server.kill();
    assert!(server.client().await.is_err());
    server.restart().await;
    assert_eq!(server.port(), port);
    assert_eq!(server.command("mg k:% v").await, "EN");
    let (one, other) = (shared_memcached().await, shared_memcached().await);
    assert!(std::ptr::eq(one, other));
}

#[cfg(feature = "containers")]
#[tokio::test]
async fn a_memcached_in_a_container_is_frozen_killed_and_restarted_on_its_port() {
    let Some(server) = MemcachedContainer::start().await else {
        assert_eq!(MemcachedContainer::image(), None);
        return;
    };
    assert_eq!(server.command("ms k 2\r\nhi").await.as_deref(), Some("HD"));
    server.pause().await;
    assert_eq!(server.command("mn").await, None);
    server.resume().await;
    assert_eq!(server.command("mg k v").await.as_deref(), Some("VA 2\nhi"));
    server.kill().await;
    assert!(MemcachedClient::connect(server.address()).await.is_err());
    server.restart().await;
    assert_eq!(server.command("mg k v").await.as_deref(), Some("EN"));
}
