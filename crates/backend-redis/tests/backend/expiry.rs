//! Every key has its expiry, whatever happens.

use std::time::Duration;

use tollgate_core::{Cost, CounterBackend, Key, Refund, Subject};
use tollgate_testkit::{FaultProxy, RedisServer, Rule, shared_redis, wait_until};

use super::{PATIENCE, T0, at, backend, charge, facts, key_of, policy};

/// Milliseconds left of a key; -1: for ever, -2: no key.
async fn left(server: &RedisServer, key: &str) -> i64 {
    server.command(&["PTTL", key]).await.integer().unwrap()
}

const ONE_OF_EACH: [&str; 6] = [
    "3/10s fixed_window",
    "3/10s sliding_window",
    "3/10s sliding_log",
    "3/10s",
    "7/10s",
    "3/10s, 9/10s sliding_window, 9/10s sliding_log",
];

#[tokio::test]
async fn b01_no_cut_leaves_a_key_without_expiry() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = backend(proxy.url()).await;
    for run in 0..200 {
        let quota = ONE_OF_EACH[run % ONE_OF_EACH.len()];
        let longest = if quota.contains("sliding_window") {
            20_001
        } else {
            10_001
        };
        let policy = policy(quota);
        // Before it gets there or after, and not only the first command.
        let rule = Rule::any().skip((run % 3) as u64);
        proxy.on(if run % 2 == 0 {
            rule.cut()
        } else {
            rule.forward_then_cut()
        });
        for _ in 0..4 {
            // A connection that broke is no surprise here; the next call has another.
            let _ = charge(&backend, &policy, None, 1).await;
        }
        let left = left(&server, &key_of(&policy)).await;
        assert!(
            left == -2 || (1..=longest).contains(&left),
            "run {run}: {left}"
        );
    }
}

#[tokio::test]
async fn b01_a_check_is_one_evalsha() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    for quota in ONE_OF_EACH {
        let policy = policy(quota);
        charge(&backend, &policy, None, 1).await.unwrap();
        let proxy = FaultProxy::start(server.address()).await;
        let through = super::backend(proxy.url()).await;
        let before = proxy.commands();
        for _ in 0..5 {
            charge(&through, &policy, None, 1).await.unwrap();
        }
        assert_eq!(proxy.commands() - before, 5, "{quota}");
        assert_eq!(proxy.commands_named("EVALSHA"), 5, "{quota}");
    }
}

#[tokio::test]
async fn b03_a_first_hit_of_any_cost_sets_the_expiry() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    let policy = policy("10/60s fixed_window");
    let decision = charge(&backend, &policy, Some(T0), 5).await.unwrap();
    assert_eq!(facts(&decision), (true, 5, None));
    assert_eq!(decision.reset_after(), Some(Duration::from_secs(60)));
    // In virtual time nothing is known of how fast it passes: one hour more.
    let left = left(&server, &key_of(&policy)).await;
    assert!((3_600_000..=3_660_001).contains(&left), "{left}");
    let decision = charge(&backend, &policy, Some(at(60_000)), 10)
        .await
        .unwrap();
    assert_eq!(facts(&decision), (true, 0, None));
}

#[tokio::test]
async fn b04_a_lost_expiry_comes_back_with_the_first_refusal() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    for quota in ONE_OF_EACH {
        let policy = policy(quota);
        // By the server's own clock; long enough for the window not to end meanwhile.
        while charge(&backend, &policy, None, 1).await.unwrap().allowed() {}
        server.command(&["PERSIST", &key_of(&policy)]).await;
        let refused = charge(&backend, &policy, None, 1).await.unwrap();
        let left = left(&server, &key_of(&policy)).await;
        if refused.allowed() {
            // The window ended between the two; it was written, expiry included.
            assert!(left > 0, "{quota}: {left}");
            continue;
        }
        // Only a sliding window counts for longer than its period.
        let longest = if quota.contains("sliding_window") {
            20
        } else {
            10
        };
        assert!(
            refused.retry_after().unwrap() <= Duration::from_secs(longest),
            "{quota}"
        );
        let longest = 1_000 * i64::try_from(longest).unwrap() + 1;
        assert!((1..=longest).contains(&left), "{quota}: {left}");
    }
}

#[tokio::test]
async fn b04_a_lost_expiry_locks_nobody_out() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    let policy = policy("3/10s fixed_window");
    for _ in 0..3 {
        charge(&backend, &policy, Some(T0), 1).await.unwrap();
    }
    server.command(&["PERSIST", &key_of(&policy)]).await;
    assert!(
        !charge(&backend, &policy, Some(T0), 1)
            .await
            .unwrap()
            .allowed()
    );
    let later = charge(&backend, &policy, Some(at(10_000)), 1)
        .await
        .unwrap();
    assert_eq!(facts(&later), (true, 2, None));
}

#[tokio::test]
async fn b05_each_window_admits_exactly_its_limit() {
    let backend = backend(shared_redis().await.url()).await;
    let policy = policy("100/s fixed_window");
    for second in 0..5 {
        let mut admitted = 0;
        for i in 0..300 {
            let now = T0 + Duration::from_micros(second * 1_000_000 + i * 3_333);
            admitted += u64::from(
                charge(&backend, &policy, Some(now), 1)
                    .await
                    .unwrap()
                    .allowed(),
            );
        }
        assert_eq!(admitted, 100, "second {second}");
    }
}

#[tokio::test]
async fn b07_a_window_shorter_than_a_second_is_counted() {
    let backend = backend(shared_redis().await.url()).await;
    let policy = policy("10/100ms fixed_window");
    for remaining in (0..10).rev() {
        let decision = charge(&backend, &policy, Some(T0), 1).await.unwrap();
        assert_eq!(facts(&decision), (true, remaining, None));
    }
    let refused = charge(&backend, &policy, Some(T0), 1).await.unwrap();
    assert_eq!(facts(&refused), (false, 0, Some(100)));
    let next = charge(&backend, &policy, Some(at(100)), 1).await.unwrap();
    assert_eq!(facts(&next), (true, 9, None));
}

#[tokio::test]
async fn a_key_goes_when_it_decides_like_none() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    for quota in [
        "5/100ms",
        "7/100ms",
        "5/50ms sliding_window",
        "5/100ms fixed_window",
        "5/100ms sliding_log",
    ] {
        let policy = policy(quota);
        charge(&backend, &policy, None, 5).await.unwrap();
        wait_until(quota, PATIENCE, async || {
            left(&server, &key_of(&policy)).await == -2
        })
        .await;
    }
}

#[tokio::test]
async fn a_peek_and_an_empty_refund_write_nothing() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    for quota in ONE_OF_EACH {
        let policy = policy(quota);
        let key = Key::from("k");
        let subject = Subject::new(&policy, &key);
        assert!(backend.peek(subject, Cost::ONE).await.unwrap().allowed());
        let refund = Refund {
            cost: 2,
            charged_at: T0,
        };
        assert!(backend.refund(subject, refund).await.unwrap().allowed());
        assert_eq!(left(&server, &key_of(&policy)).await, -2, "{quota}");
    }
}

#[tokio::test]
async fn b22_a_replica_has_the_value_and_the_expiry() {
    for flavor in [
        tollgate_testkit::Flavor::Redis62,
        tollgate_testkit::Flavor::Redis,
    ] {
        let primary = RedisServer::builder()
            .flavor(flavor)
            .set("repl-diskless-sync-delay", "0")
            .start()
            .await;
        let port = primary.address().port().to_string();
        let replica = RedisServer::builder().flavor(flavor).start().await;
        replica.command(&["REPLICAOF", "127.0.0.1", &port]).await;
        let backend = backend(primary.url()).await;
        for quota in ONE_OF_EACH {
            let policy = policy(quota);
            charge(&backend, &policy, None, 1).await.unwrap();
            // WAIT is about what its own connection has written, which comes after the charge.
            let mut fence = primary.client().await.unwrap();
            wait_until("the replica", PATIENCE, async || {
                fence.call(&["SET", "fence", quota]).await.unwrap();
                fence.call(&["WAIT", "1", "100"]).await.unwrap().integer() == Some(1)
            })
            .await;
            let key = key_of(&policy);
            let dumps = [&primary, &replica].map(|server| async {
                match server.command(&["TYPE", &key]).await.text().as_deref() {
                    Some("hash") => server.command(&["HGET", &key, "h"]).await,
                    _ => server.command(&["GET", &key]).await,
                }
            });
            let [ours, theirs] = dumps;
            let (ours, theirs) = (ours.await, theirs.await);
            assert!(ours.text().is_some(), "{quota}");
            assert_eq!(ours, theirs, "{quota}");
            // Asked in between, so that the time that asking takes is no difference.
            let (before, there, after) = (
                left(&primary, &key).await,
                left(&replica, &key).await,
                left(&primary, &key).await,
            );
            assert!(
                there > 0 && (after - 50..=before + 50).contains(&there),
                "{quota}: {there} is not within {after} to {before}"
            );
        }
    }
}
