//! Bad or extreme input (`input` in docs/faults.md).

use crate::support::{admitted, refused, seconds, stores};
use std::time::Duration;
use tollgate::{Algorithm, CostError, Error, Quota, QuotaFault};

#[test]
fn b31_a_limit_of_0_is_refused_when_the_quota_is_built() {
    for algorithm in Algorithm::ALL {
        let error = Quota::new(algorithm, 0, seconds(60)).unwrap_err();
        assert_eq!(error.fault(), QuotaFault::LimitIsZero);
        assert!(error.to_string().contains("admit nothing"), "{error}");
        let text = format!("0/60s {algorithm}").parse::<Quota>().unwrap_err();
        assert_eq!(text.fault(), QuotaFault::LimitIsZero);
    }
}

#[tokio::test]
async fn b33_nothing_negative_gives_quota_back() {
    // Costs are unsigned; text that is negative is no quota.
    for text in ["-1/60s", "5/-60s", "5/60s burst=-1", "+5/60s"] {
        assert!(text.parse::<Quota>().is_err(), "{text}");
    }
    for store in stores().await {
        let limit = store.limit("5/60s fixed_window");
        admitted(&limit.acquire("k").cost(5).await.unwrap(), 0);
        // What a careless cast makes of -1.
        assert!(limit.acquire("k").cost(-1_i64 as u64).await.is_err());
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(60));
    }
}

#[tokio::test]
async fn b34_a_cost_of_0_changes_nothing() {
    for store in stores().await {
        let limit = store.limit("2/60s fixed_window");
        for used in 0..3 {
            let error = limit.acquire("k").cost(0).await.unwrap_err();
            assert!(matches!(error, Error::Cost(CostError::Zero)), "{error}");
            let seen = limit.peek("k").await.unwrap();
            assert_eq!(
                (seen.allowed(), seen.remaining()),
                (used < 2, Some(2 - used))
            );
            let charged = limit.acquire("k").await.unwrap();
            assert_eq!(charged.allowed(), used < 2, "{}", store.name);
        }
    }
}

#[tokio::test]
async fn b35_a_cost_above_the_capacity_charges_nothing_and_waits_for_nothing() {
    for store in stores().await {
        for algorithm in Algorithm::ALL {
            let limit = store.limit(&format!("10/60s {algorithm}"));
            let too_much = |result| match result {
                Err(Error::Cost(CostError::ExceedsCapacity { cost, capacity })) => (cost, capacity),
                other => panic!("{algorithm}: {other:?}"),
            };
            assert_eq!(too_much(limit.acquire("k").cost(11).await), (11, 10));
            let waited = limit.acquire_wait("k", 11, Duration::from_secs(3_600));
            // At once: the clock is virtual, so a wait would never end.
            let waited = tokio::time::timeout(seconds(5), waited).await.unwrap();
            assert_eq!(too_much(waited), (11, 10));
            admitted(&limit.acquire("k").cost(10).await.unwrap(), 0);
        }
    }
}

#[tokio::test]
async fn b37_a_burst_is_the_limit_unless_it_is_given_and_never_0() {
    let five_a_day = Quota::token_bucket(5, seconds(86_400)).unwrap();
    assert_eq!(
        five_a_day.with_burst(0).unwrap_err().fault(),
        QuotaFault::BurstIsZero
    );
    for store in stores().await {
        let limit = store.limit("5/24h");
        for left in (0..5).rev() {
            admitted(&limit.acquire("k").await.unwrap(), left);
        }
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(17_280));
    }
}
