//! The wrapper that bounds how long a caller waits.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use metrics::Histogram;
use tokio::time::Sleep;
use tollgate_core::{
    BackendError, Batch, Cost, CounterBackend, Decision, ErrorKind, LeaseAnswer, LeaseBackend,
    LeaseSubject, Policy, Refund, SharedDocuments, SharedLeases, Subject,
};

use crate::time::{FOREVER, Instant};

/// Bounds every call to the backend inside, connecting included.
///
/// A call that is not answered in time fails with [`ErrorKind::Timeout`], and is dropped: it may
/// have been charged. A backend that answers without waiting (memory) costs no timer.
///
/// Place it innermost but for [`Coalesced`](crate::Coalesced), so that the breaker sees timeouts as
/// failures: `CircuitBreaker(Timeout(redis))`. In `Timeout(CircuitBreaker(redis))` a timed-out call is
/// dropped inside the breaker, which learns nothing, and never opens on a store that hangs.
///
/// Needs a tokio runtime with its timer enabled, once a call has to wait.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, CounterBackend, Key, Policy, Quota, Subject, Timeout};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = Timeout::new(tollgate::connect("memory://").await?, Duration::from_millis(50));
/// let policy = Policy::new("search", Quota::parse_list("10/s")?)?;
/// let key = Key::from("alice");
/// assert!(backend.acquire(Subject::new(&policy, &key), Cost::ONE).await?.allowed());
/// # Ok(())
/// # }
/// ```
pub struct Timeout<B> {
    inner: B,
    limit: Duration,
    waited: Option<Histogram>,
}

impl<B> Timeout<B> {
    /// Every call to `inner` ends within `limit`.
    pub const fn new(inner: B, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            waited: None,
        }
    }

    /// Records how long each call took that had to wait.
    pub(crate) fn recording(mut self, waited: Histogram) -> Self {
        self.waited = Some(waited);
        self
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

impl<B> Timeout<B> {
    pub(crate) const fn bound<F>(&self, call: F) -> Bounded<'_, F> {
        Bounded {
            call,
            limit: self.limit,
            waited: self.waited.as_ref(),
            waiting: None,
        }
    }
}

pin_project_lite::pin_project! {
    /// A call with an end. Written by hand, like that of the breaker, because a future that awaits
    /// another holds it twice, and a stack of them grows past what is cheap to allocate.
    pub(crate) struct Bounded<'a, F> {
        #[pin]
        call: F,
        limit: Duration,
        waited: Option<&'a Histogram>,
        // Made when the call has to wait, and not before: who answers at once needs no timer.
        waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    }
}

impl<T, F: Future<Output = Result<T, BackendError>>> Future for Bounded<'_, F> {
    type Output = Result<T, BackendError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut answer = this.call.poll(cx);
        let limit = *this.limit;
        if answer.is_pending() {
            let (_, end) = this.waiting.get_or_insert_with(|| {
                let start = Instant::now();
                let end = tokio::time::sleep_until(start + limit.min(FOREVER));
                (start, Box::pin(end))
            });
            answer = end.as_mut().poll(cx).map(|()| {
                let message = format!("no answer within {limit:?}");
                Err(BackendError::new(ErrorKind::Timeout, message))
            });
        }
        if let (Poll::Ready(_), Some((start, _)), Some(waited)) =
            (&answer, &this.waiting, this.waited)
        {
            waited.record(start.elapsed());
        }
        answer
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: CounterBackend> CounterBackend for Timeout<B> {
    fn acquire(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send {
        self.bound(self.inner.acquire(subject, cost))
    }

    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        self.inner.acquire_now(subject, cost)
    }

    fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> impl Future<Output = Result<Vec<Decision>, BackendError>> + Send {
        self.bound(self.inner.acquire_batch(subject, costs))
    }

    fn peek(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send {
        self.bound(self.inner.peek(subject, cost))
    }

    fn refund(
        &self,
        subject: Subject<'_>,
        refund: Refund,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send {
        self.bound(self.inner.refund(subject, refund))
    }

    fn reset(&self, subject: Subject<'_>) -> impl Future<Output = Result<(), BackendError>> + Send {
        self.bound(self.inner.reset(subject))
    }

    fn ping(&self) -> impl Future<Output = Result<(), BackendError>> + Send {
        self.bound(self.inner.ping())
    }

    fn acquire_many(
        &self,
        batches: &[Batch<'_>],
    ) -> impl Future<Output = Result<Vec<Option<Vec<Decision>>>, BackendError>> + Send {
        self.bound(self.inner.acquire_many(batches))
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

#[deny(clippy::missing_trait_methods)]
impl<B: LeaseBackend> LeaseBackend for Timeout<B> {
    fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> impl Future<Output = Result<LeaseAnswer, BackendError>> + Send {
        self.bound(self.inner.acquire(subject, holder, slots, ttl))
    }

    fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> impl Future<Output = Result<LeaseAnswer, BackendError>> + Send {
        self.bound(self.inner.renew(subject, holder, ttl))
    }

    fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> impl Future<Output = Result<LeaseAnswer, BackendError>> + Send {
        self.bound(self.inner.release(subject, holder))
    }

    fn in_use(
        &self,
        subject: LeaseSubject<'_>,
    ) -> impl Future<Output = Result<u32, BackendError>> + Send {
        self.bound(self.inner.in_use(subject))
    }

    fn accepts_slots(&self, slots: NonZeroU32) -> Result<(), BackendError> {
        self.inner.accepts_slots(slots)
    }
}

impl<B: fmt::Debug> fmt::Debug for Timeout<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout")
            .field("inner", &self.inner)
            .field("limit", &self.limit)
            .finish()
    }
}

impl<B: fmt::Display> fmt::Display for Timeout<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timeout({}, {:?})", self.inner, self.limit)
    }
}
