//! The suite of leases: the simplest store passes it, and each store that is wrong in one way is
//! noticed by the case that is named.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tollgate_core::{BackendError, Key, LeaseAnswer, LeaseBackend, LeaseSubject};
use tollgate_testkit::conformance::{LeaseLab, lease_cases as cases, run};
use tollgate_testkit::{MapLeases, lease_conformance};

lease_conformance!(map, MapLeases::default());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    OneTooMany,
    ATenthTooLong,
    RenewalRevives,
    AnyoneReleases,
    SecondReleaseLies,
    FullForWhoIsIn,
    FenceStands,
    OneKeyForAll,
    OneNameForAll,
    AtMostAHundred,
    CutsHolders,
}

#[derive(Debug)]
struct Wrong {
    inner: MapLeases,
    fault: Fault,
}

impl Wrong {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// The slots that it counts instead.
    async fn on<T>(
        &self,
        subject: LeaseSubject<'_>,
        f: impl AsyncFnOnce(LeaseSubject<'_>) -> T,
    ) -> T {
        let one = Key::from("one");
        f(LeaseSubject {
            name: if self.is(Fault::OneNameForAll) {
                "one"
            } else {
                subject.name
            },
            key: if self.is(Fault::OneKeyForAll) {
                &one
            } else {
                subject.key
            },
            at: subject.at,
        })
        .await
    }

    fn holder<'a>(&self, holder: &'a str) -> &'a str {
        if self.is(Fault::CutsHolders) {
            holder.get(..10).unwrap_or(holder)
        } else {
            holder
        }
    }

    fn ttl(&self, ttl: Duration) -> Duration {
        if self.is(Fault::ATenthTooLong) {
            ttl + ttl / 10
        } else {
            ttl
        }
    }
}

impl LeaseBackend for Wrong {
    async fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        let slots = match self.fault {
            Fault::OneTooMany => slots.saturating_add(1),
            Fault::AtMostAHundred => slots.min(NonZeroU32::MIN.saturating_add(99)),
            _ => slots,
        };
        self.on(subject, async |subject| {
            if self.is(Fault::FullForWhoIsIn) {
                let in_use = self.inner.in_use(subject).await?;
                if in_use >= slots.get() {
                    return Ok(LeaseAnswer {
                        ok: false,
                        in_use,
                        fence: None,
                    });
                }
            }
            let (holder, ttl) = (self.holder(holder), self.ttl(ttl));
            let mut answer = self.inner.acquire(subject, holder, slots, ttl).await?;
            if self.is(Fault::FenceStands) {
                answer.fence = answer.fence.map(|_| 1_700_000_000_000_000);
            }
            Ok(answer)
        })
        .await
    }

    async fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.on(subject, async |subject| {
            let (holder, ttl) = (self.holder(holder), self.ttl(ttl));
            if self.is(Fault::RenewalRevives) {
                let answer = self
                    .inner
                    .acquire(subject, holder, NonZeroU32::MAX, ttl)
                    .await?;
                return Ok(LeaseAnswer {
                    fence: None,
                    ..answer
                });
            }
            self.inner.renew(subject, holder, ttl).await
        })
        .await
    }

    async fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError> {
        self.on(subject, async |subject| {
            let answer = self.inner.release(subject, self.holder(holder)).await?;
            Ok(match self.fault {
                Fault::AnyoneReleases if !answer.ok => self.inner.release(subject, "a").await?,
                Fault::SecondReleaseLies => LeaseAnswer { ok: true, ..answer },
                _ => answer,
            })
        })
        .await
    }

    async fn in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError> {
        self.on(subject, async |subject| self.inner.in_use(subject).await)
            .await
    }
}

/// Runs a case, as the macro does, and says whether it passed.
macro_rules! passes {
    ($fault:expr, $case:ident) => {{
        let inner = MapLeases::default();
        let fault = $fault;
        let lab = LeaseLab::new(Wrong { inner, fault });
        catch_unwind(AssertUnwindSafe(|| run(cases::$case(&lab)))).is_ok()
    }};
}

macro_rules! noticed {
    ($($test:ident: $fault:ident by $($case:ident)+;)*) => { $(
        #[test]
        fn $test() {
            $(
                assert!(passes!(Fault::None, $case), "{} fails a right store", stringify!($case));
                assert!(!passes!(Fault::$fault, $case), "{} does not notice", stringify!($case));
            )+
        }
    )* };
}

noticed! {
    one_slot_too_many: OneTooMany by vectors_leases every_call_agrees_with_the_model
        a_full_limit_admits_who_is_in never_more_than_the_slots_at_once;
    a_slot_held_too_long: ATenthTooLong by out_at_the_very_microsecond vectors_leases;
    a_renewal_that_revives: RenewalRevives by a_holder_that_was_late_disturbs_nobody
        out_at_the_very_microsecond;
    a_release_by_anyone: AnyoneReleases by a_foreign_release_frees_nothing;
    a_second_release_that_says_yes: SecondReleaseLies by a_second_release_frees_nothing;
    a_full_limit_that_shuts_out_who_is_in: FullForWhoIsIn by a_full_limit_admits_who_is_in;
    a_number_that_stands_still: FenceStands by fences_only_grow;
    one_key_for_all: OneKeyForAll by limits_and_keys_are_kept_apart;
    one_name_for_all: OneNameForAll by limits_and_keys_are_kept_apart;
    at_most_a_hundred: AtMostAHundred by many_slots_are_no_special_case;
    a_holder_that_is_cut: CutsHolders by long_holders_are_told_apart;
}
