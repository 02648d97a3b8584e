//! Bad or extreme input (`input` in docs/faults.md).

use crate::support::{admitted, refused, seconds, stores};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;
use tollgate::memory::MemoryBackend;
use tollgate::{
    Algorithm, BackendError, Cost, CostError, CounterBackend, Decision, Error, Limiter, Quota,
    QuotaFault, Refund, Subject,
};

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
        let error = limit.acquire("k").cost(-1_i64 as u64).await.unwrap_err();
        assert!(
            matches!(error, Error::Cost(CostError::ExceedsCapacity { .. })),
            "{error}"
        );
        assert_eq!(limit.peek("k").await.unwrap().remaining(), Some(0));
        let decision = limit.acquire("k").await.unwrap();
        refused(&decision, 0, seconds(60));
        assert_eq!(decision.remaining(), Some(0), "{}", store.name);
    }
}

#[tokio::test]
async fn b34_a_cost_of_0_changes_nothing() {
    for store in stores().await {
        for algorithm in Algorithm::ALL {
            let limit = store.limit(&format!("2/60s {algorithm}"));
            // On nothing; after one; used up.
            for used in 0..3 {
                let error = limit.acquire("k").cost(0).await.unwrap_err();
                assert!(matches!(error, Error::Cost(CostError::Zero)), "{error}");
                let waited = limit.acquire_wait("k", 0, seconds(3_600)).await;
                assert!(matches!(waited, Err(Error::Cost(CostError::Zero))));
                let seen = limit.peek("k").await.unwrap();
                assert_eq!(
                    (seen.allowed(), seen.remaining(), seen.granted()),
                    (used < 2, Some(2 - used), 0),
                    "{algorithm} on {}",
                    store.name
                );
                let charged = limit.acquire("k").await.unwrap();
                assert_eq!(charged.allowed(), used < 2, "{}", store.name);
            }
        }
    }
}

/// A backend that the test can still look at.
#[derive(Debug)]
struct Watched(Arc<MemoryBackend>);

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl CounterBackend for Watched {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.0.acquire(subject, cost).await
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        self.0.acquire_batch(subject, costs).await
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.0.peek(subject, cost).await
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        self.0.refund(subject, refund).await
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.0.reset(subject).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.0.ping().await
    }
}

#[tokio::test]
async fn b34_asking_and_a_cost_of_0_create_nothing_in_memory() {
    for algorithm in Algorithm::ALL {
        let backend = Arc::new(MemoryBackend::new());
        let limiter = Limiter::builder(Watched(Arc::clone(&backend))).build();
        let quota = format!("2/60s {algorithm}").parse().unwrap();
        let limit = limiter.policy("b34", [quota]).unwrap();
        for i in 0..100 {
            let key = i.to_string();
            assert!(limit.acquire(&key).cost(0).await.is_err());
            assert_eq!(limit.peek(&key).await.unwrap().remaining(), Some(2));
        }
        let stats = backend.stats();
        assert_eq!((stats.held, stats.live), (0, 0), "{algorithm}");
        limit.acquire("k").await.unwrap();
        assert_eq!(backend.stats().held, 1, "{algorithm}");
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
            // At once is: when it is first asked, before a store or a clock is. That needs no load
            // of the machine to be considered; the best of a few says how long it takes.
            let mut quickest = Duration::MAX;
            for _ in 0..5 {
                let started = Instant::now();
                let waited = pin!(limit.acquire_wait("k", 11, Duration::from_secs(3_600)));
                let mut nobody = Context::from_waker(Waker::noop());
                let Poll::Ready(waited) = waited.poll(&mut nobody) else {
                    panic!("{algorithm}: it waits")
                };
                quickest = quickest.min(started.elapsed());
                assert_eq!(too_much(waited), (11, 10));
            }
            assert!(quickest < Duration::from_millis(10), "{quickest:?}");
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
