//! The waits that answers state, and what every backend does besides counting.

use std::time::Duration;

use tollgate_core::{Algorithm, Cost, CounterBackend, Quota, Timestamp};

use super::Lab;

const ROUNDS: u64 = 8;
const CALLS: usize = 30;
const MICROSECOND: Duration = Duration::from_micros(1);

/// The stated wait is the least: a microsecond earlier the same request is refused. (A backend that
/// remembers refusals may state a longer one, which must still be long enough.)
pub async fn refused_just_before_retry_after_and_admitted_at_it<B: CounterBackend>(lab: &Lab<B>) {
    let mut refusals = 0;
    for (round, algorithm) in (0..ROUNDS).flat_map(|r| Algorithm::ALL.map(|a| (r, a))) {
        let mut rng = lab.rng(round);
        let quota = rng.quota(algorithm);
        let policy = lab.policy([quota]);
        let mut now = rng.moment();
        for _ in 0..CALLS {
            let cost = rng.cost(quota.capacity());
            let refused = lab.acquire(&policy, "k", now, cost).await;
            let Some(wait) = refused.retry_after() else {
                assert!(
                    refused.allowed() || cost.min() > quota.capacity(),
                    "{quota}: a refusal of {cost:?} states no wait"
                );
                now = now + rng.pause(now, quota.period());
                continue;
            };
            refusals += 1;
            assert!(
                !refused.allowed() && !wait.is_zero(),
                "{quota}: {refused:?}"
            );
            if !lab.options.remembers_refusals {
                let early = lab
                    .peek(&policy, "k", now + (wait - MICROSECOND), cost)
                    .await;
                assert!(!early.allowed(), "{quota}: {cost:?} fits before {wait:?}");
            }
            now = now + wait;
            let admitted = lab.acquire(&policy, "k", now, cost).await;
            assert!(
                admitted.allowed(),
                "{quota}: {cost:?} refused after {wait:?}"
            );
        }
    }
    assert!(refusals > 20, "only {refusals} refusals were met");
}

/// For the sliding window at the latest the end of the current one.
pub async fn more_is_there_at_more_after_and_not_before<B: CounterBackend>(lab: &Lab<B>) {
    let mut checked = 0;
    for (round, algorithm) in (0..ROUNDS).flat_map(|r| Algorithm::ALL.map(|a| (r, a))) {
        let mut rng = lab.rng(round);
        let quota = rng.quota(algorithm);
        let policy = lab.policy([quota]);
        let mut now = rng.moment();
        for _ in 0..CALLS {
            let cost = rng.cost(quota.capacity());
            let decision = lab.acquire(&policy, "k", now, cost).await;
            let [answer] = decision.quotas() else {
                assert!(lab.options.remembers_refusals, "no quota answered");
                now = now + rng.pause(now, quota.period());
                continue;
            };
            let Some(wait) = answer.more_after else {
                assert_eq!(answer.remaining, quota.capacity(), "{quota}: more when?");
                continue;
            };
            let remaining = async |at: Timestamp| {
                let seen = lab.peek(&policy, "k", at, Cost::ONE).await;
                seen.remaining()
            };
            let (before, then) = (
                remaining(now + (wait - MICROSECOND)).await,
                remaining(now + wait).await,
            );
            if let (Some(before), Some(then)) = (before, then) {
                checked += 1;
                let end_of_window = algorithm == Algorithm::SlidingWindow
                    && u128::from((now + wait).as_micros())
                        .is_multiple_of(quota.period().as_micros());
                assert!(before <= answer.remaining, "{quota}: more before {wait:?}");
                assert!(
                    then > answer.remaining || end_of_window,
                    "{quota}: no more than {} after {wait:?}",
                    answer.remaining
                );
            }
            now = now + wait;
        }
    }
    assert!(checked > 20, "only {checked} waits were checked");
}

/// State that is long out of date decides like none, also where the store still has it.
pub async fn idle_state_decides_like_none<B: CounterBackend>(lab: &Lab<B>) {
    for (round, algorithm) in (0..ROUNDS).flat_map(|r| Algorithm::ALL.map(|a| (r, a))) {
        let mut rng = lab.rng(round);
        let quota = rng.quota(algorithm);
        let policy = lab.policy([quota]);
        let mut now = rng.moment();
        for key in ["a", "b"] {
            for _ in 0..5 {
                let cost = rng.cost(quota.capacity());
                lab.acquire(&policy, key, now, cost).await;
            }
        }
        // Full again at `reset_after` (for the log only its oldest leaves then: a period does).
        let state = lab.peek(&policy, "a", now, Cost::ONE).await;
        let full = match (algorithm, state.reset_after()) {
            (Algorithm::SlidingLog, _) | (_, None) => 3 * quota.period() * 40,
            (_, Some(wait)) => wait,
        };
        now = now + full;
        for (key, later) in [("a", Duration::ZERO), ("b", 1_000 * quota.period())] {
            let all = Cost::new(quota.capacity()).expect("a capacity is at least 1");
            let idle = lab.acquire(&policy, key, now + later, all).await;
            let fresh = lab.acquire(&policy, "fresh", now + later, all).await;
            lab.assert_same(&idle, &fresh, &format_args!("{quota} after {later:?}"));
            assert!(idle.allowed(), "{quota}: idle state still counts");
            lab.reset(&policy, "fresh", now + later).await;
        }
    }
}

/// Sums near 2^52, and costs that a script would print as 1e+14.
pub async fn large_numbers_are_exact<B: CounterBackend>(lab: &Lab<B>) {
    const PART: u64 = 100_000_000_000_000;
    let hour = Duration::from_secs(3_600);
    let now = Timestamp::from_micros(1_700_000_000_000_000);
    for quota in [
        Quota::fixed_window(2 * PART, hour),
        Quota::sliding_log(2 * PART, hour),
        Quota::token_bucket(2 * PART, hour),
    ] {
        let quota = quota.expect("it can be counted");
        let log = quota.algorithm() == tollgate_core::Algorithm::SlidingLog;
        if log
            && lab
                .options
                .largest_log
                .is_some_and(|largest| quota.limit() > largest)
        {
            continue;
        }
        let policy = lab.policy([quota]);
        let cost = Cost::new(PART).expect("not 0");
        for remaining in [PART, 0] {
            let decision = lab.acquire(&policy, "k", now, cost).await;
            assert!(decision.allowed(), "{quota}");
            assert_eq!(decision.remaining(), Some(remaining), "{quota}");
        }
        assert!(
            !lab.acquire(&policy, "k", now, cost).await.allowed(),
            "{quota}"
        );
    }
    // Every unit of the largest limit counts.
    let most = tollgate_core::MAX_EXACT;
    let policy = lab.policy([Quota::fixed_window(most, hour).expect("the largest limit")]);
    let almost = Cost::new(most - 1).expect("not 0");
    assert!(lab.acquire(&policy, "k", now, almost).await.allowed());
    assert!(lab.one(&policy, "k", now).await.allowed());
    assert!(!lab.one(&policy, "k", now).await.allowed());
}

/// A health check works, and the text for logs is not empty.
pub async fn it_answers_a_ping_and_names_itself<B: CounterBackend>(lab: &Lab<B>) {
    lab.count(1);
    lab.backend.ping().await.expect("the backend is up");
    assert!(!lab.backend.to_string().trim().is_empty());
    assert!(!format!("{:?}", lab.backend).is_empty());
}
