//! Type erasure, once, at the rim: a backend chosen at run time.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    BackendError, Batch, Cost, CounterBackend, Decision, Policy, Refund, SharedDocuments,
    SharedLeases, Subject,
};

/// [`CounterBackend`] as an object; every backend is one.
#[async_trait]
pub trait DynCounterBackend: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// See [`CounterBackend::acquire`].
    async fn dyn_acquire(&self, subject: Subject<'_>, cost: Cost)
    -> Result<Decision, BackendError>;
    /// See [`CounterBackend::acquire_now`].
    fn dyn_acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>>;
    /// See [`CounterBackend::acquire_batch`].
    async fn dyn_acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError>;
    /// See [`CounterBackend::peek`].
    async fn dyn_peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError>;
    /// See [`CounterBackend::refund`].
    async fn dyn_refund(
        &self,
        subject: Subject<'_>,
        refund: Refund,
    ) -> Result<Decision, BackendError>;
    /// See [`CounterBackend::reset`].
    async fn dyn_reset(&self, subject: Subject<'_>) -> Result<(), BackendError>;
    /// See [`CounterBackend::ping`].
    async fn dyn_ping(&self) -> Result<(), BackendError>;
    /// See [`CounterBackend::acquire_many`].
    async fn dyn_acquire_many(
        &self,
        batches: &[Batch<'_>],
    ) -> Result<Vec<Option<Vec<Decision>>>, BackendError>;
    /// See [`CounterBackend::merge_group`].
    fn dyn_merge_group(&self, subject: Subject<'_>) -> Option<u64>;
    /// See [`CounterBackend::prefers_coalescing`].
    fn dyn_prefers_coalescing(&self) -> bool;
    /// See [`CounterBackend::accepts`].
    fn dyn_accepts(&self, policy: &Policy) -> Result<(), BackendError>;
    /// See [`CounterBackend::leases`].
    fn dyn_leases(self: Arc<Self>) -> Option<SharedLeases>;
    /// See [`CounterBackend::documents`].
    fn dyn_documents(self: Arc<Self>) -> Option<SharedDocuments>;
    /// See [`CounterBackend::warnings`].
    fn dyn_warnings(&self) -> Vec<String>;
}

#[async_trait]
impl<B: CounterBackend> DynCounterBackend for B {
    async fn dyn_acquire(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Result<Decision, BackendError> {
        self.acquire(subject, cost).await
    }

    fn dyn_acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        self.acquire_now(subject, cost)
    }

    async fn dyn_acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        self.acquire_batch(subject, costs).await
    }

    async fn dyn_peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.peek(subject, cost).await
    }

    async fn dyn_refund(
        &self,
        subject: Subject<'_>,
        refund: Refund,
    ) -> Result<Decision, BackendError> {
        self.refund(subject, refund).await
    }

    async fn dyn_reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.reset(subject).await
    }

    async fn dyn_ping(&self) -> Result<(), BackendError> {
        self.ping().await
    }

    async fn dyn_acquire_many(
        &self,
        batches: &[Batch<'_>],
    ) -> Result<Vec<Option<Vec<Decision>>>, BackendError> {
        self.acquire_many(batches).await
    }

    fn dyn_merge_group(&self, subject: Subject<'_>) -> Option<u64> {
        self.merge_group(subject)
    }

    fn dyn_prefers_coalescing(&self) -> bool {
        self.prefers_coalescing()
    }

    fn dyn_accepts(&self, policy: &Policy) -> Result<(), BackendError> {
        self.accepts(policy)
    }

    fn dyn_leases(self: Arc<Self>) -> Option<SharedLeases> {
        self.leases()
    }

    fn dyn_documents(self: Arc<Self>) -> Option<SharedDocuments> {
        self.documents()
    }

    fn dyn_warnings(&self) -> Vec<String> {
        self.warnings()
    }
}

/// Any backend, cheap to clone; clones share it.
///
/// One allocation a call is the price; the stack inside stays static.
#[derive(Clone)]
pub struct SharedBackend(Arc<dyn DynCounterBackend>);

impl SharedBackend {
    /// Erases the type of a backend.
    pub fn new(backend: impl CounterBackend) -> Self {
        Self(Arc::new(backend))
    }

    /// The store as one of leases, if it can hold them: [`CounterBackend::leases`].
    #[must_use]
    pub fn leases(&self) -> Option<SharedLeases> {
        Arc::clone(&self.0).dyn_leases()
    }

    /// The store as one of documents, if it can keep them: [`CounterBackend::documents`].
    #[must_use]
    pub fn documents(&self) -> Option<SharedDocuments> {
        Arc::clone(&self.0).dyn_documents()
    }
}

impl fmt::Debug for SharedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for SharedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[deny(clippy::missing_trait_methods)]
impl CounterBackend for SharedBackend {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.0.dyn_acquire(subject, cost).await
    }

    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        self.0.dyn_acquire_now(subject, cost)
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        self.0.dyn_acquire_batch(subject, costs).await
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.0.dyn_peek(subject, cost).await
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        self.0.dyn_refund(subject, refund).await
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.0.dyn_reset(subject).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.0.dyn_ping().await
    }

    async fn acquire_many(
        &self,
        batches: &[Batch<'_>],
    ) -> Result<Vec<Option<Vec<Decision>>>, BackendError> {
        self.0.dyn_acquire_many(batches).await
    }

    fn merge_group(&self, subject: Subject<'_>) -> Option<u64> {
        self.0.dyn_merge_group(subject)
    }

    fn prefers_coalescing(&self) -> bool {
        self.0.dyn_prefers_coalescing()
    }

    fn accepts(&self, policy: &Policy) -> Result<(), BackendError> {
        self.0.dyn_accepts(policy)
    }

    fn leases(self: Arc<Self>) -> Option<SharedLeases> {
        Self::leases(&self)
    }

    fn documents(self: Arc<Self>) -> Option<SharedDocuments> {
        Self::documents(&self)
    }

    fn warnings(&self) -> Vec<String> {
        self.0.dyn_warnings()
    }
}
