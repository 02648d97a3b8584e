//! Where slots are: in the store, behind the limiter's timeout and breaker, or in this process.

use std::num::NonZeroU32;

use tollgate_core::{BackendError, Key, LeaseAnswer, LeaseBackend, LeaseSubject, SharedLeases};

use super::Inner;
use super::lease::Lease;
use crate::{FailurePolicy, Limiter};

/// Where a slot is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the store, for all processes.
    Store,
    /// In this process, because the store did not answer.
    Here,
}

/// The store's slots.
pub(super) struct Slots(SharedLeases);

impl Slots {
    /// `None` if the store cannot hold any.
    pub(super) fn of(limiter: &Limiter) -> Option<Self> {
        limiter.backend().leases().map(Self)
    }

    /// Whether it can hold so many of a key.
    pub(super) fn accepts(&self, slots: NonZeroU32) -> Result<(), BackendError> {
        self.0.accepts_slots(slots)
    }

    /// Takes one in the store.
    pub(super) async fn acquire(&self, lease: &Lease) -> Result<LeaseAnswer, BackendError> {
        let of = &lease.of;
        let subject = subject(of, &lease.key);
        let call = self.0.acquire(subject, &lease.holder, of.slots, of.ttl);
        of.limiter.guarded(call).await
    }

    /// Renews it.
    pub(super) async fn renew(&self, lease: &Lease) -> Result<LeaseAnswer, BackendError> {
        let of = &lease.of;
        let call = self.0.renew(subject(of, &lease.key), &lease.holder, of.ttl);
        of.limiter.guarded(call).await
    }

    /// Releases where it is held; whether it still was.
    pub(super) async fn release(&self, lease: &Lease) -> Result<bool, BackendError> {
        let of = &lease.of;
        let released = match lease.place() {
            Place::Store => {
                let call = self.0.release(subject(of, &lease.key), &lease.holder);
                of.limiter.guarded(call).await?.ok
            }
            // The registry is the only place where it was.
            Place::Here => true,
        };
        if released {
            of.waiters.freed(&lease.key);
        }
        Ok(released)
    }

    pub(super) async fn in_use(&self, of: &Inner, key: &Key<'_>) -> Result<u32, BackendError> {
        of.limiter.guarded(self.0.in_use(subject(of, key))).await
    }

    /// Reports that the store did not answer, and says whether slots are counted here meanwhile.
    pub(super) fn counts_here(&self, of: &Inner, error: &BackendError) -> bool {
        of.limiter.fallback().unenforced_by(&of.rule, error) != FailurePolicy::Closed
    }
}

fn subject<'a>(of: &'a Inner, key: &'a Key<'a>) -> LeaseSubject<'a> {
    LeaseSubject {
        name: &of.name,
        key,
        at: of.limiter.virtual_now(),
    }
}
