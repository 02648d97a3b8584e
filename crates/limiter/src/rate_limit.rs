//! One policy of a limiter, ready to be asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{CounterBackend, Decision, Key, Origin, Policy, Refund};

use crate::metering::Decisions;
use crate::{Acquire, Error, FailurePolicy, Hit, Limiter, Peek, wait};

/// One policy of a [`Limiter`], ready to be asked.
///
/// Cheap to clone; clones share their counters, as do all handles of the same name.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
/// let login = limiter.policy("login", [Quota::sliding_window(5, Duration::from_secs(900))?])?;
///
/// let decision = login.acquire("alice").cost(5).await?;
/// assert!(decision.allowed());
/// let refused = login.acquire("alice").await?;
/// assert!(!refused.allowed() && refused.retry_after().is_some());
///
/// // The login was right: give it back.
/// login.refund("alice", &decision).await?;
/// assert_eq!(login.peek("alice").await?.remaining(), Some(5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RateLimit {
    limiter: Limiter,
    registered: Arc<Registered>,
}

/// A policy as a limiter knows it.
pub(crate) struct Registered {
    policy: Policy,
    decisions: Decisions,
}

impl Registered {
    pub(crate) fn new(limiter: &str, policy: Policy) -> Self {
        let decisions = Decisions::new(limiter, policy.name());
        Self { policy, decisions }
    }

    pub(crate) const fn policy(&self) -> &Policy {
        &self.policy
    }
}

impl RateLimit {
    pub(crate) const fn new(limiter: Limiter, registered: Arc<Registered>) -> Self {
        Self {
            limiter,
            registered,
        }
    }

    /// Charges one, or what [`Acquire::cost`] and [`Acquire::up_to`] say. Await it.
    ///
    /// # Errors
    /// [`Error::Cost`] for a cost of 0, or above the capacity of the policy. A store that does not
    /// answer is no error: the failure policy decides.
    ///
    /// # Cancellation
    /// A call that is dropped has charged, or it has not.
    pub fn acquire<'a>(&'a self, key: impl Into<Key<'a>>) -> Acquire<'a> {
        Acquire::new(self, key.into())
    }

    /// Counts one, or what [`Hit::cost`] says: nothing to wait for, or how long. Await it.
    ///
    /// For whatever comes in numbers: messages of a WebSocket, attempts, jobs.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancellation
    /// A call that is dropped has counted, or it has not.
    pub fn hit<'a>(&'a self, key: impl Into<Key<'a>>) -> Hit<'a> {
        Hit::new(self.acquire(key))
    }

    /// Asks what a charge of one would be answered, or of [`Peek::cost`], and what is there now.
    /// Charges nothing. Await it.
    ///
    /// # Errors
    /// [`Error::Cost`] for a cost of 0. One above the capacity is answered: never.
    pub fn peek<'a>(&'a self, key: impl Into<Key<'a>>) -> Peek<'a> {
        Peek::new(self, key.into())
    }

    /// Charges `cost`, waiting up to `max_wait` until it fits.
    ///
    /// Each time it is refused it sleeps for as long as the refusal says, and asks again. A refusal
    /// that names a longer wait than is left, or none, is the answer, at once. Nothing is reserved
    /// meanwhile: waiters are served in no certain order, and one that gives up has taken nothing.
    ///
    /// It sleeps in the time of the runtime also where decisions are made in virtual time: move the
    /// clock while it sleeps, or pause the runtime's and move both.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), before any waiting.
    ///
    /// # Cancellation
    /// A call that is dropped while it sleeps has charged nothing.
    pub async fn acquire_wait<'a>(
        &'a self,
        key: impl Into<Key<'a>> + Send,
        cost: u64,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        let key = key.into();
        wait::acquire(self, &key, cost, max_wait).await
    }

    /// Gives a charge back where it was charged: in the store, or, for one that this process counted
    /// by itself, here. What was not charged (a refusal, an answer of fail-open) is not given back;
    /// the answer then has the origin of the decision.
    ///
    /// # Errors
    /// [`Error::Backend`] when the store does not answer: the refund is then lost, or made; it is
    /// not tried again.
    pub async fn refund<'a>(
        &'a self,
        key: impl Into<Key<'a>> + Send,
        decision: &Decision,
    ) -> Result<Decision, Error> {
        self.refund_some(&key.into(), decision, decision.granted())
            .await
    }

    /// Gives `cost` of a charge back.
    pub(crate) async fn refund_some(
        &self,
        key: &Key<'_>,
        decision: &Decision,
        cost: u64,
    ) -> Result<Decision, Error> {
        let subject = self.limiter.subject(self.policy(), key);
        let refund = Refund {
            cost: cost.min(decision.granted()),
            charged_at: decision.charged_at(),
        };
        let refunded = match decision.origin() {
            Origin::Shared if refund.cost > 0 => {
                self.limiter.0.stack.refund(subject, refund).await?
            }
            Origin::LocalFallback if refund.cost > 0 => {
                let local = self.limiter.fallback().local();
                let refunded = local.refund(subject, refund).await?;
                refunded.with_origin(Origin::LocalFallback)
            }
            origin => Decision::unenforced(origin, true, 0, None, decision.charged_at()),
        };
        Ok(refunded)
    }

    /// Forgets what an identity has used.
    ///
    /// # Errors
    /// [`Error::Backend`] when the store does not answer: it may then still count.
    pub async fn reset<'a>(&'a self, key: impl Into<Key<'a>> + Send) -> Result<(), Error> {
        let key = key.into();
        let subject = self.limiter.subject(self.policy(), &key);
        Ok(self.limiter.0.stack.reset(subject).await?)
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        self.registered.policy()
    }

    /// The name of the policy.
    #[must_use]
    pub fn name(&self) -> &str {
        self.policy().name()
    }

    /// What is answered when the store does not answer.
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.limiter.fallback().rule(self.name())
    }

    /// The limiter it belongs to.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Counts a decision in the metrics, and tells whoever traces. Never with the identity.
    pub(crate) fn made(&self, decision: &Decision) {
        self.registered.decisions.count(decision);
        tracing::trace!(
            policy = self.name(),
            allowed = decision.allowed(),
            granted = decision.granted(),
            origin = decision.origin().as_str(),
            "decided"
        );
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("policy", self.policy())
            .field("limiter", &self.limiter)
            .finish()
    }
}
