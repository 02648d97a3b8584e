//! The conformance suite: what every backend and every wrapper must answer, one test a rule.
//!
//! ```no_run
//! use tollgate_core::CasBackend;
//! use tollgate_testkit::{MapStore, conformance};
//! use tollgate_testkit::conformance::Options;
//!
//! // In a test file. The expression is evaluated for each test, and may `.await`.
//! conformance!(map, CasBackend::new(MapStore::default()));
//!
//! // A wrapper that declares how it differs.
//! conformance!(
//!     remembering,
//!     CasBackend::new(MapStore::default()),
//!     Options { remembers_refusals: true, ..Options::default() }
//! );
//! ```
//!
//! Every case counts under policy names of its own, so that one store serves all of them at once;
//! nothing is flushed. Time is virtual ([`Subject::at`]), so nothing sleeps. A case fails unless it
//! ran, and made as many calls as it must. A failure of a random case names its seed;
//! `TOLLGATE_TEST_SEED` sets another.

mod bounds;
mod charges;
mod clocks;
mod keys;
mod laws;
mod leases;
mod races;
mod twin;
mod vectors;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{
    Cost, CounterBackend, Decision, Key, Policy, Quota, Refund, Subject, Timestamp,
};

use crate::Rng;

pub use leases::{LeaseLab, cases as lease_cases};

/// How a backend or a wrapper may differ from what is usual: what it declares here is all that it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// It refuses by itself what it knows to be refused. `allowed` and `granted` stay the same; the
    /// wait it states may be longer than the true one and never shorter, and such an answer need
    /// not say what each quota has. It cannot follow a clock that moves back.
    pub remembers_refusals: bool,
    /// The largest limit of a sliding log that it can hold, if that is less than any: a log needs
    /// room for each admission. It refuses larger ones with an error, so no case uses any.
    pub largest_log: Option<u64>,
}

/// The cases, each an `async fn` over a [`Lab`]. [`conformance!`](crate::conformance!) calls all.
#[doc(hidden)]
pub mod cases {
    pub use super::bounds::*;
    pub use super::charges::*;
    pub use super::clocks::*;
    pub use super::keys::*;
    pub use super::laws::*;
    pub use super::races::*;
    pub use super::twin::*;
    pub use super::vectors::*;
}

/// One named test for each rule, in a module of the given name.
///
/// `conformance!(name, backend)` or `conformance!(name, backend, options)`; see
/// [`conformance`](mod@crate::conformance).
#[macro_export]
macro_rules! conformance {
    ($name:ident, $backend:expr $(,)?) => {
        $crate::conformance!($name, $backend, $crate::conformance::Options::default());
    };
    ($name:ident, $backend:expr, $options:expr $(,)?) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::__conformance_cases! { $backend, $options;
                vectors_token_bucket
                vectors_sliding_window
                vectors_fixed_window
                vectors_sliding_log
                vectors_multi
                every_call_agrees_with_the_pure_steps
                a_log_is_never_above_its_limit_in_any_period
                a_bucket_is_never_above_its_burst_and_rate_in_any_interval
                a_window_is_never_above_its_limit
                refused_just_before_retry_after_and_admitted_at_it
                more_is_there_at_more_after_and_not_before
                a_charge_without_a_future_is_the_same
                a_peek_changes_nothing_and_agrees_with_the_charge
                a_refund_never_makes_more_than_there_was
                a_late_refund_gives_nothing_back
                a_batch_is_the_same_single_charges
                an_empty_batch_has_no_answers
                a_range_of_costs_takes_what_is_there
                a_cost_above_the_capacity_is_never_admitted_and_charges_nothing
                several_quotas_are_charged_all_or_nothing
                a_changed_quota_keeps_what_was_used
                another_algorithm_or_period_starts_anew
                a_reset_forgets
                idle_state_decides_like_none
                large_numbers_are_exact
                a_clock_back_a_little_hands_out_nothing_twice
                a_clock_back_a_lot_locks_nobody_out
                its_own_clock_counts_too
                concurrent_charges_are_those_of_some_serial_order
                of_400_concurrent_charges_exactly_100_are_admitted
                concurrent_ranges_grant_exactly_the_limit
                a_dropped_call_leaves_it_usable
                odd_keys_are_counted_apart
                parts_of_keys_do_not_collide
                policies_are_counted_apart
                it_answers_a_ping_and_names_itself
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ($backend:expr, $options:expr; $($case:ident)*) => { $(
        #[test]
        fn $case() {
            $crate::conformance::run(async {
                let lab = $crate::conformance::Lab::new($backend, $options);
                $crate::conformance::cases::$case(&lab).await;
                lab.assert_ran();
            });
        }
    )* };
}

/// Runs a case on several threads.
#[doc(hidden)]
pub fn run(case: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a test can start a runtime")
        .block_on(case);
}

/// The backend under test, and what the cases ask of it.
///
/// An error of the backend fails the test: a conformance run has no faults.
#[doc(hidden)]
#[derive(Debug)]
pub struct Lab<B> {
    backend: Arc<B>,
    options: Options,
    calls: Arc<AtomicU64>,
    seed: u64,
}

impl<B> Clone for Lab<B> {
    fn clone(&self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            options: self.options,
            calls: Arc::clone(&self.calls),
            seed: self.seed,
        }
    }
}

impl<B: CounterBackend> Lab<B> {
    /// A lab for one case.
    #[must_use]
    pub fn new(backend: B, options: Options) -> Self {
        Self {
            backend: Arc::new(backend),
            options,
            calls: Arc::default(),
            seed: seed(),
        }
    }

    /// The generator of round `round` of a case. A failure in it is reported with the seed.
    pub(crate) fn rng(&self, round: u64) -> Rng {
        Rng::new(
            self.seed
                .wrapping_add(round.wrapping_mul(0x5851_F42D_4C95_7F2D)),
        )
    }

    /// A policy whose name no other case, run or process uses.
    pub(crate) fn policy(&self, quotas: impl IntoIterator<Item = Quota>) -> Policy {
        Policy::new(&fresh_name(), quotas).expect("cases use 1 to 16 quotas")
    }

    /// Panics unless the case made any call.
    pub fn assert_ran(&self) {
        let calls = self.calls.load(Ordering::SeqCst);
        assert!(calls > 0, "the case made no call, so it proves nothing");
    }

    pub(crate) fn count(&self, calls: u64) {
        self.calls.fetch_add(calls, Ordering::SeqCst);
    }

    pub(crate) async fn acquire(
        &self,
        policy: &Policy,
        key: &str,
        at: Timestamp,
        cost: Cost,
    ) -> Decision {
        self.acquire_key(policy, &Key::from(key), at, cost).await
    }

    pub(crate) async fn acquire_key(
        &self,
        policy: &Policy,
        key: &Key<'_>,
        at: Timestamp,
        cost: Cost,
    ) -> Decision {
        self.charge(Subject::new(policy, key).at(at), cost).await
    }

    /// One charge, also by the backend's own clock.
    pub(crate) async fn charge(&self, subject: Subject<'_>, cost: Cost) -> Decision {
        self.count(1);
        let decided = self.backend.acquire(subject, cost).await;
        let decision = decided.unwrap_or_else(|e| self.broke("acquire", &e));
        self.enforced("acquire", decision)
    }

    /// One charge that does not wait, if the backend can.
    pub(crate) fn charge_now(&self, subject: Subject<'_>, cost: Cost) -> Option<Decision> {
        self.count(1);
        let decided = self.backend.acquire_now(subject, cost)?;
        let decision = decided.unwrap_or_else(|e| self.broke("acquire_now", &e));
        Some(self.enforced("acquire_now", decision))
    }

    pub(crate) async fn one(&self, policy: &Policy, key: &str, at: Timestamp) -> Decision {
        self.acquire(policy, key, at, Cost::ONE).await
    }

    pub(crate) async fn batch(
        &self,
        policy: &Policy,
        key: &str,
        at: Timestamp,
        costs: &[Cost],
    ) -> Vec<Decision> {
        self.count(1);
        let key = Key::from(key);
        let subject = Subject::new(policy, &key).at(at);
        let decided = self.backend.acquire_batch(subject, costs).await;
        decided.unwrap_or_else(|e| self.broke("acquire_batch", &e))
    }

    pub(crate) async fn peek(
        &self,
        policy: &Policy,
        key: &str,
        at: Timestamp,
        cost: Cost,
    ) -> Decision {
        self.count(1);
        let key = Key::from(key);
        let subject = Subject::new(policy, &key).at(at);
        let decided = self.backend.peek(subject, cost).await;
        self.enforced("peek", decided.unwrap_or_else(|e| self.broke("peek", &e)))
    }

    pub(crate) async fn refund(
        &self,
        policy: &Policy,
        key: &str,
        at: Timestamp,
        refund: Refund,
    ) -> Decision {
        self.count(1);
        let key = Key::from(key);
        let subject = Subject::new(policy, &key).at(at);
        let decided = self.backend.refund(subject, refund).await;
        self.enforced(
            "refund",
            decided.unwrap_or_else(|e| self.broke("refund", &e)),
        )
    }

    pub(crate) async fn reset(&self, policy: &Policy, key: &str, at: Timestamp) {
        self.count(1);
        let key = Key::from(key);
        let subject = Subject::new(policy, &key).at(at);
        let done = self.backend.reset(subject).await;
        done.unwrap_or_else(|e| self.broke("reset", &e));
    }

    fn enforced(&self, call: &str, decision: Decision) -> Decision {
        assert!(
            decision.origin().is_enforced(),
            "{call} on {}: nobody counted ({:?})",
            self.backend,
            decision.origin()
        );
        decision
    }

    fn broke(&self, call: &str, error: &tollgate_core::BackendError) -> ! {
        panic!("{call} on {} failed: {error:?}", self.backend)
    }

    /// Panics unless two decisions are the same as far as this backend promises.
    pub(crate) fn assert_same(
        &self,
        got: &Decision,
        right: &Decision,
        what: &dyn std::fmt::Display,
    ) {
        let same = if self.options.remembers_refusals {
            got.allowed() == right.allowed()
                && got.granted() == right.granted()
                && waits_at_least(got, right)
        } else {
            got.allowed() == right.allowed()
                && got.granted() == right.granted()
                && got.retry_after() == right.retry_after()
                && got.quotas() == right.quotas()
        };
        assert!(
            same,
            "{what} (seed {}): got {got:#?}\nwhere the right answer is {right:#?}",
            self.seed
        );
    }
}

/// Whether a refusal's wait is no shorter than the true one, and "never" only where that is true.
fn waits_at_least(got: &Decision, right: &Decision) -> bool {
    match (got.retry_after(), right.retry_after()) {
        (Some(got), Some(right)) => got >= right,
        (got, right) => got == right,
    }
}

/// What random cases start from: `TOLLGATE_TEST_SEED`, or always the same.
fn seed() -> u64 {
    let set = std::env::var("TOLLGATE_TEST_SEED").ok();
    set.and_then(|seed| seed.parse().ok()).unwrap_or(20_261_130)
}

/// A name for a policy that nobody else uses.
pub(crate) fn fresh_name() -> String {
    use std::hash::{BuildHasher, RandomState};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let random = RandomState::new().hash_one((std::process::id(), number));
    format!("case-{random:016x}-{number}")
}
