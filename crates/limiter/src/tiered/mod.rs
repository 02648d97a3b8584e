//! The wrapper that remembers refusals, so that a flood of them does not reach the store.

mod answer;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{
    BackendError, Batch, Cost, CounterBackend, Decision, Origin, Policy, Refund, SharedDocuments,
    SharedLeases, Subject,
};

pub(crate) use table::{Asked, Recall};
use table::{Moment, Table};

/// Remembers refusals of the backend inside until the moment something fits again.
///
/// # Behavior
/// - Counters are kept only inside. What is remembered is that a cost was refused, and until when:
///   until then this cost and larger ones are refused here, with [`Origin::RememberedRefusal`] and a
///   `retry_after` counted down; a smaller cost is asked inside. At that moment all are asked inside.
/// - A remembered answer is that of the moment it was made: `retry_after` is never earlier than it
///   would be if nobody else came. For a larger cost than the one that was refused it may be later
///   than the true one, and `remaining` does not grow before the refusal ends.
/// - An admitted charge, a refund or a reset through this wrapper drops what is remembered of the
///   key, and other quotas under the name of the policy do not know it. One of *another* process is
///   noticed only at that moment, or after [`for_at_most`](Self::for_at_most);
///   [`forget`](Self::forget) is for those who hear of it by other means.
/// - A peek is answered by what is remembered too.
/// - It stays true while the store is down, and also answers when others are admitted by
///   [`FailurePolicy::Open`](crate::FailurePolicy): the store decided it, for a moment that has not
///   come yet. A store that lost its counters meanwhile would decide otherwise.
/// - Only what the store itself decided is remembered, never the answer of a fallback.
/// - Bounded: of too many, those that end soonest are dropped, and asked for inside again. Identities
///   are kept as seeded 128-bit hashes only.
///
/// Place it outermost: `Tiered(Fallback(CircuitBreaker(Timeout(redis))))`. Inside of the others it
/// works too, but each refusal would pay for them.
///
/// ```
/// use tollgate::{Cost, CounterBackend, Key, Origin, Policy, Quota, Subject, Tiered};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = Tiered::new(tollgate::connect("memory://").await?, 100_000);
/// let policy = Policy::new("search", Quota::parse_list("1/h")?)?;
/// let key = Key::from("alice");
/// let subject = Subject::new(&policy, &key);
/// let mut origins = Vec::new();
/// for _ in 0..3 {
///     origins.push(backend.acquire(subject, Cost::ONE).await?.origin());
/// }
/// assert_eq!(origins, [Origin::Shared, Origin::Shared, Origin::RememberedRefusal]);
/// backend.forget();
/// assert_eq!(backend.remembered(), 0);
/// # Ok(())
/// # }
/// ```
pub struct Tiered<B> {
    inner: B,
    table: Table,
}

impl<B> Tiered<B> {
    /// Remembers up to `max` refusals of `inner`; none if it is 0.
    pub fn new(inner: B, max: usize) -> Self {
        Self {
            inner,
            table: Table::new(max),
        }
    }

    /// Remembers no refusal for longer than this, so that a reset, a refund or a lost counter is
    /// noticed by then, whoever made it. A client that keeps asking then costs the store one call
    /// each time. Default: until something fits again. Nothing is remembered if it is zero.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Tiered;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = tollgate::connect("memory://").await?;
    /// let backend = Tiered::new(store, 1_000).for_at_most(Duration::from_secs(1));
    /// assert!(backend.to_string().ends_with(", 1000, 1s)"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn for_at_most(mut self, limit: Duration) -> Self {
        self.table.set_longest(limit);
        self
    }

    /// Drops everything that is remembered. Counters are not touched.
    pub fn forget(&self) {
        self.table.clear();
    }

    /// How many refusals are remembered, ended ones that were not yet dropped included.
    pub fn remembered(&self) -> usize {
        self.table.len()
    }

    /// The backend inside.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// The backend inside.
    pub fn into_inner(self) -> B {
        self.inner
    }

    /// What is remembered of this cost or a smaller one.
    pub(crate) fn recall(&self, subject: Subject<'_>, cost: Cost) -> Recall {
        self.table
            .recall(subject, cost.min(), |refused| cost.min() >= refused)
    }

    /// Like [`recall`](Self::recall), but only for the very cost that was refused, whose wait is the
    /// true one.
    fn recall_exactly(&self, subject: Subject<'_>, cost: Cost) -> Recall {
        self.table
            .recall(subject, cost.min(), |refused| cost.min() == refused)
    }

    /// What came of asking inside.
    fn learned(
        &self,
        subject: Subject<'_>,
        cost: Cost,
        asked: Asked,
        answer: Result<Decision, BackendError>,
    ) -> Result<Decision, BackendError> {
        if let Ok(decision) = &answer {
            self.learn(subject, cost, asked, decision);
        }
        answer
    }

    fn learn(&self, subject: Subject<'_>, cost: Cost, asked: Asked, decision: &Decision) {
        if decision.origin() != Origin::Shared {
            return;
        }
        if !decision.allowed() {
            self.table.remember(subject, cost.min(), asked, decision);
        } else if asked.refused_more && decision.granted() > 0 {
            self.table.remove(subject);
        }
    }
}

impl<B: CounterBackend> Tiered<B> {
    /// [`acquire`](CounterBackend::acquire) once nothing was recalled.
    pub(crate) async fn ask(
        &self,
        subject: Subject<'_>,
        cost: Cost,
        asked: Asked,
    ) -> Result<Decision, BackendError> {
        let answer = self.inner.acquire(subject, cost).await;
        self.learned(subject, cost, asked, answer)
    }

    /// [`acquire_now`](CounterBackend::acquire_now) once nothing was recalled.
    pub(crate) fn ask_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
        asked: Asked,
    ) -> Option<Result<Decision, BackendError>> {
        let answer = self.inner.acquire_now(subject, cost);
        if let Some(Ok(decision)) = &answer {
            self.learn(subject, cost, asked, decision);
        }
        answer
    }

    /// [`acquire`](CounterBackend::acquire) for a caller who will sleep for as long as it says, and
    /// so must not be told a longer wait than the true one.
    pub(crate) async fn acquire_exactly(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Result<Decision, BackendError> {
        match self.recall_exactly(subject, cost) {
            Recall::Refused(decision) => Ok(decision),
            Recall::Ask(asked) => self.ask(subject, cost, asked).await,
        }
    }
}

/// Drops what is remembered of a key when the call that changes it ends, however it ends: a refund
/// or a reset whose answer was lost, or that was dropped, may have been made.
struct Dropping<'a>(&'a Table, Subject<'a>);

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        self.0.invalidate(self.1);
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: CounterBackend> CounterBackend for Tiered<B> {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        match self.recall(subject, cost) {
            Recall::Refused(decision) => Ok(decision),
            // As `ask` does, in place: a future inside a future takes its room twice.
            Recall::Ask(asked) => {
                let answer = self.inner.acquire(subject, cost).await;
                self.learned(subject, cost, asked, answer)
            }
        }
    }

    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        match self.recall(subject, cost) {
            Recall::Refused(decision) => Some(Ok(decision)),
            Recall::Ask(asked) => self.ask_now(subject, cost, asked),
        }
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        let mut refusals = Vec::new();
        let mut asked = self.table.asking();
        // The smallest first: if it is refused, all are.
        if let Some(least) = costs.iter().min_by_key(|cost| cost.min()) {
            match self.recall(subject, *least) {
                Recall::Ask(now) => asked = now,
                Recall::Refused(_) => {
                    for cost in costs {
                        match self.recall(subject, *cost) {
                            Recall::Refused(decision) => refusals.push(decision),
                            Recall::Ask(now) => asked = now,
                        }
                    }
                    if refusals.len() == costs.len() {
                        return Ok(refusals);
                    }
                }
            }
        }
        let decisions = self.inner.acquire_batch(subject, costs).await?;
        for (cost, decision) in costs.iter().zip(&decisions) {
            self.learn(subject, *cost, asked, decision);
        }
        Ok(decisions)
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        let asked = match self.recall(subject, cost) {
            Recall::Refused(decision) => return Ok(decision),
            Recall::Ask(asked) => asked,
        };
        let decision = self.inner.peek(subject, cost).await?;
        self.learn(subject, cost, asked, &decision);
        Ok(decision)
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        let _dropping = Dropping(&self.table, subject);
        self.inner.refund(subject, refund).await
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        let _dropping = Dropping(&self.table, subject);
        self.inner.reset(subject).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.inner.ping().await
    }

    /// None here: each charge may be answered from memory.
    async fn acquire_many(
        &self,
        batches: &[Batch<'_>],
    ) -> Result<Vec<Option<Vec<Decision>>>, BackendError> {
        Ok(batches.iter().map(|_| None).collect())
    }

    fn merge_group(&self, _: Subject<'_>) -> Option<u64> {
        None
    }

    fn prefers_coalescing(&self) -> bool {
        self.inner.prefers_coalescing()
    }

    fn accepts(&self, policy: &Policy) -> Result<(), BackendError> {
        self.inner.accepts(policy)
    }

    /// None: only counting goes through here.
    fn leases(self: Arc<Self>) -> Option<SharedLeases> {
        None
    }

    fn documents(self: Arc<Self>) -> Option<SharedDocuments> {
        None
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }
}

impl<B: fmt::Debug> fmt::Debug for Tiered<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tiered")
            .field("inner", &self.inner)
            .field("remembered", &self.remembered())
            .field("max", &self.table.max())
            .field("longest", &self.table.longest())
            .finish()
    }
}

impl<B: fmt::Display> fmt::Display for Tiered<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tiered({}, {}", self.inner, self.table.max())?;
        match self.table.longest() {
            Some(limit) => write!(f, ", {limit:?})"),
            None => f.write_str(")"),
        }
    }
}

fn moment(subject: Subject<'_>, clock: impl FnOnce() -> u64) -> Moment {
    match subject.at {
        Some(at) => Moment {
            virtual_time: true,
            micros: at.as_micros(),
        },
        None => Moment {
            virtual_time: false,
            micros: clock(),
        },
    }
}
