//! Any backend beside the pure steps of the core: the same calls, the same answers.

use tollgate_core::algorithm::{Operation, apply, apply_batch};
use tollgate_core::{Algorithm, CounterBackend, Refund};

use super::Lab;
use crate::Rng;

/// How many random sequences, and how many calls each.
const ROUNDS: u64 = 24;
const CALLS: u64 = 60;

/// Random calls on one to three quotas, clocks that move back included.
pub async fn every_call_agrees_with_the_pure_steps<B: CounterBackend>(lab: &Lab<B>) {
    for round in 0..ROUNDS {
        let mut rng = lab.rng(round);
        sequence(lab, round, &mut rng).await;
    }
}

async fn sequence<B: CounterBackend>(lab: &Lab<B>, round: u64, rng: &mut Rng) {
    let quotas: Vec<_> = (0..rng.between(1, 3))
        .map(|_| {
            let algorithm = Algorithm::ALL[rng.below(4) as usize];
            rng.quota(algorithm)
        })
        .collect();
    let policy = lab.policy(quotas.clone());
    let (mut record, mut now) = (Vec::new(), rng.moment());
    let mut charges = Vec::new();
    for call in 0..CALLS {
        let quota = quotas[rng.below(quotas.len() as u64) as usize];
        if rng.one_in(25) && !lab.options.remembers_refusals {
            now = now - 3 * rng.pause(now, quota.period());
        } else {
            now = now + rng.pause(now, quota.period());
        }
        let what = format_args!("round {round}, call {call} at {now:?} on {quotas:?}").to_string();
        let cost = rng.cost(policy.capacity());
        match rng.below(20) {
            0 => {
                lab.reset(&policy, "k", now).await;
                record.clear();
            }
            1..=3 => {
                let got = lab.peek(&policy, "k", now, cost).await;
                let right = apply(&quotas, &mut record, now, Operation::Peek(cost));
                lab.assert_same(&got, &right.decision, &what);
            }
            4..=5 if !charges.is_empty() => {
                let refund: Refund = charges.swap_remove(rng.below(charges.len() as u64) as usize);
                let got = lab.refund(&policy, "k", now, refund).await;
                let right = apply(&quotas, &mut record, now, Operation::Refund(refund));
                lab.assert_same(&got, &right.decision, &what);
            }
            6..=7 => {
                let costs: Vec<_> = (0..rng.between(1, 6))
                    .map(|_| rng.cost(policy.capacity()))
                    .collect();
                let got = lab.batch(&policy, "k", now, &costs).await;
                let (right, _) = apply_batch(&quotas, &mut record, now, &costs);
                assert_eq!(got.len(), right.len(), "{what}");
                for (got, right) in got.iter().zip(&right) {
                    lab.assert_same(got, right, &what);
                }
            }
            _ => {
                let got = lab.acquire(&policy, "k", now, cost).await;
                let right = apply(&quotas, &mut record, now, Operation::Acquire(cost));
                lab.assert_same(&got, &right.decision, &what);
                if got.granted() > 0 {
                    charges.push(Refund {
                        cost: got.granted(),
                        charged_at: right.decision.charged_at(),
                    });
                }
            }
        }
    }
}
