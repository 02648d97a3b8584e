//! Concurrency slots on real servers: round trips, expiry, whose clock.

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_core::{Key, LeaseBackend, LeaseSubject, lease_key};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{FaultProxy, RedisCluster, RedisServer, Reply, Rule, wait_until};

use super::{PATIENCE, backend, name};

const TTL: Duration = Duration::from_secs(60);

fn slots(slots: u32) -> NonZeroU32 {
    NonZeroU32::new(slots).unwrap()
}

/// A limit for one key, by the server's clock.
struct Limit {
    name: String,
    key: Key<'static>,
}

impl Limit {
    fn new() -> Self {
        Self {
            name: name(),
            key: Key::from("k".to_owned()),
        }
    }

    fn subject(&self) -> LeaseSubject<'_> {
        LeaseSubject {
            name: &self.name,
            key: &self.key,
            at: None,
        }
    }

    fn stored(&self) -> String {
        lease_key("tollgate", &self.name, &self.key)
    }
}

#[tokio::test]
async fn s101_any_number_of_slots_costs_one_round_trip() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = backend(proxy.url()).await;
    for size in [1, 100, 5_000] {
        let limit = Limit::new();
        for holder in 0..size {
            let holder = holder.to_string();
            let held = backend.acquire(limit.subject(), &holder, slots(size), TTL);
            assert!(held.await.unwrap().ok);
        }
        let before = proxy.commands();
        for _ in 0..10 {
            let refused = backend.acquire(limit.subject(), "one more", slots(size), TTL);
            let refused = refused.await.unwrap();
            assert_eq!((refused.ok, refused.in_use), (false, size));
        }
        assert_eq!(proxy.commands() - before, 10, "{size} slots");
        let before = proxy.commands();
        assert!(backend.release(limit.subject(), "0").await.unwrap().ok);
        let held = backend.acquire(limit.subject(), "one more", slots(size), TTL);
        assert!(held.await.unwrap().ok);
        assert_eq!(proxy.commands() - before, 2, "{size} slots");
    }
}

#[tokio::test]
async fn a_key_always_has_its_expiry_and_gets_it_back() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    let limit = Limit::new();
    let left = async || {
        server
            .command(&["PTTL", &limit.stored()])
            .await
            .integer()
            .unwrap()
    };
    let held = backend.acquire(limit.subject(), "a", slots(2), TTL).await;
    assert!(held.unwrap().ok);
    assert!((60_000..=120_001).contains(&left().await));
    // A shorter one does not shorten it.
    let held = backend
        .acquire(limit.subject(), "b", slots(2), Duration::from_secs(1))
        .await;
    assert!(held.unwrap().ok);
    assert!((60_000..=120_001).contains(&left().await));
    server.command(&["PERSIST", &limit.stored()]).await;
    assert_eq!(left().await, -1);
    assert!(backend.renew(limit.subject(), "a", TTL).await.unwrap().ok);
    assert!((60_000..=120_001).contains(&left().await));
    // Nothing is made by asking.
    let other = Limit::new();
    assert_eq!(backend.in_use(other.subject()).await.unwrap(), 0);
    assert!(!backend.renew(other.subject(), "a", TTL).await.unwrap().ok);
    assert!(!backend.release(other.subject(), "a").await.unwrap().ok);
    let exists = server.command(&["EXISTS", &other.stored()]).await;
    assert_eq!(exists.integer(), Some(0));
}

#[tokio::test]
async fn b63_a_value_of_another_shape_is_replaced() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    for put in [
        vec!["SET", "K", "{json}"],
        vec!["HSET", "K", "a", "1"],
        vec!["LPUSH", "K", "1"],
    ] {
        let limit = Limit::new();
        let stored = limit.stored();
        let words: Vec<_> = put
            .iter()
            .map(|w| if *w == "K" { &stored } else { *w })
            .collect();
        server.command(&words).await;
        assert_eq!(backend.in_use(limit.subject()).await.unwrap(), 0, "{put:?}");
        let held = backend
            .acquire(limit.subject(), "a", slots(1), TTL)
            .await
            .unwrap();
        assert_eq!((held.ok, held.in_use), (true, 1), "{put:?}");
        let refused = backend
            .acquire(limit.subject(), "b", slots(1), TTL)
            .await
            .unwrap();
        assert!(!refused.ok, "{put:?}");
    }
}

/// Nodes' own clocks are not asked, so a fast one evicts nobody: no argument of a call is a time.
#[tokio::test]
async fn b120_leases_are_by_the_servers_clock() {
    let server = RedisServer::start().await;
    let (a, b) = (backend(server.url()).await, backend(server.url()).await);
    let limit = Limit::new();
    let ttl = Duration::from_secs(2);
    let held = a
        .acquire(limit.subject(), "a", slots(1), ttl)
        .await
        .unwrap();
    let refused = b
        .acquire(limit.subject(), "b", slots(1), ttl)
        .await
        .unwrap();
    assert!(held.ok && !refused.ok);
    // What is stored is the server's time and the ttl.
    let time = server.command(&["TIME"]).await;
    let Reply::Array(time) = time else {
        panic!("{time:?}")
    };
    let seconds: u64 = time[0].text().unwrap().parse().unwrap();
    let fence = held.fence.unwrap();
    assert!(
        (fence / 1_000_000).abs_diff(seconds) <= 1,
        "{fence} {seconds}"
    );
    assert!(a.release(limit.subject(), "a").await.unwrap().ok);
    let held = b
        .acquire(limit.subject(), "b", slots(1), ttl)
        .await
        .unwrap();
    assert!(held.ok && held.fence.unwrap() > fence);
}

#[tokio::test]
async fn b118_a_lease_that_expired_is_another_holders() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    let limit = Limit::new();
    let ttl = Duration::from_millis(300);
    let held = backend.acquire(limit.subject(), "h1", slots(1), ttl).await;
    assert!(held.unwrap().ok);
    wait_until("the first lease to end", PATIENCE, async || {
        let tried = backend.acquire(limit.subject(), "h2", slots(1), TTL).await;
        tried.unwrap().ok
    })
    .await;
    assert!(!backend.renew(limit.subject(), "h1", ttl).await.unwrap().ok);
    assert!(!backend.release(limit.subject(), "h1").await.unwrap().ok);
    let third = backend.acquire(limit.subject(), "h3", slots(1), ttl).await;
    assert!(!third.unwrap().ok);
    assert_eq!(backend.in_use(limit.subject()).await.unwrap(), 1);
}

/// The holder's name makes asking again harmless: a lost answer costs no second slot.
#[tokio::test]
async fn b15_a_lost_reply_holds_one_slot() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = RedisBackend::builder(proxy.url())
        .timeout(Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    let limit = Limit::new();
    assert_eq!(backend.in_use(limit.subject()).await.unwrap(), 0);
    proxy.on(Rule::command("EVALSHA").drop_reply());
    let lost = backend.acquire(limit.subject(), "a", slots(2), TTL).await;
    assert!(lost.unwrap_err().may_have_charged());
    let again = backend
        .acquire(limit.subject(), "a", slots(2), TTL)
        .await
        .unwrap();
    assert_eq!((again.ok, again.in_use), (true, 1));
}

#[tokio::test]
async fn a_cluster_holds_slots_on_the_node_of_the_key() {
    let cluster = RedisCluster::start().await;
    let backend = backend(cluster.url()).await;
    for n in 0..50 {
        let limit = Limit {
            name: format!("{}{{x}}", name()),
            key: Key::from(n.to_string()),
        };
        for holder in ["a", "b"] {
            let held = backend
                .acquire(limit.subject(), holder, slots(2), TTL)
                .await;
            assert!(held.unwrap().ok);
        }
        let refused = backend.acquire(limit.subject(), "c", slots(2), TTL).await;
        assert!(!refused.unwrap().ok);
    }
}
