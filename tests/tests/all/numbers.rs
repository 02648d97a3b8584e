//! Rounding, overflow, precision (`numeric` in docs/faults.md).

use crate::support::{admitted, fresh, redis, refused, seconds, stores};
use tollgate::{Algorithm, CostError, Error, Quota, QuotaFault};
use tollgate_testkit::{RedisServer, Reply};

#[tokio::test]
async fn b23_a_busy_bucket_keeps_the_fractions_of_its_tokens() {
    for store in stores().await {
        for (rate, admissions) in [("10/10s", 10), ("5/10s burst=10", 5)] {
            let limit = store.limit(rate);
            store.at(0);
            admitted(&limit.acquire("k").cost(10).await.unwrap(), 0);
            let mut when = Vec::new();
            for tick in 1..=1_000 {
                store.at(tick * 10);
                if limit.acquire("k").await.unwrap().allowed() {
                    when.push(tick * 10);
                }
            }
            let every = 10_000 / admissions;
            let right: Vec<_> = (1..=admissions).map(|n| n * every).collect();
            assert_eq!(when, right, "{}: {rate}", store.name);
        }
    }
}

#[tokio::test]
async fn b54_what_remains_counts_down_to_zero_and_comes_back_to_the_limit() {
    for store in stores().await {
        for algorithm in Algorithm::ALL {
            let limit = store.limit(&format!("3/60s {algorithm}"));
            store.at(0);
            let mut told = Vec::new();
            for _ in 0..5 {
                let decision = limit.acquire("k").await.unwrap();
                told.push((decision.allowed(), decision.remaining().unwrap()));
            }
            let right = [(true, 2), (true, 1), (true, 0), (false, 0), (false, 0)];
            assert_eq!(told, right, "{} {algorithm}", store.name);
            store.at(600_000);
            let left = limit.peek("k").await.unwrap().remaining();
            assert_eq!(left, Some(3), "{} {algorithm}", store.name);
        }
    }
}

#[tokio::test]
async fn s11_b25_large_counts_are_stored_in_digits() {
    const PART: u64 = 100_000_000_000_000;
    for store in stores().await {
        let limit = store.limit(&format!("{}/h fixed_window", 2 * PART));
        admitted(&limit.acquire("k").cost(PART).await.unwrap(), PART);
        admitted(&limit.acquire("k").cost(PART).await.unwrap(), 0);
        refused(
            &limit.acquire("k").cost(PART).await.unwrap(),
            0,
            seconds(3_600),
        );
    }
    // What a server of its own has stored, for each algorithm.
    let server = RedisServer::start().await;
    let store = crate::support::Store::over("redis", crate::support::connect(&server.url()).await);
    for algorithm in ["token_bucket", "fixed_window", "sliding_log"] {
        let limit = store.limit(&format!("{}/h {algorithm}", 2 * PART));
        admitted(&limit.acquire("k").cost(PART).await.unwrap(), PART);
    }
    let keys = server.keys("*").await;
    assert_eq!(keys.len(), 3);
    for key in keys {
        let kind = server.command(&["TYPE", &key]).await.text().unwrap();
        let read: &[&str] = match kind.as_str() {
            "string" => &["GET", &key],
            "hash" => &["HGETALL", &key],
            "list" => &["LRANGE", &key, "0", "-1"],
            "zset" => &["ZRANGE", &key, "0", "-1", "WITHSCORES"],
            other => panic!("{key} is a {other}"),
        };
        let stored = format!("{:?}", text(server.command(read).await));
        assert!(!stored.contains("e+"), "{key}: {stored}");
        assert!(!stored.contains('.'), "{key}: {stored}");
    }
}

fn text(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Array(items) => items.into_iter().flat_map(text).collect(),
        other => other.text().into_iter().collect(),
    }
}

#[tokio::test]
async fn b26_no_number_is_accepted_and_then_rounded() {
    for limit in [(1 << 53) + 1, u64::MAX, (1 << 52) + 1] {
        for algorithm in tollgate::Algorithm::ALL {
            let error = Quota::new(algorithm, limit, seconds(3_600)).unwrap_err();
            assert_eq!(error.fault(), QuotaFault::LimitTooLarge, "{algorithm}");
            assert!(error.to_string().starts_with("limit:"), "{error}");
        }
    }
    // The largest that is accepted is exact to the last unit, everywhere.
    for store in stores().await {
        let most = tollgate::MAX_EXACT;
        let limit = store.limit(&format!("{most}/h fixed_window"));
        admitted(&limit.acquire("k").cost(most - 1).await.unwrap(), 1);
        admitted(&limit.acquire("k").await.unwrap(), 0);
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(3_600));
    }
}

#[tokio::test]
async fn b27_a_log_of_10_000_is_no_problem() {
    for store in stores().await {
        let limit = store.limit("10000/60s sliding_log");
        admitted(&limit.acquire("k").cost(9_000).await.unwrap(), 1_000);
        store.at(1_000);
        refused(
            &limit.acquire("k").cost(9_000).await.unwrap(),
            1_000,
            seconds(59),
        );
        admitted(&limit.acquire("k").cost(1_000).await.unwrap(), 0);
        store.at(61_000);
        admitted(&limit.acquire("k").cost(10_000).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn b27_a_log_of_10_000_single_admissions_is_no_problem() {
    let store = redis().await;
    let limit = store.limit("10000/60s sliding_log");
    for i in 0..40_u64 {
        store.at(i);
        // In batches of one moment each, as a coalescer would send them.
        let costs = vec![tollgate::Cost::ONE; 250];
        let key = tollgate::Key::from("k");
        let subject = tollgate::Subject::new(limit.policy(), &key).at(store.now());
        let decisions =
            tollgate::CounterBackend::acquire_batch(store.limiter.backend(), subject, &costs);
        assert!(
            decisions
                .await
                .unwrap()
                .iter()
                .all(tollgate::Decision::allowed)
        );
    }
    let decision = limit.acquire("k").await.unwrap();
    assert!(!decision.allowed());
    store.at(60_000 + 39);
    admitted(&limit.acquire("k").cost(10_000).await.unwrap(), 0);
}

#[tokio::test]
async fn b29_no_product_overflows() {
    use std::time::Duration;
    for (limit, period) in [
        (u64::MAX, Duration::from_secs(365 * 86_400)),
        (1, Duration::from_millis(u64::MAX)),
        (1, Duration::MAX),
        (u64::MAX, Duration::MAX),
    ] {
        for algorithm in tollgate::Algorithm::ALL {
            let error = Quota::new(algorithm, limit, period).unwrap_err();
            assert!(!error.to_string().is_empty());
        }
    }
    let one = Quota::token_bucket(1, seconds(1)).unwrap();
    assert_eq!(
        one.with_burst(u64::MAX).unwrap_err().fault(),
        QuotaFault::BurstTooLarge
    );
    for store in stores().await {
        let limit = store.limit("10/60s");
        let error = limit.acquire("k").cost(u64::MAX).await.unwrap_err();
        assert!(matches!(
            error,
            Error::Cost(CostError::ExceedsCapacity {
                cost: u64::MAX,
                capacity: 10
            })
        ));
        admitted(&limit.peek("k").await.unwrap(), 10);
        // The largest of everything that is accepted.
        for quotas in [
            format!(
                "{}/{}us fixed_window",
                tollgate::MAX_EXACT,
                tollgate::MAX_EXACT
            ),
            format!(
                "{}/{}us sliding_log",
                tollgate::MAX_EXACT,
                tollgate::MAX_EXACT
            ),
            format!("1/{}us", tollgate::MAX_EXACT),
            format!("{}/s burst=1", tollgate::MAX_EXACT - 1),
        ] {
            let quota: Quota = quotas.parse().unwrap();
            let built = store.limiter.policy(&fresh("b29"), [quota]);
            // An item there holds less, which is told when the policy is built.
            if store.name == "dynamodb" && quota.algorithm() == tollgate::Algorithm::SlidingLog {
                let error = built.unwrap_err().to_string();
                assert!(error.contains("at most 20000"), "{error}");
                continue;
            }
            let limit = built.unwrap();
            let all = limit.policy().capacity();
            admitted(&limit.acquire("k").cost(all).await.unwrap(), 0);
            let refused = limit.acquire("k").await.unwrap();
            assert!(
                !refused.allowed() && refused.retry_after().is_some(),
                "{quotas}"
            );
        }
    }
}
