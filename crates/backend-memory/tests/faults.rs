//! Faults that other limiters had, by the numbers of `docs/faults.md`.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{
    Algorithm, Clock, Cost, CounterBackend, Decision, Key, ManualClock, Policy, Quota, QuotaFault,
    Refund, Subject, Timestamp,
};
use tollgate_memory::MemoryBackend;

/// An edge of every window used here.
const T0: Timestamp = Timestamp::from_micros(1_700_006_400_000_000);

struct Lab {
    backend: MemoryBackend,
    clock: ManualClock,
}

impl Lab {
    fn new() -> Self {
        let clock = ManualClock::new(T0);
        Self {
            backend: MemoryBackend::builder().clock(clock.clone()).build(),
            clock,
        }
    }

    fn at(&self, millis: u64) -> &Self {
        self.clock.set(T0 + Duration::from_millis(millis));
        self
    }

    fn charge(&self, policy: &Policy, cost: u64) -> Decision {
        let cost = Cost::new(cost).unwrap();
        self.backend.try_acquire(policy, "k", cost)
    }

    fn admits(&self, policy: &Policy, cost: u64) -> bool {
        self.charge(policy, cost).allowed()
    }

    fn peek(&self, policy: &Policy) -> Decision {
        self.backend.try_peek(policy, "k", Cost::ONE)
    }

    fn refund(&self, policy: &Policy, cost: u64, charged: u64) {
        let charged_at = T0 + Duration::from_millis(charged);
        let refund = Refund { cost, charged_at };
        let decision = self.backend.try_refund(policy, "k", refund);
        assert!(decision.allowed() && decision.granted() == 0);
    }
}

fn policy(quotas: &str) -> Policy {
    Policy::new("p", Quota::parse_list(quotas).unwrap()).unwrap()
}

fn each(limit: u64, period: Duration) -> Vec<Policy> {
    let policy = |algorithm: Algorithm| {
        let quota = Quota::new(algorithm, limit, period).unwrap();
        Policy::new(algorithm.as_str(), [quota]).unwrap()
    };
    Algorithm::ALL.into_iter().map(policy).collect()
}

fn millis(n: u64) -> Option<Duration> {
    Some(Duration::from_millis(n))
}

#[test]
fn b09_an_expired_record_that_is_still_there_starts_anew() {
    let policy = policy("2/1s fixed_window");
    for (cost, remaining) in [(1, 1), (2, 0)] {
        let lab = Lab::new();
        assert_eq!(lab.charge(&policy, 1).remaining(), Some(1));
        assert_eq!(lab.charge(&policy, 1).remaining(), Some(0));
        let later = lab.at(5_000).charge(&policy, cost);
        assert!(later.allowed());
        assert_eq!(later.remaining(), Some(remaining));
    }
}

#[test]
fn b13_waiting_callers_together_never_exceed_the_quota() {
    // Eight callers, each waiting as long as it is told, in virtual time: the clock moves to the
    // next moment at which somebody may try again.
    const TEN_SECONDS: Duration = Duration::from_secs(10);
    let lab = Lab::new();
    let policy = policy("1200/1m");
    let mut admitted = 0;
    let mut wakes = [T0; 8];
    while let Some(next) = wakes.iter_mut().min().filter(|at| **at < T0 + TEN_SECONDS) {
        lab.clock.set(*next);
        let decision = lab.charge(&policy, 10);
        admitted += decision.granted();
        *next = *next + decision.retry_after().unwrap_or_default();
    }
    assert!((1_390..=1_400).contains(&admitted), "{admitted}");

    // And on real threads that ask as fast as they can, by a clock that one of them moves.
    let (lab, admitted) = (Lab::new(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (lab, policy, admitted) = (&lab, &policy, &admitted);
            scope.spawn(move || {
                for step in 0..2_000 {
                    if thread == 0 {
                        lab.at(step * 5);
                    }
                    let granted = lab.charge(policy, 10).granted();
                    admitted.fetch_add(granted, Ordering::Relaxed);
                }
            });
        }
    });
    let admitted = admitted.into_inner();
    assert!((1_200..=1_400).contains(&admitted), "{admitted}");
}

#[test]
fn b16_a_clock_that_goes_to_and_fro_mints_nothing() {
    let lab = Lab::new();
    let policy = policy("10/10s");
    assert!(lab.at(100_000).admits(&policy, 10));
    for i in 0..20 {
        let at = if i % 2 == 0 { 90_000 } else { 100_000 };
        assert!(!lab.at(at).admits(&policy, 1), "check {i}");
    }
    assert!(lab.at(101_000).admits(&policy, 1));
    assert!(!lab.admits(&policy, 1));
}

#[test]
fn b18_a_clock_that_jumps_ahead_and_back_locks_nobody_out() {
    let lab = Lab::new();
    let policy = policy("10/10s");
    assert!(lab.admits(&policy, 10));
    lab.at(3_600_000);
    for _ in 0..10 {
        assert!(lab.admits(&policy, 1));
    }
    assert_eq!(lab.charge(&policy, 1).retry_after(), millis(1_000));
    let back = lab.at(1_000).charge(&policy, 1);
    assert!(
        back.allowed() || back.retry_after() <= millis(70_000),
        "{back:?}"
    );
    assert!(lab.at(71_000).admits(&policy, 1));
}

#[test]
fn b20_refill_does_not_wait_for_whole_seconds() {
    let lab = Lab::new();
    let policy = policy("10/1s");
    for _ in 0..10 {
        assert!(lab.admits(&policy, 1));
    }
    lab.at(500);
    for _ in 0..5 {
        assert!(lab.admits(&policy, 1));
    }
    assert_eq!(lab.charge(&policy, 1).retry_after(), millis(100));
}

#[test]
fn b23_a_busy_bucket_refills_all_the_same() {
    for (quota, expected) in [
        ("1/1s burst=10", vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ("1/2s burst=10", vec![2, 4, 6, 8, 10]),
    ] {
        let lab = Lab::new();
        let policy = policy(quota);
        assert!(lab.admits(&policy, 10));
        let admitted: Vec<u64> = (1..=1_000)
            .filter(|i| lab.at(i * 10).admits(&policy, 1))
            .map(|i| i / 100)
            .collect();
        assert_eq!(admitted, expected, "{quota}");
    }
}

#[test]
fn b29_products_do_not_overflow() {
    let year = Duration::from_secs(365 * 86_400);
    for algorithm in Algorithm::ALL {
        assert!(Quota::new(algorithm, u64::MAX, year).is_err());
        assert!(Quota::new(algorithm, 1, Duration::from_millis(u64::MAX)).is_err());
    }
    let second = Duration::from_secs(1);
    let huge = Quota::token_bucket(1, second).unwrap().with_burst(u64::MAX);
    assert!(huge.is_err());
    for policy in each(10, Duration::from_secs(60)) {
        let lab = Lab::new();
        assert!(lab.admits(&policy, 3));
        let refused = lab.charge(&policy, u64::MAX);
        assert!(refused.is_never(), "{policy:?}");
        assert_eq!(refused.remaining(), Some(7), "{policy:?}");
        let range = Cost::range(u64::MAX - 1, u64::MAX).unwrap();
        assert!(lab.backend.try_acquire(&policy, "k", range).is_never());
        lab.refund(&policy, u64::MAX, 0);
        assert_eq!(lab.peek(&policy).remaining(), Some(10), "{policy:?}");
    }
}

#[test]
fn b31_a_limit_of_zero_is_refused_when_the_quota_is_built() {
    for algorithm in Algorithm::ALL {
        let error = Quota::new(algorithm, 0, Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.fault(), QuotaFault::LimitIsZero, "{error}");
    }
    assert!(Cost::new(0).is_err());
}

#[test]
fn b35_more_than_the_capacity_is_never_admitted_and_uses_nothing() {
    for policy in each(10, Duration::from_secs(60)) {
        let lab = Lab::new();
        let refused = lab.charge(&policy, 11);
        assert!(refused.is_never(), "{policy:?}");
        assert_eq!(lab.backend.stats().held, 0, "{policy:?}");
        let admitted = lab.charge(&policy, 10);
        assert!(admitted.allowed(), "{policy:?}");
        assert_eq!(admitted.remaining(), Some(0));
        assert!(lab.charge(&policy, 11).is_never(), "{policy:?}");
    }
}

#[test]
fn b37_the_burst_is_the_limit_and_never_zero() {
    let lab = Lab::new();
    let policy = policy("5/1d");
    for _ in 0..5 {
        assert!(lab.admits(&policy, 1));
    }
    assert_eq!(lab.charge(&policy, 1).retry_after(), millis(17_280_000));
    let quota = Quota::token_bucket(5, Duration::from_secs(86_400)).unwrap();
    assert!(quota.with_burst(0).is_err());
}

#[test]
fn b54_remaining_counts_down_to_zero_and_comes_back_to_the_limit() {
    for policy in each(3, Duration::from_secs(60)) {
        let lab = Lab::new();
        let answers: Vec<_> = (0..5)
            .map(|_| {
                let decision = lab.charge(&policy, 1);
                (decision.allowed(), decision.remaining())
            })
            .collect();
        let expected = [(true, 2), (true, 1), (true, 0), (false, 0), (false, 0)];
        let expected = expected.map(|(allowed, left)| (allowed, Some(left)));
        assert_eq!(answers, expected, "{policy:?}");
        assert_eq!(lab.at(600_000).peek(&policy).remaining(), Some(3));
    }
}

#[test]
fn b78_b82_odd_keys_are_counted_and_kept_apart() {
    let long = |last: &str| format!("{}{last}", "k".repeat(2_999));
    let keys = [
        String::new(),
        " ".into(),
        "a b".into(),
        "100.0.0.1, 101.0.0.1".into(),
        "a\r\nset pwn 0 0 1\r\n1\r\n".into(),
        "\0".into(),
        "\0\0".into(),
        "é".repeat(1_100),
        "e\u{301}".into(),
        "x".repeat(2_048),
        long("a"),
        long("b"),
    ];
    for policy in each(1, Duration::from_secs(60)) {
        let lab = Lab::new();
        for expected in [true, false] {
            for key in &keys {
                let decision = lab.backend.try_acquire(&policy, key, Cost::ONE);
                assert_eq!(decision.allowed(), expected, "{key:?}");
            }
        }
        assert_eq!(lab.backend.stats().live, keys.len() as u64);
    }
}

#[test]
fn b122_a_refund_credits_no_time_twice_and_tops_nothing_up() {
    let lab = Lab::new();
    let policy = policy("10/10s");
    assert!(lab.admits(&policy, 10));
    lab.at(5_000).refund(&policy, 3, 0);
    assert_eq!(lab.peek(&policy).remaining(), Some(8));
    assert!(lab.admits(&policy, 8));
    assert_eq!(lab.charge(&policy, 1).retry_after(), millis(1_000));
    assert!(lab.at(6_000).admits(&policy, 1));
    lab.at(60_000).refund(&policy, 20, 6_000);
    assert_eq!(lab.peek(&policy).remaining(), Some(10));
}

#[test]
fn b124_a_refund_after_the_window_rolled_gives_nothing_back() {
    let lab = Lab::new();
    let window = policy("5/60s fixed_window");
    assert!(lab.at(59_000).admits(&window, 3));
    // What a wrong credit could take away: in an empty window it would show nowhere.
    assert!(lab.at(61_000).admits(&window, 3));
    lab.refund(&window, 3, 59_000);
    let admitted = (0..6).filter(|_| lab.admits(&window, 1)).count();
    assert_eq!(admitted, 2);

    let lab = Lab::new();
    let log = policy("5/60s sliding_log");
    assert!(lab.admits(&log, 1));
    assert!(lab.at(61_000).admits(&log, 3));
    lab.refund(&log, 1, 0);
    assert_eq!(lab.peek(&log).remaining(), Some(2));
}

#[test]
fn two_pools_of_threads_admit_exactly_the_limit() {
    for policy in each(100, Duration::from_secs(60)) {
        let lab = Lab::new();
        let pools: Vec<_> = (0..2)
            .map(|_| {
                tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .build()
                    .unwrap()
            })
            .collect();
        let backend = std::sync::Arc::new(lab.backend);
        let charges: Vec<_> = (0..400)
            .map(|i| {
                let (backend, policy) = (std::sync::Arc::clone(&backend), policy.clone());
                pools[i % 2].spawn(async move {
                    let key = Key::from("k");
                    let subject = Subject::new(&policy, &key);
                    let decision = backend.acquire(subject, Cost::ONE).await;
                    decision.unwrap().granted()
                })
            })
            .collect();
        let granted: u64 = pools[0].block_on(async {
            let mut granted = 0;
            for charge in charges {
                granted += charge.await.unwrap();
            }
            granted
        });
        assert_eq!(granted, 100, "{policy:?}");
        assert!(lab.clock.now() == T0);
    }
}

#[test]
fn no_key_shows_in_what_it_prints() {
    let lab = Lab::new();
    let policy = policy("1/h, 5/d");
    lab.backend
        .try_acquire(&policy, "alice@example.com", Cost::ONE);
    let printed = format!("{:?} {}", lab.backend, lab.backend);
    assert!(!printed.contains("alice"), "{printed}");
    assert!(printed.ends_with("memory://"), "{printed}");
}
