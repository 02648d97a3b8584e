//! The wrapper that bounds how long a caller waits.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use metrics::Histogram;
use tollgate_core::{BackendError, Cost, CounterBackend, Decision, ErrorKind, Refund, Subject};

use crate::time::{FOREVER, Instant};

/// Bounds every call to the backend inside, connecting included.
///
/// A call that is not answered in time fails with [`ErrorKind::Timeout`], and is dropped: it may
/// have been charged. A backend that answers without waiting (memory) costs no timer.
///
/// Place it innermost, so that the breaker sees timeouts as failures:
/// `CircuitBreaker(Timeout(redis))`. In `Timeout(CircuitBreaker(redis))` a timed-out call is
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

    async fn bound<T>(
        &self,
        call: impl Future<Output = Result<T, BackendError>> + Send,
    ) -> Result<T, BackendError> {
        let mut call = pin!(call);
        // Whoever can answer at once does so here, before a timer is made for nothing.
        if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
            return answer;
        }
        let start = Instant::now();
        let answer = tokio::time::timeout_at(start + self.limit.min(FOREVER), call).await;
        if let Some(waited) = &self.waited {
            waited.record(start.elapsed());
        }
        answer.unwrap_or_else(|_| {
            Err(BackendError::new(
                ErrorKind::Timeout,
                format!("no answer within {:?}", self.limit),
            ))
        })
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: CounterBackend> CounterBackend for Timeout<B> {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.bound(self.inner.acquire(subject, cost)).await
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        self.bound(self.inner.acquire_batch(subject, costs)).await
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.bound(self.inner.peek(subject, cost)).await
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        self.bound(self.inner.refund(subject, refund)).await
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.bound(self.inner.reset(subject)).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.bound(self.inner.ping()).await
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
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
