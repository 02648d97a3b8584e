//! Peek, refund, batch, range, reset: what each may change.

use std::time::Duration;

use tollgate_core::{
    Algorithm, Cost, CounterBackend, Decision, Key, Policy, Quota, Refund, Subject, Timestamp,
};

use super::Lab;

const ROUNDS: u64 = 6;
const CALLS: usize = 30;

fn cost(cost: u64) -> Cost {
    Cost::new(cost).expect("not 0")
}

/// The minute at which hand-made cases start, 20 s into it.
fn start() -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000)
}

fn ten_a_minute(algorithm: Algorithm) -> Quota {
    Quota::new(algorithm, 10, Duration::from_secs(60)).expect("it can be counted")
}

/// Two keys get the same charges; one is peeked at all the while.
pub async fn a_peek_changes_nothing_and_agrees_with_the_charge<B: CounterBackend>(lab: &Lab<B>) {
    for (round, algorithm) in (0..ROUNDS).flat_map(|r| Algorithm::ALL.map(|a| (r, a))) {
        let mut rng = lab.rng(round);
        let quota = rng.quota(algorithm);
        let policy = lab.policy([quota]);
        let mut now = rng.moment();
        for _ in 0..CALLS {
            let cost = rng.cost(quota.capacity());
            let other = rng.cost(quota.capacity());
            lab.peek(&policy, "seen", now, other).await;
            let peeked = lab.peek(&policy, "seen", now, cost).await;
            let charged = lab.acquire(&policy, "seen", now, cost).await;
            let unseen = lab.acquire(&policy, "unseen", now, cost).await;
            assert_eq!(peeked.allowed(), charged.allowed(), "{quota}: {cost:?}");
            assert_eq!(peeked.granted(), 0, "{quota}: a peek charged");
            if lab.options.remembers_refusals {
                // Each of the two may remember another refusal, with its own wait.
                assert_eq!(charged.allowed(), unseen.allowed(), "{quota}: {cost:?}");
                assert_eq!(charged.granted(), unseen.granted(), "{quota}: {cost:?}");
            } else {
                assert_eq!(peeked.retry_after(), charged.retry_after(), "{quota}");
                lab.assert_same(&charged, &unseen, &format_args!("{quota}, peeked or not"));
            }
            now = now + rng.pause(now, quota.period());
        }
    }
}

/// Two keys get the same charges, one of them at once where the backend can. Where it cannot, it has
/// done nothing.
pub async fn a_charge_without_a_future_is_the_same<B: CounterBackend>(lab: &Lab<B>) {
    for (round, algorithm) in (0..ROUNDS).flat_map(|r| Algorithm::ALL.map(|a| (r, a))) {
        let mut rng = lab.rng(round);
        let quota = rng.quota(algorithm);
        let policy = lab.policy([quota]);
        let mut now = rng.moment();
        for _ in 0..CALLS {
            let cost = rng.cost(quota.capacity());
            let waited = lab.acquire(&policy, "waits", now, cost).await;
            let key = Key::from("at once");
            let answered = lab.charge_now(Subject::new(&policy, &key).at(now), cost);
            let at_once = match answered {
                Some(decision) => decision,
                None => lab.acquire(&policy, "at once", now, cost).await,
            };
            if lab.options.remembers_refusals {
                assert_eq!(at_once.allowed(), waited.allowed(), "{quota}: {cost:?}");
                assert_eq!(at_once.granted(), waited.granted(), "{quota}: {cost:?}");
            } else {
                lab.assert_same(&at_once, &waited, &format_args!("{quota}: {cost:?}"));
            }
            now = now + rng.pause(now, quota.period());
        }
    }
}

async fn left<B: CounterBackend>(lab: &Lab<B>, policy: &Policy, at: Timestamp) -> Option<u64> {
    lab.peek(policy, "k", at, Cost::ONE).await.remaining()
}

fn refund_of(decision: &Decision) -> Refund {
    Refund {
        cost: decision.granted(),
        charged_at: decision.charged_at(),
    }
}

/// An immediate refund restores what was there; none gives more than was charged, nor more than
/// the capacity.
pub async fn a_refund_never_makes_more_than_there_was<B: CounterBackend>(lab: &Lab<B>) {
    let mut refunds = 0;
    for (round, algorithm) in (0..ROUNDS).flat_map(|r| Algorithm::ALL.map(|a| (r, a))) {
        let mut rng = lab.rng(round);
        let quota = rng.quota(algorithm);
        let policy = lab.policy([quota]);
        let (mut now, mut charges) = (rng.moment(), Vec::new());
        for _ in 0..CALLS {
            let before = left(lab, &policy, now).await;
            let charged = lab
                .acquire(&policy, "k", now, rng.cost(quota.capacity()))
                .await;
            let refund = refund_of(&charged);
            if charged.granted() > 0 && rng.one_in(3) {
                refunds += 1;
                let back = lab.refund(&policy, "k", now, refund).await;
                assert!(back.allowed() && back.granted() == 0, "{quota}: {back:?}");
                assert_eq!(back.retry_after(), None, "{quota}");
                assert_eq!(left(lab, &policy, now).await, before, "{quota}: {refund:?}");
            } else if charged.granted() > 0 {
                charges.push(refund);
            }
            now = now + rng.pause(now, quota.period());
            if !charges.is_empty() && rng.one_in(2) {
                refunds += 1;
                let refund = charges.swap_remove(rng.below(charges.len() as u64) as usize);
                let before = left(lab, &policy, now).await;
                lab.refund(&policy, "k", now, refund).await;
                let after = left(lab, &policy, now).await;
                if let (Some(before), Some(after)) = (before, after) {
                    assert!(after >= before, "{quota}: {refund:?} took away");
                    assert!(
                        after - before <= refund.cost,
                        "{quota}: {refund:?} gave more"
                    );
                    assert!(after <= quota.capacity(), "{quota}: {refund:?} overflowed");
                }
            }
        }
    }
    assert!(refunds > 50, "only {refunds} refunds were made");
    for algorithm in Algorithm::ALL {
        let policy = lab.policy([ten_a_minute(algorithm)]);
        let charged_at = start();
        lab.refund(
            &policy,
            "k",
            start(),
            Refund {
                cost: 20,
                charged_at,
            },
        )
        .await;
        assert!(lab.acquire(&policy, "k", start(), cost(10)).await.allowed());
        assert!(
            !lab.one(&policy, "k", start()).await.allowed(),
            "{algorithm}"
        );
    }
}

/// A charge whose window has gone, or that has left the log, is not given back to a later one.
pub async fn a_late_refund_gives_nothing_back<B: CounterBackend>(lab: &Lab<B>) {
    let minute = Duration::from_secs(60);
    // Two whole windows later: beyond what a sliding window still weighs.
    for (algorithm, later) in [
        (Algorithm::FixedWindow, minute),
        (Algorithm::SlidingWindow, 2 * minute),
        (Algorithm::SlidingLog, minute),
    ] {
        let policy = lab.policy([ten_a_minute(algorithm)]);
        let charged = lab.acquire(&policy, "k", start(), cost(4)).await;
        let now = start() + later;
        let before = lab.acquire(&policy, "k", now, cost(6)).await;
        lab.refund(&policy, "k", now, refund_of(&charged)).await;
        assert_eq!(
            left(lab, &policy, now).await,
            before.remaining(),
            "{algorithm}"
        );
        assert_eq!(before.remaining(), Some(4), "{algorithm}");
    }
}

/// In order, at one moment.
pub async fn a_batch_is_the_same_single_charges<B: CounterBackend>(lab: &Lab<B>) {
    for (round, algorithm) in (0..ROUNDS).flat_map(|r| Algorithm::ALL.map(|a| (r, a))) {
        let mut rng = lab.rng(round);
        let quotas = [rng.quota(algorithm), rng.quota(Algorithm::TokenBucket)];
        let quotas = &quotas[..rng.between(1, 2) as usize];
        let policy = lab.policy(quotas.iter().copied());
        let mut now = rng.moment();
        for _ in 0..CALLS / 3 {
            let costs: Vec<_> = (0..rng.between(1, 9))
                .map(|_| rng.cost(policy.capacity()))
                .collect();
            let together = lab.batch(&policy, "together", now, &costs).await;
            assert_eq!(together.len(), costs.len());
            for (one, cost) in together.iter().zip(&costs) {
                let single = lab.acquire(&policy, "single", now, *cost).await;
                if lab.options.remembers_refusals {
                    assert_eq!(one.allowed(), single.allowed(), "{quotas:?}: {costs:?}");
                    assert_eq!(one.granted(), single.granted(), "{quotas:?}: {costs:?}");
                } else {
                    lab.assert_same(one, &single, &format_args!("{quotas:?}: {costs:?}"));
                }
            }
            now = now + rng.pause(now, quotas[0].period());
        }
    }
}

/// And changes nothing.
pub async fn an_empty_batch_has_no_answers<B: CounterBackend>(lab: &Lab<B>) {
    let policy = lab.policy([ten_a_minute(Algorithm::TokenBucket)]);
    assert!(lab.batch(&policy, "k", start(), &[]).await.is_empty());
    assert_eq!(left(lab, &policy, start()).await, Some(10));
}

/// As much as there is up to the maximum, if the least is there.
pub async fn a_range_of_costs_takes_what_is_there<B: CounterBackend>(lab: &Lab<B>) {
    let range = |least, most| Cost::range(least, most).expect("not 0, and in order");
    for algorithm in Algorithm::ALL {
        let policy = lab.policy([ten_a_minute(algorithm)]);
        for (cost, granted) in [
            (range(1, 4), 4),
            (range(7, 9), 0),
            (range(6, 9), 6),
            (range(1, 9), 0),
        ] {
            let decision = lab.acquire(&policy, "k", start(), cost).await;
            assert_eq!(decision.granted(), granted, "{algorithm}: {cost:?}");
            assert_eq!(decision.allowed(), granted > 0, "{algorithm}: {cost:?}");
        }
    }
}

/// No wait is long enough, which the answer says; and what fits still fits.
pub async fn a_cost_above_the_capacity_is_never_admitted_and_charges_nothing<B: CounterBackend>(
    lab: &Lab<B>,
) {
    for algorithm in Algorithm::ALL {
        let policy = lab.policy([ten_a_minute(algorithm)]);
        for too_much in [11, u64::MAX] {
            let decision = lab.acquire(&policy, "k", start(), cost(too_much)).await;
            assert!(decision.is_never(), "{algorithm}: {decision:?}");
        }
        let decision = lab.acquire(&policy, "k", start(), cost(10)).await;
        assert!(decision.allowed(), "{algorithm}");
        assert_eq!(decision.remaining(), Some(0), "{algorithm}");
    }
}

/// The quota that has room is not charged when the other has none.
pub async fn several_quotas_are_charged_all_or_nothing<B: CounterBackend>(lab: &Lab<B>) {
    for narrow in Algorithm::ALL {
        for wide in Algorithm::ALL {
            let wide = Quota::new(wide, 100, Duration::from_secs(3_600)).expect("it can");
            let policy = lab.policy([wide, ten_a_minute(narrow)]);
            let admitted = lab.acquire(&policy, "k", start(), cost(8)).await;
            assert!(admitted.allowed() && admitted.quotas().len() == 2);
            let refused = lab.acquire(&policy, "k", start(), cost(3)).await;
            assert!(!refused.allowed() && refused.granted() == 0);
            if let [wide, narrow] = refused.quotas() {
                assert!(wide.allowed && !narrow.allowed, "{policy:?}");
                assert_eq!((wide.remaining, narrow.remaining), (92, 2), "{policy:?}");
                assert_eq!(refused.retry_after(), narrow.retry_after, "{policy:?}");
            }
            let least = Cost::range(1, 50).expect("in order");
            let last = lab.acquire(&policy, "k", start(), least).await;
            assert_eq!(last.granted(), 2, "{policy:?}: the least available of them");
            let seen = lab.peek(&policy, "k", start(), Cost::ONE).await;
            assert!(!seen.allowed(), "{policy:?}");
        }
    }
}

/// A new limit on a live key: windows and the log keep their counts, a bucket its time until full.
pub async fn a_changed_quota_keeps_what_was_used<B: CounterBackend>(lab: &Lab<B>) {
    let minute = Duration::from_secs(60);
    for (algorithm, left_of_30) in [
        (Algorithm::FixedWindow, 20),
        (Algorithm::SlidingWindow, 20),
        (Algorithm::SlidingLog, 20),
        // All was used: all is used, and full again a minute from now.
        (Algorithm::TokenBucket, 0),
    ] {
        let before = lab.policy([ten_a_minute(algorithm)]);
        let wider = Quota::new(algorithm, 30, minute).expect("it can be counted");
        let after = Policy::new(before.name(), [wider]).expect("the name was good before");
        assert!(lab.acquire(&before, "k", start(), cost(10)).await.allowed());
        assert!(!lab.one(&before, "k", start()).await.allowed());
        let seen = lab.peek(&after, "k", start(), Cost::ONE).await;
        assert_eq!(seen.allowed(), left_of_30 > 0, "{algorithm}");
        if seen.remaining().is_some() {
            assert_eq!(seen.remaining(), Some(left_of_30), "{algorithm}");
        }
        if left_of_30 > 0 {
            let all = lab.acquire(&after, "k", start(), cost(left_of_30)).await;
            assert!(all.allowed(), "{algorithm}");
        }
        assert!(
            !lab.one(&after, "k", start()).await.allowed(),
            "{algorithm}"
        );
    }
}

/// Never a wrong number read from state of another shape.
pub async fn another_algorithm_or_period_starts_anew<B: CounterBackend>(lab: &Lab<B>) {
    for from in Algorithm::ALL {
        for to in Algorithm::ALL {
            let period = Duration::from_secs(if from == to { 120 } else { 60 });
            if from == to && from == Algorithm::TokenBucket {
                continue;
            }
            let before = lab.policy([ten_a_minute(from)]);
            let other = Quota::new(to, 10, period).expect("it can be counted");
            let after = Policy::new(before.name(), [other]).expect("the name was good before");
            assert!(lab.acquire(&before, "k", start(), cost(10)).await.allowed());
            let anew = lab.acquire(&after, "k", start(), cost(10)).await;
            assert!(anew.allowed(), "from {from} to {to}");
            assert_eq!(anew.remaining(), Some(0), "from {from} to {to}");
        }
    }
}

/// That key, and no other.
pub async fn a_reset_forgets<B: CounterBackend>(lab: &Lab<B>) {
    for algorithm in Algorithm::ALL {
        let policy = lab.policy([ten_a_minute(algorithm)]);
        for key in ["k", "other"] {
            assert!(lab.acquire(&policy, key, start(), cost(10)).await.allowed());
            assert!(
                !lab.one(&policy, key, start()).await.allowed(),
                "{algorithm}"
            );
        }
        lab.reset(&policy, "k", start()).await;
        lab.reset(&policy, "never seen", start()).await;
        assert!(lab.acquire(&policy, "k", start(), cost(10)).await.allowed());
        assert!(
            !lab.one(&policy, "other", start()).await.allowed(),
            "{algorithm}"
        );
    }
}
