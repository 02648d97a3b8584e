//! What a flood of keys can and cannot do.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]
#![expect(
    clippy::disallowed_methods,
    reason = "how long a call takes is real time"
)]

use std::time::Duration;

use tollgate_core::{
    Algorithm, Clock, Cost, CounterBackend, Key, ManualClock, Policy, Quota, Refund, Subject,
    Timestamp,
};
use tollgate_memory::MemoryBackend;

fn policy(name: &str, quotas: &str) -> Policy {
    Policy::new(name, Quota::parse_list(quotas).unwrap()).unwrap()
}

fn manual(max_keys: u64) -> (MemoryBackend, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000));
    let backend = MemoryBackend::builder()
        .max_keys(max_keys)
        .clock(clock.clone())
        .build();
    (backend, clock)
}

fn each_algorithm(limit: u64, period: Duration) -> impl Iterator<Item = Policy> {
    Algorithm::ALL.into_iter().map(move |algorithm| {
        let quota = Quota::new(algorithm, limit, period).unwrap();
        Policy::new(algorithm.as_str(), [quota]).unwrap()
    })
}

fn admits(backend: &MemoryBackend, policy: &Policy, key: &str) -> bool {
    backend.try_acquire(policy, key, Cost::ONE).allowed()
}

#[test]
fn b88_a_flood_renews_no_used_up_quota_and_is_not_admitted_untracked() {
    for policy in each_algorithm(5, Duration::from_secs(60)) {
        let (backend, clock) = manual(1_000);
        assert!(backend.warnings().is_empty());
        for i in 0..6 {
            assert_eq!(admits(&backend, &policy, "V"), i < 5, "{policy:?}");
        }
        for i in 0..10_000 {
            let _ = admits(&backend, &policy, &format!("other-{i}"));
            assert!(backend.stats_at(Timestamp::default()).held <= 1_000);
        }
        assert!(!admits(&backend, &policy, "V"), "{policy:?}");
        let admitted = (0..100).filter(|_| admits(&backend, &policy, "W")).count();
        assert!(admitted <= 5, "{policy:?}: {admitted}");
        let stats = backend.stats();
        assert!(stats.live <= 1_000, "{stats:?}");
        assert!(stats.overflow_decisions > 0, "{stats:?}");
        assert_eq!(backend.warnings().len(), 1);
        clock.advance(Duration::from_secs(120));
        assert!(backend.warnings().is_empty());
        assert!(admits(&backend, &policy, "V"));
    }
}

#[test]
fn each_of_the_first_max_keys_has_its_own_record() {
    const MAX: u64 = 5_000;
    for policy in each_algorithm(2, Duration::from_secs(60)) {
        let (backend, _) = manual(MAX);
        let key = |i: u64| format!("key-{i}");
        for i in 0..MAX {
            assert!(admits(&backend, &policy, &key(i)), "{policy:?} {i}");
        }
        // All those past the bound get the quota once, together.
        let beyond = (MAX..2 * MAX)
            .filter(|i| admits(&backend, &policy, &key(*i)))
            .count();
        assert_eq!(beyond, 2, "{policy:?}");
        if policy.quotas()[0].algorithm() != Algorithm::SlidingLog {
            for expected in [true, false] {
                for i in 0..MAX {
                    assert_eq!(admits(&backend, &policy, &key(i)), expected, "{i}");
                }
            }
        }
        assert_eq!(backend.stats().live, MAX);
    }
}

#[test]
fn past_the_bound_policies_do_not_share() {
    let (backend, _) = manual(1);
    let (a, b) = (policy("a", "1/h"), policy("b", "1/h"));
    assert!(admits(&backend, &a, "first"));
    assert!(admits(&backend, &a, "second"), "the overflow record of a");
    assert!(!admits(&backend, &a, "third"));
    assert!(admits(&backend, &b, "third"), "the overflow record of b");
    assert!(!admits(&backend, &b, "fourth"));
    // A peek sees what a charge would meet, and a refund there gives nothing back.
    assert!(!backend.try_peek(&a, "fifth", Cost::ONE).allowed());
    let refund = Refund {
        cost: 1,
        charged_at: Timestamp::default(),
    };
    backend.try_refund(&a, "second", refund);
    assert!(!admits(&backend, &a, "second"));
    // A reset makes room.
    backend.try_reset(&a, "first");
    assert!(admits(&backend, &a, "third"));
    assert_eq!(backend.stats().held, 1);
}

#[test]
fn idle_records_make_room_before_anybody_is_refused_one() {
    const MAX: u64 = 3_000;
    for policy in each_algorithm(1, Duration::from_secs(1)) {
        let (backend, clock) = manual(MAX);
        for round in 0..4 {
            for i in 0..MAX {
                let key = format!("{round}-{i}");
                assert!(admits(&backend, &policy, &key), "{policy:?} {key}");
                assert!(!admits(&backend, &policy, &key), "{policy:?} {key}");
            }
            assert_eq!(backend.stats().live, MAX);
            clock.advance(Duration::from_secs(2));
            assert_eq!(backend.stats().live, 0);
        }
        assert_eq!(backend.stats().overflow_decisions, 0);
    }
}

#[test]
fn both_kinds_of_record_make_room_for_each_other() {
    let (backend, clock) = manual(500);
    let (bucket, window) = (policy("a", "1/s"), policy("b", "1/s sliding_window"));
    for policy in [&bucket, &window, &bucket, &bucket, &window, &window] {
        for i in 0..500 {
            assert!(admits(&backend, policy, &i.to_string()), "{policy:?} {i}");
        }
        assert_eq!(backend.stats().held, 500);
        clock.advance(Duration::from_secs(5));
    }
    assert_eq!(backend.stats().overflow_decisions, 0);
}

#[test]
fn a_log_is_bounded_too_and_never_admits_more() {
    let (backend, clock) = manual(100);
    let log = policy("log", "1000/1h sliding_log");
    let mut admitted = 0;
    for i in 0..2_000 {
        clock.advance(Duration::from_millis(1));
        let key = if i % 2 == 0 { "a" } else { "b" };
        admitted += u64::from(admits(&backend, &log, key));
        let held = backend.stats().held;
        assert!(held <= 100, "{held}");
    }
    // The bound came between them: each still has its thousand, and no more.
    assert_eq!(admitted, 2_000);
    for key in ["a", "b"] {
        assert!(!admits(&backend, &log, key));
    }
    clock.advance(Duration::from_secs(3_600));
    assert!(admits(&backend, &log, "a"));
}

/// How long this thread has queued for a processor, where the system tells.
fn queued() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split(' ').nth(1).and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// How many threads this process has, where the system tells.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[test]
fn b87_a_flood_is_forgotten_and_renews_nothing() {
    // The report's own numbers: 10 a second, a million keys in ten seconds, "hot" used up meanwhile.
    const KEYS: u64 = 1_000_000;
    // Far fewer than there are, so that most of them are in the place of one that is idle.
    const ROOM: u64 = 50_000;
    let (backend, clock) = manual(ROOM);
    let policy = policy("flood", "10/1s");
    let before = threads();
    let mut hot = 0;
    for thousand in 0..KEYS / 1_000 {
        let (started, queue) = (std::time::Instant::now(), queued());
        for i in 0..1_000 {
            assert!(admits(&backend, &policy, &format!("flood-{thousand}-{i}")));
        }
        // A thousand of them at once, so that none of them can have taken as long.
        let took = started.elapsed().saturating_sub(queued() - queue);
        assert!(took < Duration::from_millis(50), "{took:?}");
        clock.advance(Duration::from_millis(10));
        hot += (0..11).filter(|_| admits(&backend, &policy, "hot")).count();
    }
    for _ in 0..50 {
        clock.advance(Duration::from_millis(100));
        hot += usize::from(admits(&backend, &policy, "hot"));
    }
    // Ten a second, each of which was asked for, of 15 s; and its burst.
    assert!((150..=160).contains(&hot), "{hot} in 15 s");
    let stats = backend.stats();
    assert_eq!(stats.live, 1, "hot alone is left");
    assert!(stats.held <= ROOM, "{stats:?}");
    assert_eq!(stats.overflow_decisions, 0);
    // Other tests may have some, too.
    assert!(threads() < before + 1_000, "none for each key");
}

#[test]
fn by_its_own_clock_a_flood_that_passed_uses_its_own_room_again() {
    // 1 ms of quota each, so by the time a bucket is met again what is in it has long been idle.
    // The room of what was idle for a second is used again below the bound already.
    let backend = MemoryBackend::builder().max_keys(1_000_000).build();
    for policy in each_algorithm(1, Duration::from_millis(1)) {
        for i in 0..20_000 {
            let _ = admits(&backend, &policy, &format!("{i}"));
        }
    }
    let stats = backend.stats();
    assert!(stats.held <= 80_000, "{stats:?}");
    assert!(stats.live < stats.held, "{stats:?}");
    assert_eq!(stats.overflow_decisions, 0);
}

#[test]
fn a_bound_of_one_is_a_bound() {
    for policy in each_algorithm(3, Duration::from_secs(60)) {
        let (backend, clock) = manual(1);
        for i in 0..4 {
            assert_eq!(admits(&backend, &policy, "own"), i < 3);
        }
        let shared = ["x", "y", "z", "x", "y", "z"];
        let admitted = shared.iter().filter(|key| admits(&backend, &policy, key));
        assert_eq!(admitted.count(), 3);
        clock.advance(Duration::from_secs(120));
        assert!(admits(&backend, &policy, "x"), "own has made room");
        assert_eq!(backend.stats().held, 1);
    }
}

/// Two versions of a policy at once, as while rules are reloaded: one record a key, whatever the
/// interleaving, so never more than the larger quota is admitted.
#[test]
fn a_policy_that_changes_its_kind_keeps_one_record() {
    for _ in 0..20 {
        let (backend, clock) = manual(10_000);
        let old = policy("p", "10/1h");
        let new = policy("p", "10/1h, 10/1d");
        let keys: Vec<String> = (0..50).map(|i| i.to_string()).collect();
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = [&old, &new, &old, &new]
                .into_iter()
                .map(|policy| {
                    let (backend, keys) = (&backend, &keys);
                    scope.spawn(move || {
                        let one =
                            |key: &String| (0..5).filter(|_| admits(backend, policy, key)).count();
                        keys.iter().map(one).sum::<usize>()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(admitted, 10 * keys.len());
        assert_eq!(backend.stats().held, keys.len() as u64);
        assert!(clock.now() > Timestamp::default());
    }
}

/// Four threads at the bound, with resets, and a clock that lets records go idle now and then.
#[test]
fn the_bound_and_the_quotas_hold_under_many_hands() {
    const MAX: u64 = 512;
    let (backend, clock) = manual(MAX);
    let policies = [policy("a", "3/1s"), policy("b", "3/1s sliding_log")];
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (backend, clock, policies) = (&backend, &clock, &policies);
            scope.spawn(move || {
                let mut x = thread + 1;
                for step in 0..20_000 {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    let policy = &policies[(x % 2) as usize];
                    let key = ((x >> 8) % 1_500).to_string();
                    match x >> 60 {
                        0 => backend.try_reset(policy, &key),
                        1 => drop(backend.try_peek(policy, &key, Cost::ONE)),
                        _ => drop(backend.try_acquire(policy, &key, Cost::ONE)),
                    }
                    if step % 64 == 0 {
                        assert!(backend.stats().held <= MAX);
                    }
                    if thread == 0 && step % 2_000 == 0 {
                        clock.advance(Duration::from_millis(700));
                    }
                }
            });
        }
    });
    assert!(backend.stats().overflow_decisions > 0);
    // Nothing was lost of the count: when all is idle, all the room is there again.
    clock.advance(Duration::from_secs(60));
    assert_eq!(backend.stats().live, 0);
    let last = policy("c", "1/h");
    for i in 0..MAX {
        assert!(admits(&backend, &last, &i.to_string()), "{i}");
    }
    let stats = backend.stats();
    assert_eq!((stats.live, stats.held), (MAX, MAX));
}

#[tokio::test]
async fn the_trait_meets_the_same_bound() {
    let (backend, clock) = manual(1);
    let policy = policy("p", "1/h");
    let mut answers = Vec::new();
    for key in ["a", "b", "c"] {
        let key = Key::from(key);
        let subject = Subject::new(&policy, &key).at(clock.now());
        let batch = backend
            .acquire_batch(subject, &[Cost::ONE; 2])
            .await
            .unwrap();
        answers.extend(batch.iter().map(|decision| decision.allowed()));
    }
    assert_eq!(answers, [true, false, true, false, false, false]);
}
