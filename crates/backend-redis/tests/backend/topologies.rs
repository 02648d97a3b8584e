//! Clusters, sentinels, sockets, databases, users, TLS.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Cost, CounterBackend, ErrorKind, Key, Subject};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{RedisCluster, RedisServer, Sentinel, wait_until};

use super::{PATIENCE, T0, backend, charge, facts, policy};

/// Charges 100 keys once each; how many failed.
async fn charge_many(backend: &RedisBackend, policy: &tollgate_core::Policy) -> usize {
    let mut failed = 0;
    for n in 0..100 {
        let name = n.to_string();
        let key = Key::from(&name);
        failed += usize::from(
            backend
                .acquire(Subject::new(policy, &key), Cost::ONE)
                .await
                .is_err(),
        );
    }
    failed
}

#[tokio::test]
async fn a_cluster_is_found_through_any_node_and_followed_when_slots_move() {
    let cluster = RedisCluster::start().await;
    let last = cluster.masters()[2].address();
    let backend = RedisBackend::builder(format!("redis+cluster://{last}"))
        .timeout(Duration::from_secs(5))
        .connect()
        .await
        .unwrap();
    let policy = policy("1000/h");
    assert_eq!(charge_many(&backend, &policy).await, 0);
    let mut sizes = Vec::new();
    for node in cluster.masters() {
        sizes.push(node.command(&["DBSIZE"]).await.integer().unwrap());
    }
    assert!(
        sizes.iter().all(|size| *size > 10) && sizes.iter().sum::<i64>() == 100,
        "{sizes:?}"
    );

    // One key's slot is on its way, then has moved.
    let name = super::key_of(&policy);
    charge(&backend, &policy, None, 1).await.unwrap();
    let slot = tollgate_redis::key_slot(&name).to_string();
    let mut from = 0;
    for (i, node) in cluster.masters().iter().enumerate() {
        if node.command(&["EXISTS", &name]).await.integer() == Some(1) {
            from = i;
        }
    }
    let (old, new) = (&cluster.masters()[from], &cluster.masters()[(from + 1) % 3]);
    let (old_id, new_id) = (id(old).await, id(new).await);
    new.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &old_id])
        .await;
    old.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &new_id])
        .await;
    let port = new.address().port().to_string();
    old.command(&["MIGRATE", "127.0.0.1", &port, &name, "0", "5000"])
        .await;
    let asked = charge(&backend, &policy, None, 1).await.unwrap();
    assert!(asked.allowed(), "by ASK");
    for node in [new, old] {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &new_id])
            .await;
    }
    let moved = charge(&backend, &policy, None, 1).await.unwrap();
    assert_eq!(
        moved.remaining(),
        Some(997),
        "by MOVED; nothing was lost or charged twice"
    );
}

async fn id(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"]).await.text().unwrap()
}

#[tokio::test]
async fn b67_a_cluster_node_that_dies_or_freezes_is_replaced_by_its_successor() {
    for freeze in [false, true] {
        let mut cluster = RedisCluster::start_with_replicas().await;
        let backend = RedisBackend::builder(cluster.url())
            .timeout(Duration::from_millis(300))
            .connect()
            .await
            .unwrap();
        let policy = policy("1000000/h");
        wait_until("all slots are served", PATIENCE, async || {
            charge_many(&backend, &policy).await == 0
        })
        .await;
        if freeze {
            cluster.node(0).pause();
        } else {
            cluster.node(0).kill();
        }
        let began = Instant::now();
        wait_until("the successor is used", PATIENCE, async || {
            let call = Instant::now();
            let key = began.elapsed().as_micros().to_string();
            let key = Key::from(&key);
            let _ = backend
                .acquire(Subject::new(&policy, &key), Cost::ONE)
                .await;
            assert!(
                call.elapsed() < Duration::from_millis(400),
                "{:?}",
                call.elapsed()
            );
            charge_many(&backend, &policy).await == 0
        })
        .await;
        if freeze {
            cluster.node(0).resume();
        }
    }
}

#[tokio::test]
async fn sentinels_are_asked_again_when_the_master_fails() {
    let mut group = Sentinel::start().await;
    let backend = RedisBackend::builder(group.url())
        .timeout(Duration::from_millis(300))
        .connect()
        .await
        .unwrap();
    let policy = policy("1000000/s");
    charge(&backend, &policy, None, 1).await.unwrap();
    let (first, second) = (group.first().port(), group.second().port());
    assert_eq!(group.primary_port().await, Some(first));
    group.fail_over().await;
    assert_eq!(group.primary_port().await, Some(second));
    let scripts = group.second().calls("evalsha").await;
    wait_until("the new master is used", PATIENCE, async || {
        charge(&backend, &policy, None, 1).await.is_ok()
    })
    .await;
    // It is the other server that counts now.
    assert!(group.second().calls("evalsha").await > scripts);
    for _ in 0..20 {
        charge(&backend, &policy, None, 1).await.unwrap();
    }
}

#[tokio::test]
async fn an_unknown_master_is_an_error_that_names_it() {
    let group = Sentinel::start().await;
    let url = group.url().rsplit_once('/').unwrap().0.to_owned() + "/nobody";
    let error = RedisBackend::builder(url).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("nobody"), "{error}");
}

#[tokio::test]
async fn a_socket_a_database_and_a_user_serve() {
    let server = RedisServer::builder()
        .unix_socket()
        .user("svc", "on >p@ss ~tollgate:* +@all")
        .start()
        .await;
    let address = server.address();
    let valkey = server.url().replace("redis://", "valkey://");
    let urls = [
        server.unix_url(),
        format!("{}?db=3", server.unix_url()),
        format!("redis://{address}/5"),
        format!("redis://svc:p%40ss@{address}/6"),
        format!("redis://svc:p%40ss@{address}/7?protocol=resp3"),
        format!("{valkey}/8"),
    ];
    let policy = policy("10/h");
    for url in urls {
        let backend = backend(&url).await;
        assert_eq!(
            facts(&charge(&backend, &policy, Some(T0), 1).await.unwrap()),
            (true, 9, None),
            "{url}"
        );
    }
}

#[tokio::test]
async fn a_cluster_url_to_a_single_server_and_the_reverse_say_so() {
    let server = RedisServer::start().await;
    let url = server.url().replace("redis://", "redis+cluster://");
    let error = RedisBackend::builder(url).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("redis://"), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_is_checked_against_the_authority_that_is_named() {
    let server = RedisServer::builder().tls().start().await;
    let url = server.tls_url();
    let authority = server.tls_authority();
    let base = url.split('?').next().unwrap();
    let trusted = backend(format!("{base}?ca={}", authority.display())).await;
    let policy = policy("10/h");
    assert!(
        charge(&trusted, &policy, Some(T0), 1)
            .await
            .unwrap()
            .allowed()
    );
    let insecure = backend(format!("{base}?insecure=true&protocol=resp3")).await;
    assert!(
        charge(&insecure, &policy, Some(T0), 1)
            .await
            .unwrap()
            .allowed()
    );
    let error = RedisBackend::builder(base).connect().await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Config),
        "{error}"
    );
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn tls_without_the_feature_names_the_feature() {
    let error = RedisBackend::builder("rediss://127.0.0.1")
        .connect()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("feature `tls`"), "{error}");
}
