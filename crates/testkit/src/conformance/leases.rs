//! What every store of leases must answer, one test a rule.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::trace::Trace;
use tollgate_core::{BackendError, Key, LeaseAnswer, LeaseBackend, LeaseSubject, Timestamp};

use super::fresh_name;
use crate::Rng;

/// The cases. [`lease_conformance!`](crate::lease_conformance!) calls all.
#[doc(hidden)]
pub mod cases {
    pub use super::{
        a_clock_of_its_own_counts_too, a_dropped_call_leaves_leases_usable,
        a_foreign_release_frees_nothing, a_full_limit_admits_who_is_in,
        a_holder_that_was_late_disturbs_nobody, a_second_release_frees_nothing,
        every_call_agrees_with_the_model, fences_only_grow, limits_and_keys_are_kept_apart,
        long_holders_are_told_apart, many_slots_are_no_special_case,
        never_more_than_the_slots_at_once, odd_names_hold_slots, out_at_the_very_microsecond,
        vectors_leases,
    };
}

/// One named test for each rule of leases, in a module of the given name; as
/// [`conformance!`](crate::conformance!) is for counters.
///
/// ```no_run
/// use tollgate_testkit::{MapLeases, lease_conformance};
///
/// // In a test file. The expression is evaluated for each test, and may `.await`.
/// lease_conformance!(leases, MapLeases::default());
/// ```
#[macro_export]
macro_rules! lease_conformance {
    ($name:ident, $backend:expr $(,)?) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::__lease_conformance_cases! { $backend;
                vectors_leases
                every_call_agrees_with_the_model
                out_at_the_very_microsecond
                a_full_limit_admits_who_is_in
                a_second_release_frees_nothing
                a_foreign_release_frees_nothing
                a_holder_that_was_late_disturbs_nobody
                fences_only_grow
                limits_and_keys_are_kept_apart
                odd_names_hold_slots
                long_holders_are_told_apart
                many_slots_are_no_special_case
                never_more_than_the_slots_at_once
                a_dropped_call_leaves_leases_usable
                a_clock_of_its_own_counts_too
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __lease_conformance_cases {
    ($backend:expr; $($case:ident)*) => { $(
        #[test]
        fn $case() {
            $crate::conformance::run(async {
                let lab = $crate::conformance::LeaseLab::new($backend);
                $crate::conformance::lease_cases::$case(&lab).await;
                lab.assert_ran();
            });
        }
    )* };
}

/// The store under test. An error of it fails the test.
#[doc(hidden)]
#[derive(Debug)]
pub struct LeaseLab<B> {
    backend: Arc<B>,
    calls: Arc<AtomicU64>,
    seed: u64,
}

impl<B> Clone for LeaseLab<B> {
    fn clone(&self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            calls: Arc::clone(&self.calls),
            seed: self.seed,
        }
    }
}

impl<B: LeaseBackend> LeaseLab<B> {
    /// A lab for one case.
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self {
            backend: Arc::new(backend),
            calls: Arc::default(),
            seed: super::seed(),
        }
    }

    /// Panics unless the case made any call.
    pub fn assert_ran(&self) {
        let calls = self.calls.load(Ordering::SeqCst);
        assert!(calls > 0, "the case made no call, so it proves nothing");
    }

    fn answer<T>(&self, call: &str, answer: Result<T, BackendError>) -> T {
        self.calls.fetch_add(1, Ordering::SeqCst);
        answer.unwrap_or_else(|error| panic!("{call} failed (seed {}): {error}", self.seed))
    }

    async fn acquire(&self, limit: &Limit, holder: &str, at: Timestamp) -> LeaseAnswer {
        let key = Key::from(&limit.key);
        let subject = limit.subject(&key, Some(at));
        let asked = self
            .backend
            .acquire(subject, holder, limit.slots, limit.ttl);
        let answer = self.answer("acquire", asked.await);
        assert_eq!(answer.ok, answer.fence.is_some(), "who is in has a number");
        answer
    }

    async fn renew(&self, limit: &Limit, holder: &str, at: Timestamp) -> LeaseAnswer {
        let key = Key::from(&limit.key);
        let asked = self
            .backend
            .renew(limit.subject(&key, Some(at)), holder, limit.ttl);
        self.answer("renew", asked.await)
    }

    async fn release(&self, limit: &Limit, holder: &str, at: Timestamp) -> LeaseAnswer {
        let key = Key::from(&limit.key);
        let asked = self.backend.release(limit.subject(&key, Some(at)), holder);
        self.answer("release", asked.await)
    }

    async fn in_use(&self, limit: &Limit, at: Timestamp) -> u32 {
        let key = Key::from(&limit.key);
        let asked = self.backend.in_use(limit.subject(&key, Some(at)));
        self.answer("in_use", asked.await)
    }
}

/// What a case counts.
#[derive(Clone, Debug)]
struct Limit {
    name: String,
    key: String,
    slots: NonZeroU32,
    ttl: Duration,
}

impl Limit {
    /// A limit that no other case, run or process uses.
    fn new(slots: u32, ttl: Duration) -> Self {
        Self {
            name: fresh_name(),
            key: "k".into(),
            slots: NonZeroU32::new(slots).expect("cases use slots"),
            ttl,
        }
    }

    fn subject<'a>(&'a self, key: &'a Key<'a>, at: Option<Timestamp>) -> LeaseSubject<'a> {
        LeaseSubject {
            name: &self.name,
            key,
            at,
        }
    }
}

fn now() -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000)
}

const SECOND: Duration = Duration::from_secs(1);
const MICRO: Duration = Duration::from_micros(1);

/// The traces with the right answer to every step.
pub async fn vectors_leases<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let file = include_str!("../../vectors/leases.jsonl");
    let traces = Trace::parse_lines(file).expect("the vectors are traces");
    assert_eq!(traces.len(), 120, "the vector file was cut");
    for trace in &traces {
        let answers = trace.run_leases(&*lab.backend).await;
        lab.calls.fetch_add(1, Ordering::SeqCst);
        let answers = answers.unwrap_or_else(|error| panic!("{}: {error}", trace.name()));
        assert_eq!(trace.differences(&answers), [], "{}", trace.name());
    }
}

/// Random calls against what `docs/algorithms.md` says, kept in a map.
pub async fn every_call_agrees_with_the_model<B: LeaseBackend>(lab: &LeaseLab<B>) {
    for round in 0..20 {
        let mut rng = Rng::new(lab.seed.wrapping_add(round));
        let ttl = Duration::from_micros(rng.between(1_000, 5_000_000));
        let limit = Limit::new(u32::try_from(rng.between(1, 5)).expect("small"), ttl);
        let mut model: HashMap<String, Timestamp> = HashMap::new();
        let mut at = rng.moment();
        for step in 0..40 {
            at = at + rng.pause(at, ttl);
            model.retain(|_, out| *out > at);
            let holder = format!("h{}", rng.below(8));
            let place = format!("round {round}, step {step}, seed {}", lab.seed);
            let (answer, ok) = match rng.below(6) {
                0 | 1 => {
                    let ok =
                        model.contains_key(&holder) || model.len() < limit.slots.get() as usize;
                    if ok {
                        model.insert(holder.clone(), at + ttl);
                    }
                    (lab.acquire(&limit, &holder, at).await, ok)
                }
                2 | 3 => {
                    let held = model.get_mut(&holder);
                    let ok = held.map(|out| *out = at + ttl).is_some();
                    (lab.renew(&limit, &holder, at).await, ok)
                }
                4 => {
                    let ok = model.remove(&holder).is_some();
                    (lab.release(&limit, &holder, at).await, ok)
                }
                _ => {
                    assert_eq!(
                        lab.in_use(&limit, at).await as usize,
                        model.len(),
                        "{place}"
                    );
                    continue;
                }
            };
            assert_eq!(
                (answer.ok, answer.in_use as usize),
                (ok, model.len()),
                "{place}"
            );
        }
    }
}

/// A holder is in one microsecond before its time has passed, and out at it.
pub async fn out_at_the_very_microsecond<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(1, SECOND);
    assert!(lab.acquire(&limit, "a", now()).await.ok);
    let last = now() + SECOND - MICRO;
    assert!(!lab.acquire(&limit, "b", last).await.ok);
    assert_eq!(lab.in_use(&limit, last).await, 1);
    assert_eq!(lab.in_use(&limit, now() + SECOND).await, 0);
    assert!(!lab.renew(&limit, "a", now() + SECOND).await.ok);
    assert!(lab.acquire(&limit, "b", now() + SECOND).await.ok);
}

/// Who is in already is in again however full it is, and its time starts anew.
pub async fn a_full_limit_admits_who_is_in<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(2, SECOND);
    for holder in ["a", "b"] {
        assert!(lab.acquire(&limit, holder, now()).await.ok);
    }
    let later = now() + SECOND / 2;
    let refused = lab.acquire(&limit, "c", later).await;
    assert_eq!((refused.ok, refused.in_use), (false, 2));
    let again = lab.acquire(&limit, "a", later).await;
    assert_eq!((again.ok, again.in_use), (true, 2));
    // b is out, a is not.
    let third = lab.acquire(&limit, "c", now() + SECOND).await;
    assert_eq!((third.ok, third.in_use), (true, 2));
    assert!(lab.renew(&limit, "a", now() + SECOND).await.ok);
    // Fewer slots than are in use: nobody is thrown out, and nobody comes in.
    let fewer = Limit {
        slots: NonZeroU32::MIN,
        ..limit.clone()
    };
    let refused = lab.acquire(&fewer, "d", now() + SECOND).await;
    assert_eq!((refused.ok, refused.in_use), (false, 2));
    assert!(lab.acquire(&fewer, "a", now() + SECOND).await.ok);
}

/// Two releases of one holder are one.
pub async fn a_second_release_frees_nothing<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(2, SECOND);
    for holder in ["a", "b"] {
        assert!(lab.acquire(&limit, holder, now()).await.ok);
    }
    let first = lab.release(&limit, "a", now()).await;
    assert_eq!((first.ok, first.in_use), (true, 1));
    let second = lab.release(&limit, "a", now()).await;
    assert_eq!((second.ok, second.in_use), (false, 1));
    assert!(lab.acquire(&limit, "c", now()).await.ok);
    assert!(!lab.acquire(&limit, "d", now()).await.ok);
}

/// Nor does that of a holder that never was in.
pub async fn a_foreign_release_frees_nothing<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(1, SECOND);
    let none = lab.release(&limit, "nobody", now()).await;
    assert_eq!((none.ok, none.in_use), (false, 0));
    assert!(lab.acquire(&limit, "a", now()).await.ok);
    for made_up in ["b", "", "A", "a ", "a\0", "*", "%"] {
        let answer = lab.release(&limit, made_up, now()).await;
        assert_eq!((answer.ok, answer.in_use), (false, 1), "{made_up:?}");
    }
    assert!(!lab.acquire(&limit, "b", now()).await.ok);
}

/// Its renewal and release come when the slot is another's.
pub async fn a_holder_that_was_late_disturbs_nobody<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(1, 2 * SECOND);
    let tenths = |n: u32| now() + n * SECOND / 10;
    assert!(lab.acquire(&limit, "h1", tenths(0)).await.ok);
    assert!(lab.acquire(&limit, "h2", tenths(21)).await.ok);
    assert!(!lab.renew(&limit, "h1", tenths(22)).await.ok);
    assert!(!lab.release(&limit, "h1", tenths(23)).await.ok);
    assert!(!lab.acquire(&limit, "h3", tenths(24)).await.ok);
    assert!(lab.renew(&limit, "h2", tenths(25)).await.ok);
}

/// In one microsecond, after a release, after expiry, for who was in already, and when the time of
/// the call lies before that of the last.
pub async fn fences_only_grow<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(3, SECOND);
    let mut last = 0;
    let times = [0, 0, 0, 1, 2, 2, 1, 5, 5];
    for (turn, second) in times.into_iter().enumerate() {
        let holder = format!("h{}", turn % 3);
        let answer = lab.acquire(&limit, &holder, now() + second * SECOND).await;
        let fence = answer.fence.expect("there is room");
        assert!(fence > last, "turn {turn}: {fence} after {last}");
        last = fence;
        if turn % 2 == 0 {
            lab.release(&limit, &holder, now() + second * SECOND).await;
        }
    }
    assert!(last >= (now() + 5 * SECOND).as_micros());
}

/// Neither the name nor the key alone makes the slots.
pub async fn limits_and_keys_are_kept_apart<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let one = Limit::new(1, SECOND);
    let other_key = Limit {
        key: "l".into(),
        ..one.clone()
    };
    let other_name = Limit::new(1, SECOND);
    for (limit, holder) in [(&one, "a"), (&other_key, "b"), (&other_name, "c")] {
        assert!(lab.acquire(limit, holder, now()).await.ok);
        assert!(!lab.acquire(limit, "d", now()).await.ok);
    }
    assert!(lab.release(&other_key, "b", now()).await.ok);
    assert_eq!(lab.in_use(&one, now()).await, 1);
    assert_eq!(lab.in_use(&other_name, now()).await, 1);
    assert_eq!(lab.in_use(&other_key, now()).await, 0);
}

/// Whatever a key or a holder is called.
pub async fn odd_names_hold_slots<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(1, SECOND);
    let odd = [
        "",
        " ",
        "a b",
        "{x}",
        "é",
        "\0",
        "a\r\nset pwn 0 0 1\r\n1\r\n",
        &"k".repeat(3_000),
    ];
    for key in odd {
        let limit = Limit {
            key: key.into(),
            ..limit.clone()
        };
        for holder in odd {
            assert!(
                lab.acquire(&limit, holder, now()).await.ok,
                "{key:?} {holder:?}"
            );
            assert!(
                !lab.acquire(&limit, "another", now()).await.ok,
                "{key:?} {holder:?}"
            );
            assert!(
                lab.renew(&limit, holder, now()).await.ok,
                "{key:?} {holder:?}"
            );
            assert!(
                lab.release(&limit, holder, now()).await.ok,
                "{key:?} {holder:?}"
            );
        }
    }
}

/// Two names of a hundred characters that differ in the last.
pub async fn long_holders_are_told_apart<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(1, SECOND);
    let (a, b) = ("h".repeat(99) + "a", "h".repeat(99) + "b");
    assert!(lab.acquire(&limit, &a, now()).await.ok);
    assert!(!lab.acquire(&limit, &b, now()).await.ok);
    assert!(!lab.release(&limit, &b, now()).await.ok);
    assert!(lab.release(&limit, &a, now()).await.ok);
}

/// A thousand slots, all held, one freed.
pub async fn many_slots_are_no_special_case<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(1_000, 60 * SECOND);
    for holder in 0..1_000_u32 {
        let answer = lab.acquire(&limit, &holder.to_string(), now()).await;
        assert_eq!((answer.ok, answer.in_use), (true, holder + 1));
    }
    assert!(!lab.acquire(&limit, "one more", now()).await.ok);
    assert!(lab.release(&limit, "500", now()).await.ok);
    assert!(lab.acquire(&limit, "one more", now()).await.ok);
    assert_eq!(lab.in_use(&limit, now() + 60 * SECOND).await, 0);
}

/// Many tasks come, hold and go; no more than the slots are ever in.
pub async fn never_more_than_the_slots_at_once<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(10, 600 * SECOND);
    let inside = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let (lab, limit, inside) = (lab.clone(), limit.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                let mut held = 0;
                for turn in 0..10 {
                    let holder = format!("{task}-{turn}");
                    let answer = lab.acquire(&limit, &holder, now()).await;
                    assert!(answer.in_use <= 10);
                    if !answer.ok {
                        continue;
                    }
                    held += 1;
                    let others = inside.fetch_add(1, Ordering::SeqCst);
                    assert!(others < 10, "{} at once", others + 1);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert!(lab.release(&limit, &holder, now()).await.ok);
                }
                held
            })
        })
        .collect();
    let mut held = 0;
    for task in tasks {
        held += task.await.expect("no call panics");
    }
    assert!(held >= 10, "only {held} were ever in");
    assert_eq!(lab.in_use(&limit, now()).await, 0);
    // All at once: as many as there are slots.
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let (lab, limit) = (lab.clone(), limit.clone());
            tokio::spawn(async move { lab.acquire(&limit, &task.to_string(), now()).await.ok })
        })
        .collect();
    let mut held = 0;
    for task in tasks {
        held += u32::from(task.await.expect("no call panics"));
    }
    assert_eq!(held, 10);
}

/// A caller that gives up is in or not; the next call works either way.
pub async fn a_dropped_call_leaves_leases_usable<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(100, SECOND);
    let key = Key::from(&limit.key);
    for turn in 0..40_u64 {
        let holder = turn.to_string();
        let subject = limit.subject(&key, Some(now()));
        let call = lab
            .backend
            .acquire(subject, &holder, limit.slots, limit.ttl);
        // Dropped before it is polled, after one poll, or a little later.
        let _ = tokio::time::timeout(Duration::from_micros(turn * 10), call).await;
        assert!(u64::from(lab.in_use(&limit, now()).await) <= turn + 1);
    }
    assert_eq!(lab.in_use(&limit, now() + SECOND).await, 0);
}

/// Without a given time.
pub async fn a_clock_of_its_own_counts_too<B: LeaseBackend>(lab: &LeaseLab<B>) {
    let limit = Limit::new(1, 3_600 * SECOND);
    let key = Key::from(&limit.key);
    let subject = limit.subject(&key, None);
    let first = lab.backend.acquire(subject, "a", limit.slots, limit.ttl);
    assert!(lab.answer("acquire", first.await).ok);
    let second = lab.backend.acquire(subject, "b", limit.slots, limit.ttl);
    assert!(!lab.answer("acquire", second.await).ok);
    assert!(
        lab.answer("renew", lab.backend.renew(subject, "a", limit.ttl).await)
            .ok
    );
    assert_eq!(lab.answer("in_use", lab.backend.in_use(subject).await), 1);
    assert!(
        lab.answer("release", lab.backend.release(subject, "a").await)
            .ok
    );
    // One that is over at once.
    let over = lab
        .backend
        .acquire(subject, "a", limit.slots, Duration::ZERO);
    assert!(lab.answer("acquire", over.await).ok);
    assert_eq!(lab.answer("in_use", lab.backend.in_use(subject).await), 0);
}
