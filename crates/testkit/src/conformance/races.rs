//! Many callers at once: the outcome is that of some order, one after the other.

use std::time::Duration;

use tollgate_core::{
    Algorithm, Cost, CounterBackend, Decision, Key, Policy, Quota, Subject, Timestamp,
};

use super::Lab;

fn now() -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000)
}

/// All at once, on as many tasks; the answers in the order of the costs.
async fn storm<B: CounterBackend>(lab: &Lab<B>, policy: &Policy, costs: &[Cost]) -> Vec<Decision> {
    let tasks: Vec<_> = costs
        .iter()
        .map(|cost| {
            let (lab, policy, cost) = (lab.clone(), policy.clone(), *cost);
            tokio::spawn(async move { lab.acquire(&policy, "k", now(), cost).await })
        })
        .collect();
    let mut decisions = Vec::with_capacity(tasks.len());
    for task in tasks {
        decisions.push(task.await.expect("no charge panics"));
    }
    decisions
}

fn quota(algorithm: Algorithm, limit: u64) -> Quota {
    Quota::new(algorithm, limit, Duration::from_secs(60)).expect("it can be counted")
}

/// Exactly N of 4N, and each admitted one sees what the ones before it left.
pub async fn concurrent_charges_are_those_of_some_serial_order<B: CounterBackend>(lab: &Lab<B>) {
    for (round, algorithm) in (0..4).flat_map(|round| Algorithm::ALL.map(|a| (round, a))) {
        let limit = lab.rng(round).between(1, 40);
        let policy = lab.policy([quota(algorithm, limit)]);
        let decisions = storm(lab, &policy, &vec![Cost::ONE; 4 * limit as usize]).await;
        let mut left: Vec<_> = decisions
            .iter()
            .filter(|decision| decision.allowed())
            .map(|decision| {
                decision
                    .remaining()
                    .expect("an admission says what is left")
            })
            .collect();
        left.sort_unstable();
        assert_eq!(left, (0..limit).collect::<Vec<_>>(), "{algorithm}");
    }
}

/// Each algorithm alone, and all of them on one key.
pub async fn of_400_concurrent_charges_exactly_100_are_admitted<B: CounterBackend>(lab: &Lab<B>) {
    let mut policies: Vec<_> = Algorithm::ALL
        .map(|algorithm| lab.policy([quota(algorithm, 100)]))
        .into();
    policies.push(lab.policy(Algorithm::ALL.map(|algorithm| quota(algorithm, 100))));
    for policy in policies {
        let decisions = storm(lab, &policy, &[Cost::ONE; 400]).await;
        let admitted = decisions
            .iter()
            .filter(|decision| decision.allowed())
            .count();
        assert_eq!(admitted, 100, "{policy:?}");
    }
}

/// "As much as there is" from many sides: together they get all of it and no more.
pub async fn concurrent_ranges_grant_exactly_the_limit<B: CounterBackend>(lab: &Lab<B>) {
    for algorithm in Algorithm::ALL {
        let policy = lab.policy([quota(algorithm, 100)]);
        let costs: Vec<_> = (0..80)
            .map(|i| Cost::range(1, 1 + i % 7).expect("in order"))
            .collect();
        let decisions = storm(lab, &policy, &costs).await;
        let granted: u64 = decisions.iter().map(Decision::granted).sum();
        assert_eq!(granted, 100, "{algorithm}");
    }
}

/// A caller that gives up has been charged or not; the next call works either way.
pub async fn a_dropped_call_leaves_it_usable<B: CounterBackend>(lab: &Lab<B>) {
    let policy = lab.policy([quota(Algorithm::TokenBucket, 100)]);
    let key = Key::from("k");
    let subject = Subject::new(&policy, &key).at(now());
    for turn in 0..40_u64 {
        let charge = lab.backend.acquire(subject, Cost::ONE);
        // Dropped before it is polled, after one poll, or a little later.
        let _ = tokio::time::timeout(Duration::from_micros(turn * 10), charge).await;
        let peeked = lab.peek(&policy, "k", now(), Cost::ONE).await;
        let left = peeked.remaining().expect("a peek says what is left");
        assert!(left >= 100 - turn - 1, "{left} left after {turn} charges");
    }
    let all = Cost::range(1, 100).expect("in order");
    let rest = lab.acquire(&policy, "k", now(), all).await;
    assert!(rest.granted() >= 60);
    assert!(!lab.one(&policy, "k", now()).await.allowed());
}
