//! How long a record stays, and how long it may be.

use std::time::Duration;

use tollgate_core::{CounterBackend, ErrorKind, Key, Subject};
use tollgate_memcached::MemcachedBackend;
use tollgate_testkit::MemcachedServer;

use super::{T0, at, backend, charge, facts, key_of, policy};

/// How long a record has to live; `None`: for ever.
async fn expires_in(server: &MemcachedServer, key: &str) -> Option<Duration> {
    let answer = server.command(&format!("mg {key} t")).await;
    let left = answer.strip_prefix("HD t").expect("the record is there");
    let left: i64 = left.parse().unwrap();
    u64::try_from(left).ok().map(Duration::from_secs)
}

#[tokio::test]
async fn b03_a_first_hit_of_any_cost_has_an_expiry() {
    let server = MemcachedServer::start().await;
    let backend = backend(server.url()).await;
    let policy = policy("10/60s fixed_window");
    let decision = charge(&backend, &policy, Some(at(0)), 5).await.unwrap();
    assert_eq!(facts(&decision), (true, 5));
    assert_eq!(decision.reset_after(), Some(Duration::from_secs(60)));
    // In virtual time an hour is added, because nobody knows how fast it passes.
    let left = expires_in(&server, &key_of(&policy)).await.unwrap();
    assert!(left <= Duration::from_secs(3_662), "{left:?}");
    let decision = charge(&backend, &policy, Some(at(60_000)), 10)
        .await
        .unwrap();
    assert_eq!(facts(&decision), (true, 0));
}

#[tokio::test]
async fn b03_every_algorithm_expires_soon_after_it_decides_like_nothing() {
    let server = MemcachedServer::start().await;
    let backend = backend(server.url()).await;
    for algorithm in [
        "token_bucket",
        "sliding_window",
        "fixed_window",
        "sliding_log",
    ] {
        let policy = policy(&format!("10/100ms {algorithm}"));
        charge(&backend, &policy, None, 1).await.unwrap();
        let left = expires_in(&server, &key_of(&policy)).await.unwrap();
        let (least, most) = (Duration::from_secs(59), Duration::from_secs(63));
        assert!((least..=most).contains(&left), "{algorithm}: {left:?}");
    }
}

#[tokio::test]
async fn b07_a_window_below_a_second_is_exact() {
    let server = MemcachedServer::start().await;
    let backend = backend(server.url()).await;
    let policy = policy("10/100ms fixed_window");
    for left in (0..10).rev() {
        let decision = charge(&backend, &policy, Some(T0), 1).await.unwrap();
        assert_eq!(facts(&decision), (true, left));
    }
    let refused = charge(&backend, &policy, Some(T0), 1).await.unwrap();
    assert_eq!(facts(&refused), (false, 0));
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
    let next = charge(&backend, &policy, Some(at(100)), 1).await.unwrap();
    assert_eq!(facts(&next), (true, 9));
}

#[tokio::test]
async fn an_expiry_above_thirty_days_is_a_moment_and_not_long_gone() {
    let server = MemcachedServer::start().await;
    let backend = backend(server.url()).await;
    const DAY: u64 = 86_400;
    for days in [29, 30, 31, 400] {
        let policy = policy(&format!("1/{days}d fixed_window"));
        assert!(charge(&backend, &policy, None, 1).await.unwrap().allowed());
        assert!(!charge(&backend, &policy, None, 1).await.unwrap().allowed());
        // To the end of the window, which may be near.
        let left = expires_in(&server, &key_of(&policy)).await.unwrap();
        assert!(left <= Duration::from_secs(days * DAY + 63), "{left:?}");
        let bucket = super::policy(&format!("1/{days}d"));
        charge(&backend, &bucket, None, 1).await.unwrap();
        let left = expires_in(&server, &key_of(&bucket)).await.unwrap();
        let right = Duration::from_secs(days * DAY + 60);
        assert!(
            left.abs_diff(right) < Duration::from_secs(4),
            "{days} d: {left:?}"
        );
    }
    // January 2038 is as far as the protocol can say.
    let policy = policy("1/10000d");
    charge(&backend, &policy, None, 1).await.unwrap();
    assert_eq!(expires_in(&server, &key_of(&policy)).await, None);
    assert!(!charge(&backend, &policy, None, 1).await.unwrap().allowed());
}

#[tokio::test]
async fn a_record_above_the_limit_is_refused_before_it_can_cost_what_was_counted() {
    let server = MemcachedServer::start().await;
    let backend = MemcachedBackend::builder(server.url())
        .item_limit(1_024)
        .connect()
        .await
        .unwrap();
    let policy = policy("1000/h sliding_log");
    let mut admitted = 0;
    let error = loop {
        match charge(&backend, &policy, Some(at(admitted)), 1).await {
            Ok(decision) => assert!(decision.allowed()),
            Err(error) => break error,
        }
        admitted += 1;
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("item_limit is 1024"), "{error}");
    assert!(!error.may_have_charged() && !error.is_transient());
    assert!((40..60).contains(&admitted), "{admitted}");
    // What was counted is still there.
    let key = Key::from("k");
    let subject = Subject::new(&policy, &key).at(at(admitted));
    let peeked = backend
        .peek(subject, tollgate_core::Cost::ONE)
        .await
        .unwrap();
    assert_eq!(peeked.remaining(), Some(1_000 - admitted));
}

#[tokio::test]
async fn the_default_limit_is_below_the_servers_which_drops_what_it_had() {
    let server = MemcachedServer::start().await;
    let key = "k".repeat(250);
    let write = async |bytes: usize| {
        let value = "v".repeat(bytes);
        server
            .command(&format!("ms {key} {bytes}\r\n{value}"))
            .await
    };
    assert_eq!(write(1_000_000).await, "HD");
    // What `item_limit` is for.
    let refused = write(1_100_000).await;
    assert!(
        refused.starts_with("SERVER_ERROR object too large"),
        "{refused}"
    );
    assert_eq!(server.command(&format!("mg {key}")).await, "EN");
}
