//! The wrapper that answers when the store does not.

mod rules;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate_core::{
    BackendError, Batch, Cost, CounterBackend, Decision, Origin, Policy, Refund, SharedDocuments,
    SharedLeases, Subject,
};
use tollgate_memory::MemoryBackend;

use crate::FailurePolicy;
use crate::monitor::Monitor;
use crate::time::wall_clock;
use rules::Rules;

/// How soon a caller may come back whom nobody could answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Answers charges and peeks by a [`FailurePolicy`] when the backend inside does not answer.
///
/// # Behavior
/// - `Open` admits, with [`Origin::FailOpen`]. No quota speaks, so `remaining` is `None`.
/// - `Closed` refuses, with [`Origin::FailClosed`] and a wait of a second or more.
/// - `Local` counts in this process, with [`Origin::LocalFallback`]. What it counted stays here: once
///   the store is back, the store decides.
/// - A policy can have a rule of its own ([`set_rule`](Self::set_rule)).
/// - A peek is answered likewise, and is not counted among the unenforced decisions.
/// - Nobody but the store can give back or forget what it counted, so its error is what a refund or
///   a reset answers. A reset also clears what was counted here, whatever the store answers.
/// - `ping` says how the store is, without any fallback.
///
/// Place it outside of [`CircuitBreaker`](crate::CircuitBreaker):
/// `Fallback(CircuitBreaker(Timeout(redis)), open)`. Inside, it would hide every failure from the
/// breaker. [`Tiered`](crate::Tiered) goes around it.
///
/// ```
/// use tollgate::{CounterBackend, FailurePolicy, Fallback};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = Fallback::new(tollgate::connect("memory://").await?, FailurePolicy::Open);
/// backend.set_rule("login", FailurePolicy::Closed);
/// assert_eq!(backend.rule("login"), FailurePolicy::Closed);
/// assert_eq!(backend.rule("search"), FailurePolicy::Open);
/// backend.ping().await?;
/// # Ok(())
/// # }
/// ```
pub struct Fallback<B> {
    inner: B,
    rules: Rules,
    local: OnceLock<MemoryBackend>,
    retry_after: Duration,
    monitor: Arc<Monitor>,
}

impl<B> Fallback<B> {
    /// Answers for `inner` by `policy`, unless a rule says otherwise.
    pub fn new(inner: B, policy: FailurePolicy) -> Self {
        let monitor = Arc::new(Monitor::new("default", policy));
        Self::reporting(inner, policy, "default", monitor)
    }

    pub(crate) fn reporting(
        inner: B,
        policy: FailurePolicy,
        limiter: &str,
        monitor: Arc<Monitor>,
    ) -> Self {
        let fallback = Self {
            inner,
            rules: Rules::new(policy, limiter),
            local: OnceLock::new(),
            retry_after: RETRY_AFTER,
            monitor,
        };
        fallback.prepare(policy);
        fallback
    }

    /// Makes the local backend before it is needed: it takes some milliseconds, which no caller
    /// should wait for when the store has just failed.
    fn prepare(&self, policy: FailurePolicy) {
        if policy == FailurePolicy::Local {
            self.local();
        }
    }

    /// The wait that a closed answer names: as long as the breaker stays open; at least a second.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = wait.max(RETRY_AFTER);
        self
    }

    /// What is answered for the policy of this name. It holds from the next failure on; the names
    /// must come from configuration, since each is kept.
    pub fn set_rule(&self, policy: &str, rule: FailurePolicy) {
        self.prepare(rule);
        self.rules.set(policy, rule);
    }

    /// What is answered for the policy of this name.
    pub fn rule(&self, policy: &str) -> FailurePolicy {
        self.rules.get(policy)
    }

    /// Whether the backend inside answered the last time it was asked.
    pub fn enforcing(&self) -> bool {
        self.monitor.enforcing()
    }

    /// How many decisions were not the backend's, since the start.
    pub fn unenforced(&self) -> u64 {
        self.monitor.unenforced()
    }

    /// The backend inside.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// The backend inside.
    pub fn into_inner(self) -> B {
        self.inner
    }

    /// What this process counts by itself.
    pub(crate) fn local(&self) -> &MemoryBackend {
        self.local.get_or_init(MemoryBackend::default)
    }

    pub(crate) const fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Reports that something was not decided by the store, and says what is answered for it.
    #[cold]
    pub(crate) fn unenforced_by(&self, name: &str, error: &BackendError) -> FailurePolicy {
        self.monitor.failed(error, 1);
        self.rules.count(name, error, 1)
    }

    fn heard<T>(&self, answer: Result<T, BackendError>, decisions: u64) -> Result<T, BackendError> {
        match &answer {
            Ok(_) => self.monitor.answered(),
            Err(error) => self.monitor.failed(error, decisions),
        }
        answer
    }

    fn refused(&self, subject: Subject<'_>) -> Decision {
        Decision::unenforced(
            Origin::FailClosed,
            false,
            0,
            Some(self.retry_after),
            subject.at.unwrap_or_else(wall_clock),
        )
    }
}

impl<B> Fallback<B> {
    /// The answer for one charge. Reports it.
    #[cold]
    fn instead(
        &self,
        subject: Subject<'_>,
        cost: Cost,
        error: &BackendError,
    ) -> Result<Decision, BackendError> {
        match self.unenforced_by(subject.policy.name(), error) {
            FailurePolicy::Open => Ok(admitted(subject, cost)),
            FailurePolicy::Closed => Ok(self.refused(subject)),
            FailurePolicy::Local => at_once(self.local().acquire(subject, cost)).map(locally),
        }
    }
}

/// The answer of the memory backend, whose futures are ready at once: no need to keep room for one
/// in every call to the store.
fn at_once<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the memory backend never waits"),
    }
}

/// As much as the policy can ever grant; the least that was asked for in any case.
fn admitted(subject: Subject<'_>, cost: Cost) -> Decision {
    let granted = cost.max().min(subject.policy.capacity()).max(cost.min());
    waved_through(subject, granted)
}

fn waved_through(subject: Subject<'_>, granted: u64) -> Decision {
    Decision::unenforced(
        Origin::FailOpen,
        true,
        granted,
        None,
        subject.at.unwrap_or_else(wall_clock),
    )
}

fn locally(decision: Decision) -> Decision {
    decision.with_origin(Origin::LocalFallback)
}

#[deny(clippy::missing_trait_methods)]
impl<B: CounterBackend> CounterBackend for Fallback<B> {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        match self.inner.acquire(subject, cost).await {
            Ok(decision) => {
                self.monitor.answered();
                Ok(decision)
            }
            Err(error) => self.instead(subject, cost, &error),
        }
    }

    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        let answer = self.inner.acquire_now(subject, cost);
        match &answer {
            Some(Ok(_)) => self.monitor.answered(),
            Some(Err(error)) => return Some(self.instead(subject, cost, error)),
            None => {}
        }
        answer
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        let decisions = costs.len() as u64;
        let error = match self.heard(self.inner.acquire_batch(subject, costs).await, decisions) {
            Ok(answers) => return Ok(answers),
            Err(error) => error,
        };
        match self.rules.count(subject.policy.name(), &error, decisions) {
            FailurePolicy::Open => Ok(costs.iter().map(|cost| admitted(subject, *cost)).collect()),
            FailurePolicy::Closed => Ok(costs.iter().map(|_| self.refused(subject)).collect()),
            FailurePolicy::Local => at_once(self.local().acquire_batch(subject, costs))
                .map(|answers| answers.into_iter().map(locally).collect()),
        }
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        if let Ok(decision) = self.heard(self.inner.peek(subject, cost).await, 0) {
            return Ok(decision);
        }
        match self.rules.get(subject.policy.name()) {
            FailurePolicy::Open => Ok(waved_through(subject, 0)),
            FailurePolicy::Closed => Ok(self.refused(subject)),
            FailurePolicy::Local => at_once(self.local().peek(subject, cost)).map(locally),
        }
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        self.heard(self.inner.refund(subject, refund).await, 0)
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        if let Some(local) = self.local.get() {
            at_once(local.reset(subject))?;
        }
        self.heard(self.inner.reset(subject).await, 0)
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.heard(self.inner.ping().await, 0)
    }

    /// None here: each policy fails in its own way.
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

impl<B: fmt::Debug> fmt::Debug for Fallback<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("inner", &self.inner)
            .field("policy", &self.rules.default_rule())
            .field("monitor", &self.monitor)
            .finish()
    }
}

impl<B: fmt::Display> fmt::Display for Fallback<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fallback({}, {})", self.inner, self.rules.default_rule())
    }
}
