//! The backend: compare and swap under a timeout.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tollgate_core::{
    BackendError, CasBackend, Cost, CounterBackend, Decision, ErrorKind, Refund, Subject,
};

use crate::Builder;
use crate::store::MemcachedStore;

/// Counters in memcached, shared by every process that lists the same servers.
///
/// # Behavior
/// - **Compare and swap**: a charge is written only over the value that it was decided on. However
///   many processes charge a key at once, what is admitted is exact.
/// - **One trip** where this process was the last to write the key, else two; a refusal is one, and is
///   always decided on a value that was just read.
/// - Time is the caller's wall clock.
/// - A call never takes longer than the timeout. One whose answer was lost is never sent again.
/// - A key that others keep busy for half the timeout is [`Contended`](ErrorKind::Contended).
/// - Of several servers each has its part of the keys; one that is down fails its own, and no other
///   takes its place.
/// - Keys are `{prefix}:v1:{policy}:{digest}`, cut to 250 bytes with a digest where they are longer.
///   A value there that is none of ours is replaced by fresh state.
///
/// # What it cannot promise
/// A server that restarts, or that is full and evicts, forgets counters: as much as was charged can
/// then be charged again. A record above `item_limit` is [`Unsupported`](ErrorKind::Unsupported):
/// nothing is charged, nothing is lost. Only sliding logs grow so long, at some 50,000 admissions.
///
/// # Cancellation
/// A call that is dropped has been charged or not; its connection is closed.
///
/// ```no_run
/// use tollgate_core::{Cost, CounterBackend, Key, Policy, Subject};
/// use tollgate_memcached::MemcachedBackend;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = MemcachedBackend::builder("memcached://127.0.0.1").connect().await?;
/// let policy = Policy::new("search", ["100/1m".parse()?])?;
/// let decision = backend
///     .acquire(Subject::new(&policy, &Key::from("alice")), Cost::ONE)
///     .await?;
/// assert!(decision.allowed());
/// # Ok(())
/// # }
/// ```
pub struct MemcachedBackend {
    cas: CasBackend<MemcachedStore>,
    prefix: String,
    timeout: Duration,
}

impl MemcachedBackend {
    /// A backend on one server or several; see [`Builder`].
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::new(url)
    }

    pub(crate) fn of_store(store: MemcachedStore, prefix: String, timeout: Duration) -> Self {
        Self {
            // As often as there is time. Half of it, so that a key that others keep busy is not taken
            // for a slow server.
            cas: CasBackend::new(store)
                .with_prefix(prefix.as_str())
                .attempts(u32::MAX)
                .patience(timeout / 2),
            prefix,
            timeout,
        }
    }

    /// Asks every server once, within the connect timeout.
    pub(crate) async fn warm_up(&self) -> Result<(), BackendError> {
        self.ping_within(self.cas.store().connect_timeout()).await
    }

    async fn ping_within(&self, limit: Duration) -> Result<(), BackendError> {
        let key = format!("{}:v1:ping", self.prefix);
        self.cas.store().ping(&key, limit).await
    }
}

/// Nothing takes longer than its timeout. What is dropped then closes its connection.
async fn bounded<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, BackendError>> + Send,
) -> Result<T, BackendError> {
    match tokio::time::timeout(timeout, call).await {
        Ok(answer) => answer,
        Err(_) => Err(BackendError::new(
            ErrorKind::Timeout,
            format!("no answer within {timeout:?}"),
        )),
    }
}

impl CounterBackend for MemcachedBackend {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        bounded(self.timeout, self.cas.acquire(subject, cost)).await
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        if costs.is_empty() {
            return Ok(Vec::new());
        }
        bounded(self.timeout, self.cas.acquire_batch(subject, costs)).await
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        bounded(self.timeout, self.cas.peek(subject, cost)).await
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        bounded(self.timeout, self.cas.refund(subject, refund)).await
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        bounded(self.timeout, self.cas.reset(subject)).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.ping_within(self.timeout).await
    }

    /// A swap that another writer beats is a trip for nothing.
    fn prefers_coalescing(&self) -> bool {
        true
    }
}

impl fmt::Display for MemcachedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cas, f)
    }
}

impl fmt::Debug for MemcachedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcachedBackend")
            .field("store", self.cas.store())
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish()
    }
}
