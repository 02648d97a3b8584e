//! A suite that nobody can fail proves nothing: here each backend is wrong in one way, and the case
//! that is named has to notice.

#![expect(
    clippy::unwrap_used,
    reason = "what a test builds is right, or the test fails"
)]

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};
use std::time::Duration;

use tollgate_core::{
    Algorithm, BackendError, CasBackend, Cost, CounterBackend, Decision, Key, Origin, Policy,
    Quota, QuotaAnswer, Refund, StateStore, Subject, Versioned,
};
use tollgate_testkit::MapStore;
use tollgate_testkit::conformance::{Lab, Options, cases, run};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    OneTooMany,
    WaitsTooShort,
    WaitsTooLong,
    NeverSaysNever,
    MoreTooEarly,
    RefundsDouble,
    RefundsWhenever,
    PeekCharges,
    RefusalCharges,
    BatchOutOfOrder,
    ResetDoesNothing,
    OnePolicyForAll,
    CutsKeys,
    ForgetsTheSecondQuota,
    IgnoresTheMaximum,
    NewLimitStartsAnew,
    OldClockRefills,
    ChargesAndSaysNothing,
    FailsOpen,
}

#[derive(Debug)]
struct Wrong {
    inner: CasBackend<MapStore>,
    fault: Fault,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wrong({:?})", self.fault)
    }
}

impl Wrong {
    /// The policy that it counts by instead.
    fn policy(&self, policy: &Policy) -> Policy {
        let (mut name, mut quotas) = (policy.name().to_owned(), policy.quotas().to_vec());
        match self.fault {
            Fault::OnePolicyForAll => name = "all".into(),
            Fault::NewLimitStartsAnew => name = format!("{name}{}", quotas[0].limit()),
            Fault::ForgetsTheSecondQuota => quotas.truncate(1),
            Fault::OneTooMany => {
                let one = quotas[0];
                let more = Quota::new(one.algorithm(), one.limit() + 1, one.period());
                quotas[0] = more.unwrap_or(one);
            }
            _ => {}
        }
        Policy::new(&name, quotas).unwrap()
    }

    fn answer(&self, decision: &Decision) -> Decision {
        let change = |mut answer: QuotaAnswer| {
            let wait = answer.retry_after.as_mut();
            match (self.fault, wait) {
                (Fault::WaitsTooShort, Some(wait)) => *wait -= Duration::from_micros(1),
                (Fault::WaitsTooLong, Some(wait)) => *wait += Duration::from_micros(1),
                (Fault::NeverSaysNever, None) if !answer.allowed => {
                    answer.retry_after = Some(answer.reset_after);
                }
                (Fault::MoreTooEarly, _) => answer.more_after = Some(Duration::from_micros(1)),
                _ => {}
            }
            answer
        };
        let answers = decision.quotas().iter().copied().map(change).collect();
        let changed = Decision::of(decision.charged_at(), answers);
        if self.fault == Fault::FailsOpen {
            return changed.with_origin(Origin::FailOpen);
        }
        changed
    }

    fn key<'a>(&self, key: &'a Key<'_>) -> Key<'a> {
        let bytes = key.as_bytes();
        match self.fault {
            Fault::CutsKeys => Key::from(&bytes[..bytes.len().min(250)]),
            _ => Key::from(bytes),
        }
    }
}

impl CounterBackend for Wrong {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        let (policy, key) = (self.policy(subject.policy), self.key(subject.key));
        let mut subject = Subject {
            policy: &policy,
            key: &key,
            at: subject.at,
        };
        if self.fault == Fault::OldClockRefills {
            // As if a time before the last one were a time long after it.
            subject.at = subject
                .at
                .filter(|at| at.as_micros() % 20_000_000 != 10_000_000);
        }
        let cost = match self.fault {
            Fault::IgnoresTheMaximum => Cost::range(cost.min(), u64::MAX).unwrap(),
            _ => cost,
        };
        let decision = self.inner.acquire(subject, cost).await?;
        if self.fault == Fault::RefusalCharges && !decision.allowed() {
            self.inner.acquire(subject, Cost::ONE).await?;
        }
        Ok(self.answer(&decision))
    }

    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        if self.fault == Fault::ChargesAndSaysNothing {
            // A map never waits, so one poll is all that it takes.
            let mut context = Context::from_waker(Waker::noop());
            let charge = std::pin::pin!(self.inner.acquire(subject, cost));
            assert!(charge.poll(&mut context).is_ready());
        }
        None
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        let mut costs = costs.to_vec();
        if self.fault == Fault::BatchOutOfOrder {
            costs.sort_by_key(|cost| cost.min());
        }
        let policy = self.policy(subject.policy);
        let subject = Subject {
            policy: &policy,
            ..subject
        };
        let decisions = self.inner.acquire_batch(subject, &costs).await?;
        Ok(decisions
            .iter()
            .map(|decision| self.answer(decision))
            .collect())
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        let (policy, key) = (self.policy(subject.policy), self.key(subject.key));
        let subject = Subject {
            policy: &policy,
            key: &key,
            at: subject.at,
        };
        let decision = self.inner.peek(subject, cost).await?;
        if self.fault == Fault::PeekCharges {
            self.inner.acquire(subject, Cost::ONE).await?;
        }
        Ok(self.answer(&decision))
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        mut refund: Refund,
    ) -> Result<Decision, BackendError> {
        match self.fault {
            Fault::RefundsDouble => refund.cost *= 2,
            Fault::RefundsWhenever => refund.charged_at = subject.at.unwrap_or_default(),
            _ => {}
        }
        let decision = self.inner.refund(subject, refund).await?;
        Ok(self.answer(&decision))
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        match self.fault {
            Fault::ResetDoesNothing => Ok(()),
            _ => self.inner.reset(subject).await,
        }
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.inner.ping().await
    }
}

/// Whether the case panics with this fault, and does not without.
macro_rules! notices {
    ($($test:ident: $fault:ident => $($case:ident)*;)*) => { $(
        #[test]
        fn $test() {
            $(
                let verdict = |fault| {
                    catch_unwind(AssertUnwindSafe(|| run(async {
                        let inner = CasBackend::new(MapStore::default());
                        let lab = Lab::new(Wrong { inner, fault }, Options::default());
                        cases::$case(&lab).await;
                        lab.assert_ran();
                    })))
                };
                assert!(verdict(Fault::None).is_ok(), "{} fails a right backend", stringify!($case));
                assert!(verdict(Fault::$fault).is_err(), "{} passes {:?}", stringify!($case), Fault::$fault);
            )*
        }
    )* };
}

notices! {
    a_limit_that_is_one_too_high: OneTooMany =>
        vectors_token_bucket vectors_fixed_window vectors_sliding_window vectors_sliding_log
        vectors_multi every_call_agrees_with_the_pure_steps a_log_is_never_above_its_limit_in_any_period
        a_bucket_is_never_above_its_burst_and_rate_in_any_interval a_window_is_never_above_its_limit
        of_400_concurrent_charges_exactly_100_are_admitted concurrent_ranges_grant_exactly_the_limit
        concurrent_charges_are_those_of_some_serial_order large_numbers_are_exact
        odd_keys_are_counted_apart its_own_clock_counts_too;
    a_wait_that_is_too_short: WaitsTooShort =>
        vectors_sliding_log refused_just_before_retry_after_and_admitted_at_it;
    a_wait_that_is_too_long: WaitsTooLong =>
        vectors_multi refused_just_before_retry_after_and_admitted_at_it;
    a_wait_where_none_helps: NeverSaysNever =>
        vectors_fixed_window a_cost_above_the_capacity_is_never_admitted_and_charges_nothing;
    more_that_is_not_there: MoreTooEarly => more_is_there_at_more_after_and_not_before;
    a_refund_of_more_than_was_charged: RefundsDouble =>
        vectors_token_bucket a_refund_never_makes_more_than_there_was;
    a_refund_into_another_window: RefundsWhenever =>
        vectors_fixed_window a_late_refund_gives_nothing_back;
    a_charge_that_is_not_told: ChargesAndSaysNothing => a_charge_without_a_future_is_the_same;
    a_peek_that_charges: PeekCharges =>
        vectors_sliding_window a_peek_changes_nothing_and_agrees_with_the_charge;
    a_refusal_that_charges: RefusalCharges =>
        vectors_token_bucket every_call_agrees_with_the_pure_steps
        a_cost_above_the_capacity_is_never_admitted_and_charges_nothing;
    a_batch_out_of_order: BatchOutOfOrder =>
        a_batch_is_the_same_single_charges every_call_agrees_with_the_pure_steps;
    a_reset_that_does_nothing: ResetDoesNothing => a_reset_forgets vectors_sliding_log;
    policies_that_share: OnePolicyForAll => policies_are_counted_apart;
    keys_that_are_cut: CutsKeys => odd_keys_are_counted_apart;
    a_quota_that_is_forgotten: ForgetsTheSecondQuota =>
        vectors_multi several_quotas_are_charged_all_or_nothing;
    a_maximum_that_is_ignored: IgnoresTheMaximum => a_range_of_costs_takes_what_is_there;
    a_new_limit_that_starts_anew: NewLimitStartsAnew => a_changed_quota_keeps_what_was_used;
    an_old_clock_that_refills: OldClockRefills => a_clock_back_a_little_hands_out_nothing_twice;
    an_answer_that_nobody_counted: FailsOpen => a_reset_forgets its_own_clock_counts_too;
}

/// Reads, lets others run, and writes whatever it decided.
#[derive(Debug, Default)]
struct ReadThenWrite(MapStore);

impl fmt::Display for ReadThenWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("read, then write")
    }
}

impl StateStore for ReadThenWrite {
    type Token = u64;

    async fn load(&self, key: &str) -> Result<Option<Versioned<u64>>, BackendError> {
        let found = self.0.load(key).await;
        tokio::task::yield_now().await;
        found
    }

    async fn swap(
        &self,
        key: &str,
        _expected: Option<u64>,
        value: Vec<u8>,
        ttl: Duration,
    ) -> Result<bool, BackendError> {
        let current = self.0.load(key).await?.map(|found| found.token);
        self.0.swap(key, current, value, ttl).await.map(|_| true)
    }

    async fn delete(&self, key: &str) -> Result<(), BackendError> {
        self.0.delete(key).await
    }
}

#[test]
fn b11_a_store_that_reads_then_writes_fails_the_races() {
    let raced = catch_unwind(|| {
        run(async {
            let lab = Lab::new(
                CasBackend::new(ReadThenWrite::default()),
                Options::default(),
            );
            cases::of_400_concurrent_charges_exactly_100_are_admitted(&lab).await;
        });
    });
    assert!(raced.is_err());
}

#[test]
fn a_case_that_made_no_call_is_a_failure() {
    let lab = Lab::new(CasBackend::new(MapStore::default()), Options::default());
    assert!(catch_unwind(AssertUnwindSafe(|| lab.assert_ran())).is_err());
}

/// What remembers refusals may wait longer, and may not wait shorter, nor admit or refuse otherwise.
#[test]
fn what_remembering_refusals_excuses_is_a_longer_wait_only() {
    let options = Options {
        remembers_refusals: true,
        ..Options::default()
    };
    let passes = |fault| {
        catch_unwind(AssertUnwindSafe(|| {
            run(async {
                let inner = CasBackend::new(MapStore::default());
                cases::vectors_token_bucket(&Lab::new(Wrong { inner, fault }, options)).await;
            });
        }))
        .is_ok()
    };
    assert!(passes(Fault::WaitsTooLong));
    assert!(!passes(Fault::WaitsTooShort));
    assert!(!passes(Fault::OneTooMany));
    assert!(!passes(Fault::FailsOpen));
    assert!(
        Algorithm::ALL.len() == 4,
        "a new algorithm needs cases of its own"
    );
}
