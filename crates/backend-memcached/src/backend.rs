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
            // Half of it, so that a key that others keep busy is not taken for a slow server.
            cas: CasBackend::new(store)
                .with_prefix(prefix.as_str())
                .patience(timeout / 2),
            prefix,
            timeout,
        }
    }

    /// Asks every server once, within the connect timeout.
    pub(crate) async fn warm_up(&self) -> Result<(), BackendError> {
        let timeout = self.cas.store().connect_timeout();
        bounded(timeout, self.ping_all()).await
    }

    async fn ping_all(&self) -> Result<(), BackendError> {
        let key = format!("{}:v1:ping", self.prefix);
        self.cas.store().ping(&key).await
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
        bounded(self.timeout, self.ping_all()).await
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
