//! Clocks that move back, and the backend's own.

use std::time::Duration;

use tollgate_core::{Algorithm, Cost, CounterBackend, Key, Quota, Subject, Timestamp};

use super::Lab;

fn seconds(n: u64) -> Timestamp {
    // An edge of every window used here.
    Timestamp::from_micros(1_700_000_000_000_000 / 60_000_000 * 60_000_000) + Duration::from_secs(n)
}

/// Up to a minute: what was used stays used, however often the clock goes to and fro.
pub async fn a_clock_back_a_little_hands_out_nothing_twice<B: CounterBackend>(lab: &Lab<B>) {
    let ten = Cost::new(10).expect("not 0");
    for algorithm in Algorithm::ALL {
        let quota = Quota::new(algorithm, 10, Duration::from_secs(10)).expect("it can");
        let policy = lab.policy([quota]);
        assert!(lab.acquire(&policy, "k", seconds(100), ten).await.allowed());
        for turn in 0..20 {
            let now = seconds(if turn % 2 == 0 { 90 } else { 100 });
            assert!(
                !lab.one(&policy, "k", now).await.allowed(),
                "{algorithm}, turn {turn}"
            );
        }
        if algorithm == Algorithm::TokenBucket {
            assert!(lab.one(&policy, "k", seconds(101)).await.allowed());
            assert!(!lab.one(&policy, "k", seconds(101)).await.allowed());
        }
    }
}

/// By an hour: nobody waits until the old time comes again.
pub async fn a_clock_back_a_lot_locks_nobody_out<B: CounterBackend>(lab: &Lab<B>) {
    if lab.options.remembers_refusals {
        // It remembers until a moment; a clock that moves back makes that moment far. What is
        // shown instead is that forward it remembers no longer than is true.
        let policy = lab.policy([Quota::token_bucket(1, Duration::from_secs(10)).expect("it can")]);
        assert!(lab.one(&policy, "k", seconds(0)).await.allowed());
        assert!(!lab.one(&policy, "k", seconds(9)).await.allowed());
        assert!(lab.one(&policy, "k", seconds(10)).await.allowed());
        return;
    }
    for algorithm in Algorithm::ALL {
        let quota = Quota::new(algorithm, 10, Duration::from_secs(10)).expect("it can");
        let policy = lab.policy([quota]);
        let ten = Cost::new(10).expect("not 0");
        assert!(
            lab.acquire(&policy, "k", seconds(3_600), ten)
                .await
                .allowed()
        );
        let back = lab.one(&policy, "k", seconds(0)).await;
        if let Some(wait) = back.retry_after() {
            assert!(
                wait <= Duration::from_secs(20),
                "{algorithm}: locked out for {wait:?}"
            );
        }
        // The state that was brought back is stored also by a refusal.
        let later = lab.one(&policy, "k", seconds(20)).await;
        assert!(later.allowed(), "{algorithm}: {later:?}");
    }
}

/// Without a given time: the same counting, and a time of charge that does not go back.
pub async fn its_own_clock_counts_too<B: CounterBackend>(lab: &Lab<B>) {
    let hour = Duration::from_secs(3_600);
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingLog] {
        let policy = lab.policy([Quota::new(algorithm, 5, hour).expect("it can")]);
        let key = Key::from("k");
        let subject = Subject::new(&policy, &key);
        let mut charged_at = Timestamp::default();
        for _ in 0..5 {
            let decision = lab.charge(subject, Cost::ONE).await;
            assert!(decision.allowed(), "{algorithm}: {decision:?}");
            assert!(decision.charged_at() >= charged_at, "{algorithm}");
            charged_at = decision.charged_at();
        }
        let refused = lab.charge(subject, Cost::ONE).await;
        assert!(!refused.allowed(), "{algorithm}: {refused:?}");
        let wait = refused.retry_after().expect("one fits before long");
        assert!(!wait.is_zero() && wait <= hour, "{algorithm}: {wait:?}");
    }
}
