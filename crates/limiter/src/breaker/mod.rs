//! The wrapper that stops asking a store that fails.

mod cell;
mod config;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tollgate_core::{
    BackendError, Batch, Cost, CounterBackend, Decision, ErrorKind, Policy, Refund,
    SharedDocuments, SharedLeases, Subject,
};

use cell::{Cell, Outcome, Ticket};
pub use config::{Breaker, BreakerState};

/// Stops asking the backend inside once it keeps failing, and asks again, one call at a time, after
/// a cooldown.
///
/// # Behavior
/// - Closed: every call goes through. After so many failures in a row, or at such a part of failures
///   among the calls of a window, it opens.
/// - Open: every call fails at once with [`ErrorKind::CircuitOpen`], for the cooldown.
/// - Half-open: one call goes through as a probe; all others fail at once. If the probe succeeds it
///   closes, if it fails it opens for another cooldown. A probe that is dropped leaves its place to
///   the next call.
/// - A decision is a success, also a refusal. So are errors by which the store shows that it works:
///   other writers won ([`ErrorKind::Contended`]), or it was asked for what it does not do
///   ([`ErrorKind::Config`]).
/// - Calls that one broken connection ([`ErrorKind::Unavailable`]) took along are one failure: of
///   those only the first counts, and then those that began after it.
/// - The result of a call counts only if the breaker has not changed state since the call began.
///
/// Place it around [`Timeout`](crate::Timeout) and inside [`Fallback`](crate::Fallback):
/// `Fallback(CircuitBreaker(Timeout(redis)), open)`. Outside of `Fallback` it would never see a
/// failure.
///
/// ```
/// use tollgate::{Breaker, BreakerState, CircuitBreaker, CounterBackend};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = CircuitBreaker::new(tollgate::connect("memory://").await?, Breaker::default());
/// backend.ping().await?;
/// assert_eq!(backend.state(), BreakerState::Closed);
/// # Ok(())
/// # }
/// ```
pub struct CircuitBreaker<B> {
    inner: B,
    cell: Cell,
}

impl<B> CircuitBreaker<B> {
    /// Guards `inner`.
    pub fn new(inner: B, settings: Breaker) -> Self {
        Self {
            inner,
            cell: Cell::new(settings),
        }
    }

    /// Told of every change of state, while it is made: it must not call the breaker.
    pub(crate) fn on_change(mut self, hook: Arc<dyn Fn(BreakerState) + Send + Sync>) -> Self {
        self.cell.on_change(hook);
        self
    }

    /// Whether calls go through.
    pub fn state(&self) -> BreakerState {
        self.cell.state()
    }

    /// The backend inside.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// The backend inside.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

impl<B> CircuitBreaker<B> {
    pub(crate) const fn guard<F>(&self, call: F) -> Guarded<'_, F> {
        Guarded {
            call,
            cell: &self.cell,
            ticket: None,
        }
    }
}

pin_project_lite::pin_project! {
    /// A call that needs leave, which it asks for when it is first polled.
    pub(crate) struct Guarded<'a, F> {
        #[pin]
        call: F,
        cell: &'a Cell,
        ticket: Option<Ticket<'a>>,
    }
}

impl<T, F: Future<Output = Result<T, BackendError>>> Future for Guarded<'_, F> {
    type Output = Result<T, BackendError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.ticket.is_none() {
            *this.ticket = this.cell.admit();
        }
        if this.ticket.is_none() {
            return Poll::Ready(Err(BackendError::new(
                ErrorKind::CircuitOpen,
                "the store kept failing and is not asked for a while",
            )));
        }
        let answer = ready!(this.call.poll(cx));
        if let Some(ticket) = this.ticket.take() {
            ticket.done(Outcome::of(&answer));
        }
        Poll::Ready(answer)
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: CounterBackend> CounterBackend for CircuitBreaker<B> {
    fn acquire(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send {
        self.guard(self.inner.acquire(subject, cost))
    }

    /// Only while it is closed: a probe has a future of its own.
    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        if self.state() != BreakerState::Closed {
            return None;
        }
        let ticket = self.cell.admit()?;
        let answer = self.inner.acquire_now(subject, cost);
        if let Some(answer) = &answer {
            ticket.done(Outcome::of(answer));
        }
        answer
    }

    fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> impl Future<Output = Result<Vec<Decision>, BackendError>> + Send {
        self.guard(self.inner.acquire_batch(subject, costs))
    }

    fn peek(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send {
        self.guard(self.inner.peek(subject, cost))
    }

    fn refund(
        &self,
        subject: Subject<'_>,
        refund: Refund,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send {
        self.guard(self.inner.refund(subject, refund))
    }

    fn reset(&self, subject: Subject<'_>) -> impl Future<Output = Result<(), BackendError>> + Send {
        self.guard(self.inner.reset(subject))
    }

    fn ping(&self) -> impl Future<Output = Result<(), BackendError>> + Send {
        self.guard(self.inner.ping())
    }

    fn acquire_many(
        &self,
        batches: &[Batch<'_>],
    ) -> impl Future<Output = Result<Vec<Option<Vec<Decision>>>, BackendError>> + Send {
        self.guard(self.inner.acquire_many(batches))
    }

    fn merge_group(&self, subject: Subject<'_>) -> Option<u64> {
        self.inner.merge_group(subject)
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

impl<B: fmt::Debug> fmt::Debug for CircuitBreaker<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker")
            .field("inner", &self.inner)
            .field("state", &self.state())
            .field("settings", self.cell.settings())
            .finish()
    }
}

impl<B: fmt::Display> fmt::Display for CircuitBreaker<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CircuitBreaker({})", self.inner)
    }
}
