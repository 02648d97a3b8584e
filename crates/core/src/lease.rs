//! Concurrency slots in a store: at most so many holders, each until its time to live passes.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{BackendError, Key, Timestamp};

/// Which slots a call is about.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSubject<'a> {
    /// The name of the limit.
    pub name: &'a str,
    /// For whom.
    pub key: &'a Key<'a>,
    /// `None`: now, by the store's own clock. `Some`: this moment instead.
    pub at: Option<Timestamp>,
}

/// The answer to a call about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseAnswer {
    /// Acquire and renew: whether the holder is in. Release: whether it was.
    pub ok: bool,
    /// How many are in after the call.
    pub in_use: u32,
    /// The number of this holding, when an acquire is admitted: larger than any that was given out
    /// for these slots before. What the holder writes to can refuse a smaller number than it has
    /// seen, and so a holder that lost its slot without knowing. It is the store's time in
    /// microseconds, or the last one + 1 if that is more.
    pub fence: Option<u64>,
}

/// A store that can hold leases. Not every store can: asking for leases on one that cannot fails
/// when the limiter is built.
///
/// # Behavior
/// - A holder whose time to live has passed is out, at the very microsecond.
/// - Each call is one atomic step.
pub trait LeaseBackend: fmt::Debug + Send + Sync + 'static {
    /// In if the holder is in already (its time starts anew) or fewer than `slots` are.
    fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> impl Future<Output = Result<LeaseAnswer, BackendError>> + Send;

    /// In only if the holder still is; its time starts anew.
    fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> impl Future<Output = Result<LeaseAnswer, BackendError>> + Send;

    /// Out; says whether the holder was in.
    fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> impl Future<Output = Result<LeaseAnswer, BackendError>> + Send;

    /// How many are in.
    fn in_use(
        &self,
        subject: LeaseSubject<'_>,
    ) -> impl Future<Output = Result<u32, BackendError>> + Send;

    /// Whether a key may have so many slots; asked when a limit is built.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for more than the store can hold.
    fn accepts_slots(&self, slots: NonZeroU32) -> Result<(), BackendError> {
        let _ = slots;
        Ok(())
    }
}

/// [`LeaseBackend`] as an object; every store of leases is one.
#[async_trait]
pub trait DynLeaseBackend: fmt::Debug + Send + Sync + 'static {
    /// See [`LeaseBackend::acquire`].
    async fn dyn_acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError>;
    /// See [`LeaseBackend::renew`].
    async fn dyn_renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError>;
    /// See [`LeaseBackend::release`].
    async fn dyn_release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError>;
    /// See [`LeaseBackend::in_use`].
    async fn dyn_in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError>;
    /// See [`LeaseBackend::accepts_slots`].
    fn dyn_accepts_slots(&self, slots: NonZeroU32) -> Result<(), BackendError>;
}

#[async_trait]
impl<B: LeaseBackend> DynLeaseBackend for B {
    async fn dyn_acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.acquire(subject, holder, slots, ttl).await
    }

    async fn dyn_renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.renew(subject, holder, ttl).await
    }

    async fn dyn_release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError> {
        self.release(subject, holder).await
    }

    async fn dyn_in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError> {
        self.in_use(subject).await
    }

    fn dyn_accepts_slots(&self, slots: NonZeroU32) -> Result<(), BackendError> {
        self.accepts_slots(slots)
    }
}

/// Any store of leases, cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub struct SharedLeases(Arc<dyn DynLeaseBackend>);

impl SharedLeases {
    /// Erases the type of a store of leases.
    pub fn new(backend: impl LeaseBackend) -> Self {
        Self::of(Arc::new(backend))
    }

    /// The same of a store that is shared already, such as one that counts too.
    pub fn of(backend: Arc<impl LeaseBackend>) -> Self {
        Self(backend)
    }
}

impl LeaseBackend for SharedLeases {
    async fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.0.dyn_acquire(subject, holder, slots, ttl).await
    }

    async fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.0.dyn_renew(subject, holder, ttl).await
    }

    async fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError> {
        self.0.dyn_release(subject, holder).await
    }

    async fn in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError> {
        self.0.dyn_in_use(subject).await
    }

    fn accepts_slots(&self, slots: NonZeroU32) -> Result<(), BackendError> {
        self.0.dyn_accepts_slots(slots)
    }
}
