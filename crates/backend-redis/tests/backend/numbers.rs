//! Numbers that Lua's doubles would spoil.

use tollgate_core::{Quota, QuotaFault};
use tollgate_testkit::{RedisServer, shared_redis};

use super::{T0, at, backend, charge, facts, key_of, policy};

#[tokio::test]
async fn b25_no_stored_number_has_an_exponent() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    let policy = policy("200000000000000/h fixed_window");
    for (allowed, remaining) in [(true, 100_000_000_000_000), (true, 0), (false, 0)] {
        let decision = charge(&backend, &policy, Some(T0), 100_000_000_000_000)
            .await
            .unwrap();
        assert_eq!(
            (decision.allowed(), decision.remaining()),
            (allowed, Some(remaining))
        );
    }
    let stored = server
        .command(&["GET", &key_of(&policy)])
        .await
        .text()
        .unwrap();
    assert!(stored.ends_with(",200000000000000"), "{stored}");
    assert!(
        stored.chars().all(|c| matches!(c, 'f' | ',' | '0'..='9')),
        "{stored}"
    );
}

#[tokio::test]
async fn b26_a_limit_is_exact_or_refused() {
    for limit in [(1_u64 << 53) + 1, u64::MAX, (1 << 52) + 1] {
        let refused =
            Quota::fixed_window(limit, std::time::Duration::from_secs(3_600)).unwrap_err();
        assert_eq!(refused.fault(), QuotaFault::LimitTooLarge);
    }
    let backend = backend(shared_redis().await.url()).await;
    let most = 1_u64 << 52;
    for quota in [
        format!("{most}/h fixed_window"),
        format!("{most}/h sliding_log"),
    ] {
        let policy = policy(&quota);
        for (cost, remaining) in [(most - 3, 3), (1, 2), (1, 1), (1, 0)] {
            let decision = charge(&backend, &policy, Some(T0), cost).await.unwrap();
            assert_eq!(facts(&decision), (true, remaining, None), "{quota}");
        }
        assert!(
            !charge(&backend, &policy, Some(T0), 1)
                .await
                .unwrap()
                .allowed()
        );
    }
}

#[tokio::test]
async fn b27_a_large_cost_is_one_entry_of_a_log() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    let policy = policy("10000/60s sliding_log");
    let steps = [
        (0, 9_000, (true, 1_000, None)),
        (1_000, 9_000, (false, 1_000, Some(59_000))),
        (1_000, 1_000, (true, 0, None)),
        (61_000, 10_000, (true, 0, None)),
    ];
    for (now, cost, right) in steps {
        let decision = charge(&backend, &policy, Some(at(now)), cost)
            .await
            .unwrap();
        assert_eq!(facts(&decision), right, "{now} {cost}");
    }
    let fields = server.command(&["HLEN", &key_of(&policy)]).await;
    assert_eq!(fields.integer(), Some(2), "a header and an entry");
}

#[tokio::test]
async fn b27_a_log_of_many_entries_is_read_in_parts() {
    let backend = backend(shared_redis().await.url()).await;
    let policy = policy("3000/60s sliding_log");
    for i in 0..3_000 {
        assert!(
            charge(&backend, &policy, Some(at(i)), 1)
                .await
                .unwrap()
                .allowed()
        );
    }
    // Two thousand of them must leave, then all but the last have left at once.
    let refused = charge(&backend, &policy, Some(at(3_000)), 2_000)
        .await
        .unwrap();
    assert_eq!(facts(&refused), (false, 0, Some(60_000 + 1_999 - 3_000)));
    let admitted = charge(&backend, &policy, Some(at(62_998)), 2_999)
        .await
        .unwrap();
    assert_eq!(facts(&admitted), (true, 0, None));
}
