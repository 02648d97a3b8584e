//! What callers see of a store that is out, whatever store it is.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{Breaker, BreakerState, FailurePolicy, Limiter, Origin, RateLimit, SharedBackend};
use tollgate_testkit::wait_until;

use crate::support::{fresh, ms, seconds};

const TIMEOUT: Duration = Duration::from_millis(100);
const COOLDOWN: Duration = Duration::from_millis(400);

pub(crate) fn limiter_over(backend: SharedBackend) -> Limiter {
    Limiter::builder(backend)
        .timeout(TIMEOUT)
        .breaker(Breaker {
            cooldown: COOLDOWN,
            ..Breaker::default()
        })
        .build()
}

/// A policy that nobody meets the end of.
pub(crate) fn plenty(limiter: &Limiter) -> RateLimit {
    limiter
        .policy(&fresh("plenty"), ["1000000/s".parse().unwrap()])
        .unwrap()
}

/// Runs a test of how long callers wait. Timers are looked at every few polls, for those of a debug
/// build take milliseconds.
pub(crate) fn timed(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .event_interval(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(test);
}

/// So many checks at once, which all must be let through unenforced and in time. Beside each is a
/// timer alone: by how much the latest of these is late is the machine's doing.
pub(crate) async fn all_pass_in_time(limit: &RateLimit, checks: usize) {
    let tasks: Vec<_> = (0..checks)
        .map(|_| {
            let limit = limit.clone();
            let check = tokio::spawn(async move {
                let start = Instant::now();
                let decision = limit.acquire("k").await.unwrap();
                (start.elapsed(), decision.allowed(), decision.origin())
            });
            let timer = tokio::spawn(async move {
                let start = Instant::now();
                tokio::time::sleep(TIMEOUT).await;
                start.elapsed().saturating_sub(TIMEOUT)
            });
            (check, timer)
        })
        .collect();
    let (mut longest, mut late) = (Duration::ZERO, Duration::ZERO);
    for (check, timer) in tasks {
        let (took, allowed, origin) = check.await.unwrap();
        assert!(allowed && origin == Origin::FailOpen, "{origin:?}");
        longest = longest.max(took);
        late = late.max(timer.await.unwrap());
    }
    assert!(
        longest <= TIMEOUT + ms(50) + late,
        "{longest:?}, timers late by {late:?}"
    );
}

/// Counts again, within the cooldown and a second.
pub(crate) async fn recovers(limit: &RateLimit) {
    let start = Instant::now();
    let shared = async || limit.acquire("k").await.unwrap().origin() == Origin::Shared;
    wait_until("the recovered store", seconds(20), shared).await;
    let took = start.elapsed();
    assert!(took <= COOLDOWN + seconds(1), "counts only after {took:?}");
}

/// The breaker opens. Calls that are cut off together are one failure, so it may take some rounds.
pub(crate) async fn opens(limiter: &Limiter, limit: &RateLimit) {
    for _ in 0..5 {
        if limiter.health().breaker == BreakerState::Closed {
            all_pass_in_time(limit, 1).await;
        }
    }
    assert_eq!(limiter.health().breaker, BreakerState::Open);
}

/// A hundred checks under each policy, of a store that is not there.
pub(crate) async fn each_policy_answers_in_its_own_way(limiter: &Limiter) {
    let mut outcomes = Vec::new();
    for policy in [
        FailurePolicy::Open,
        FailurePolicy::Closed,
        FailurePolicy::Local,
    ] {
        let quotas = ["3/60s".parse().unwrap()];
        let limit = limiter.policy_with(&fresh("b68"), quotas, policy).unwrap();
        let mut admitted = 0;
        for _ in 0..100 {
            let decision = limit.acquire("k").await.unwrap();
            assert!(!decision.origin().is_enforced());
            admitted += u32::from(decision.allowed());
        }
        outcomes.push(admitted);
    }
    assert_eq!(outcomes, [100, 0, 3]);
    assert_eq!(limiter.health().unenforced, 300);
}
