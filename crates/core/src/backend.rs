//! The trait that every store and every wrapper implements.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::{BackendError, Cost, Decision, Key, Policy, SharedDocuments, SharedLeases, Timestamp};

/// What a call is about: a policy, the identity it counts for, and in virtual time the time.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Which quotas.
    pub policy: &'a Policy,
    /// For whom.
    pub key: &'a Key<'a>,
    /// `None`: now, by the backend's own clock (Redis: the server's; memory: a monotonic one; else
    /// the caller's wall clock). `Some`: this moment instead, for tests, simulations and replays.
    pub at: Option<Timestamp>,
}

impl<'a> Subject<'a> {
    /// Now, by the backend's own clock.
    #[must_use]
    pub const fn new(policy: &'a Policy, key: &'a Key<'a>) -> Self {
        Self {
            policy,
            key,
            at: None,
        }
    }

    /// At this moment instead.
    #[must_use]
    pub const fn at(mut self, at: Timestamp) -> Self {
        self.at = Some(at);
        self
    }
}

/// A charge to take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    /// How much.
    pub cost: u64,
    /// When it was charged, as [`Decision::charged_at`] said.
    pub charged_at: Timestamp,
}

/// Charges on one subject that are decided in one atomic step.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// What they are about.
    pub subject: Subject<'a>,
    /// What each of them asks for, in order; one at least.
    pub costs: &'a [Cost],
}

/// A store of counters, or a wrapper around one.
///
/// # Behavior
/// - For the same sequence of calls every backend gives the same answers, to the microsecond, as
///   `docs/algorithms.md` defines them.
/// - Each call is one atomic step: whatever else runs, the result is that of some serial order.
/// - A refusal is a [`Decision`], and charges nothing. `Err` means that the store did not answer
///   properly; it says nothing about the quota, and a charge may have been made if
///   [`BackendError::may_have_charged`] says so. A backend never makes a charge twice to find out.
/// - A call that is dropped has either been charged or not; it leaves the backend usable.
/// - Several quotas are charged all or nothing.
///
/// `Display` names the backend, outside in, without any secret:
/// `Timeout(redis://127.0.0.1:6379, 50ms)`.
pub trait CounterBackend: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// Charges if every quota has room.
    fn acquire(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send;

    /// [`acquire`](Self::acquire) by a backend that never waits: one in this process answers at once,
    /// and its callers are spared a future. `None`, by default: nothing was done; ask the future.
    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        let _ = (subject, cost);
        None
    }

    /// As many single charges in this order at one moment, in one atomic step. The answers are in
    /// the same order; none for no costs.
    fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> impl Future<Output = Result<Vec<Decision>, BackendError>> + Send;

    /// `allowed` and `retry_after` as [`acquire`](Self::acquire) would answer, and the state as it
    /// is. Writes nothing.
    fn peek(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send;

    /// Gives a charge back. One that comes too late changes nothing, and none ever makes more than
    /// there was.
    fn refund(
        &self,
        subject: Subject<'_>,
        refund: Refund,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send;

    /// Forgets the key.
    fn reset(&self, subject: Subject<'_>) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// Whether the store answers. Counts nothing.
    fn ping(&self) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// Several batches in one trip to the store, each decided as
    /// [`acquire_batch`](Self::acquire_batch) would, and each a step of its own. `None` for one that
    /// this backend cannot decide in company: nothing was done for it; ask by itself. An error is
    /// that of all.
    ///
    /// Only batches of one [`merge_group`](Self::merge_group) may come together, each of another
    /// record. By default none is decided.
    fn acquire_many(
        &self,
        batches: &[Batch<'_>],
    ) -> impl Future<Output = Result<Vec<Option<Vec<Decision>>>, BackendError>> + Send {
        let none = batches.iter().map(|_| None).collect();
        std::future::ready(Ok(none))
    }

    /// Charges of the same group may share a trip by [`acquire_many`](Self::acquire_many). `None`,
    /// by default: one on this subject shares a trip with those on the same subject only.
    fn merge_group(&self, subject: Subject<'_>) -> Option<u64> {
        let _ = subject;
        None
    }

    /// Whether a trip costs so much that concurrent charges should share one unless somebody says
    /// otherwise. By default not.
    fn prefers_coalescing(&self) -> bool {
        false
    }

    /// Whether this store can count the policy at all; asked once, when a limiter is given the
    /// policy, so that what would always fail does so at start. By default it can.
    ///
    /// # Errors
    /// What it cannot hold, and what it could instead.
    fn accepts(&self, policy: &Policy) -> Result<(), BackendError> {
        let _ = policy;
        Ok(())
    }

    /// The store as one of leases, if it can hold them. `None`, by default: it cannot, and neither
    /// can a wrapper, through which nothing but counting goes.
    fn leases(self: Arc<Self>) -> Option<SharedLeases>
    where
        Self: Sized,
    {
        None
    }

    /// The store as one of documents, if it can keep them. `None`, by default: it cannot, and neither
    /// can a wrapper.
    fn documents(self: Arc<Self>) -> Option<SharedDocuments>
    where
        Self: Sized,
    {
        None
    }

    /// What an operator should know about the store although it works: settings that put counters
    /// at risk, such as an eviction policy that drops them. One sentence each; a health report
    /// shows them.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
