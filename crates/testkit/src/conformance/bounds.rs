//! What nobody may get past, however the calls are timed.

use tollgate_core::{Algorithm, Cost, CounterBackend, Quota, Timestamp};

use super::Lab;

const ROUNDS: u64 = 12;
const CALLS: usize = 50;

/// Admissions of a caller who takes whatever there is, at the moments that suit it best.
async fn greedy<B: CounterBackend>(
    lab: &Lab<B>,
    algorithm: Algorithm,
    round: u64,
) -> (Quota, Vec<(Timestamp, u64)>) {
    let mut rng = lab.rng(round);
    let quota = rng.quota(algorithm);
    let policy = lab.policy([quota]);
    let (mut now, mut admissions) = (rng.moment(), Vec::new());
    for _ in 0..CALLS {
        let most = rng.between(1, quota.capacity());
        let cost = Cost::range(1, most).expect("most is at least 1");
        let decision = lab.acquire(&policy, "k", now, cost).await;
        if decision.allowed() {
            admissions.push((now, decision.granted()));
        }
        now = match decision.retry_after() {
            Some(wait) if rng.one_in(2) => now + wait,
            _ => now + rng.pause(now, quota.period()),
        };
    }
    assert!(admissions.len() > 1, "the greedy caller got nothing");
    (quota, admissions)
}

/// Sums over every interval from one admission to another, both included.
fn intervals(
    admissions: &[(Timestamp, u64)],
) -> impl Iterator<Item = (Timestamp, Timestamp, u64)> + '_ {
    admissions
        .iter()
        .enumerate()
        .flat_map(move |(i, (from, _))| {
            let mut sum = 0;
            admissions[i..].iter().map(move |(to, granted)| {
                sum += granted;
                (*from, *to, sum)
            })
        })
}

/// In any period at all.
pub async fn a_log_is_never_above_its_limit_in_any_period<B: CounterBackend>(lab: &Lab<B>) {
    for round in 0..ROUNDS {
        let (quota, admissions) = greedy(lab, Algorithm::SlidingLog, round).await;
        for (from, to, sum) in intervals(&admissions) {
            if to.saturating_since(from) < quota.period() {
                assert!(
                    sum <= quota.limit(),
                    "{quota}: {sum} from {from:?} to {to:?}"
                );
            }
        }
    }
}

/// In any interval: what the bucket holds and what comes back meanwhile.
pub async fn a_bucket_is_never_above_its_burst_and_rate_in_any_interval<B: CounterBackend>(
    lab: &Lab<B>,
) {
    for round in 0..ROUNDS {
        let (quota, admissions) = greedy(lab, Algorithm::TokenBucket, round).await;
        let units = |n: u64| u128::from(n) * u128::from(quota.units_per_token());
        for (from, to, sum) in intervals(&admissions) {
            let ticks = quota.tick_of(to.as_micros()) - quota.tick_of(from.as_micros());
            let back = u128::from(ticks) * u128::from(quota.units_per_tick());
            assert!(
                units(sum) <= units(quota.capacity()) + back,
                "{quota}: {sum} from {from:?} to {to:?}"
            );
        }
    }
}

/// Fixed: in each window. Sliding: by the estimate of two windows, at every admission.
pub async fn a_window_is_never_above_its_limit<B: CounterBackend>(lab: &Lab<B>) {
    for round in 0..ROUNDS {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let (quota, admissions) = greedy(lab, algorithm, round).await;
            let period = quota.period().as_micros();
            let window = |at: Timestamp| u128::from(at.as_micros()) / period;
            for (i, (at, _)) in admissions.iter().enumerate() {
                let count = |w: u128| -> u128 {
                    let until = admissions[..=i].iter();
                    until
                        .filter(|(at, _)| window(*at) == w)
                        .map(|(_, granted)| u128::from(*granted))
                        .sum()
                };
                let current = count(window(*at)) * period;
                let left = period - u128::from(at.as_micros()) % period;
                let used = match algorithm {
                    Algorithm::FixedWindow => current,
                    _ => current + count(window(*at) - 1) * left,
                };
                let room = u128::from(quota.limit()) * period;
                assert!(used <= room, "{quota}: {used} of {room} at {at:?}");
            }
        }
    }
}
