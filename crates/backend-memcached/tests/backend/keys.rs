//! What is sent as a key.

use tollgate_core::{Cost, CounterBackend, Key, Policy, Quota, Refund, Subject};
use tollgate_testkit::server::Entry;
use tollgate_testkit::{MemcachedServer, wait_until};

use super::{T0, backend, charge, facts, policy};

/// Everything that is stored. The server passes over what somebody else holds just then.
async fn all_entries(server: &MemcachedServer, count: usize) -> Vec<Entry> {
    assert_eq!(server.stat("curr_items").await, count as u64);
    let all = async || server.entries().await.len() == count;
    wait_until("all entries", super::PATIENCE, all).await;
    server.entries().await
}

#[tokio::test]
async fn b78_b82_whatever_an_identity_holds_it_is_counted_apart_and_breaks_nothing() {
    let server = MemcachedServer::start().await;
    // One connection, which has to stay in step.
    let backend = backend(format!("{}?pool=1", server.url())).await;
    let policy = policy("1/60s");
    let long = |length: usize, last: &str| format!("{}{last}", "k".repeat(length - 1));
    let identities = [
        String::new(),
        "a b".into(),
        "100.0.0.1, 101.0.0.1".into(),
        "a\r\nset pwn 0 0 1\r\n1\r\n".into(),
        "a\r\nms pwn 1\r\n1\r\n".into(),
        "\0".into(),
        long(300, "x"),
        long(300, "y"),
        long(3_000, "x"),
        long(3_000, "y"),
        "é".repeat(200),
        "é".repeat(1_100),
        "x".repeat(2_048),
    ];
    for identity in &identities {
        let key = Key::from(identity.as_str());
        let subject = Subject::new(&policy, &key).at(T0);
        for allowed in [true, false] {
            let decision = backend.acquire(subject, Cost::ONE).await.unwrap();
            assert_eq!(decision.allowed(), allowed, "{identity:?}");
        }
    }
    assert_eq!(server.command("mg pwn v").await, "EN");
    // And the ping.
    for entry in all_entries(&server, identities.len() + 1).await {
        let fits = entry.key.len() <= 250 && entry.key.bytes().all(|b| matches!(b, b'!'..=b'~'));
        assert!(fits, "{entry:?}");
    }
    let ordinary = charge(&backend, &policy, Some(T0), 1).await.unwrap();
    assert!(ordinary.allowed());
}

#[tokio::test]
async fn b82_long_prefixes_and_names_are_cut_and_stay_apart() {
    let server = MemcachedServer::start().await;
    let prefix = "p".repeat(120);
    let backend = tollgate_memcached::MemcachedBackend::builder(server.url())
        .prefix(&prefix)
        .connect()
        .await
        .unwrap();
    for last in ["a", "b"] {
        let name = format!("{}{last}", " ".repeat(127));
        let policy = Policy::new(&name, Quota::parse_list("1/60s").unwrap()).unwrap();
        for allowed in [true, false] {
            let decision = charge(&backend, &policy, Some(T0), 1).await.unwrap();
            assert_eq!(decision.allowed(), allowed, "{last}");
        }
    }
    let entries = all_entries(&server, 3).await;
    assert!(entries.iter().all(|entry| entry.key.len() <= 250));
}

#[tokio::test]
async fn s69_the_server_is_told_a_digest_and_never_the_identity() {
    let server = MemcachedServer::start().await;
    let backend = backend(server.url()).await;
    let policy = policy("5/h");
    let phone = Key::from("+49 151 23456789");
    let subject = Subject::new(&policy, &phone);
    backend.acquire(subject, Cost::ONE).await.unwrap();
    let key = format!("tollgate:v1:{}:{}", policy.name(), phone.digest());
    let entries = all_entries(&server, 2).await;
    assert!(entries.iter().any(|entry| entry.key == key), "{entries:?}");
    let debug = format!("{backend:?}");
    assert!(!debug.contains("23456789"), "{debug}");
}

#[tokio::test]
async fn b84_a_key_that_vanishes_between_two_commands_is_counted_once() {
    use tollgate_testkit::{FaultProxy, Rule};
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    let backend = backend(proxy.url()).await;
    // The write finds that somebody else was first, and then there is nothing.
    let policy = policy("5/60s");
    proxy.on(Rule::command("MS").answer("NS {opaque}\r\n"));
    let decision = charge(&backend, &policy, None, 1).await.unwrap();
    assert_eq!(facts(&decision), (true, 4));
    let key = super::key_of(&policy);
    let left = server.command(&format!("mg {key} t")).await;
    let left: u64 = left.strip_prefix("HD t").unwrap().parse().unwrap();
    assert!((1..=130).contains(&left), "{left}");
    // What this process wrote last is gone, once while it remembers, once after it read.
    for _ in 0..2 {
        server.command(&format!("md {key}")).await;
        let decision = charge(&backend, &policy, None, 1).await.unwrap();
        assert_eq!(facts(&decision), (true, 4));
    }
    proxy.on(Rule::command("MS").answer("NF {opaque}\r\n"));
    let decision = charge(&backend, &policy, None, 1).await.unwrap();
    assert_eq!(facts(&decision), (true, 3));
}

#[tokio::test]
async fn b86_giving_back_more_than_there_is_or_of_nothing_makes_nothing() {
    let server = MemcachedServer::start().await;
    let backend = backend(server.url()).await;
    let policy = policy("5/60s fixed_window");
    let key = Key::from("k");
    let subject = Subject::new(&policy, &key).at(T0);
    for _ in 0..3 {
        charge(&backend, &policy, Some(T0), 1).await.unwrap();
    }
    let refund = Refund {
        cost: 5,
        charged_at: T0,
    };
    let refunded = backend.refund(subject, refund).await.unwrap();
    assert_eq!(refunded.remaining(), Some(5));
    let decision = charge(&backend, &policy, Some(T0), 1).await.unwrap();
    assert_eq!(facts(&decision), (true, 4));
    backend.reset(subject).await.unwrap();
    let before = server.stat("curr_items").await;
    let refunded = backend.refund(subject, refund).await.unwrap();
    assert_eq!(refunded.remaining(), Some(5));
    assert_eq!(
        server.stat("curr_items").await,
        before,
        "nothing is created"
    );
    let decision = charge(&backend, &policy, Some(T0), 1).await.unwrap();
    assert_eq!(facts(&decision), (true, 4));
}
