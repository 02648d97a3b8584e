//! Memory that does as it is told, under limiters as two processes have them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate::memory::MemoryBackend;
use tollgate::{
    BackendError, Breaker, Concurrency, Cost, CounterBackend, Decision, ErrorKind, FailurePolicy,
    LeaseAnswer, LeaseBackend, LeaseSubject, Limiter, NoSlot, Refund, SharedLeases, Subject,
};
use tollgate_testkit::wait_until;

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// So many slots are what it can hold.
pub(crate) const MOST: u32 = 1_000_000;

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Memory that can be told to fail, hang or forget, and counts.
#[derive(Debug, Default)]
pub(crate) struct Store {
    inner: MemoryBackend,
    pub(crate) fails: AtomicBool,
    pub(crate) hangs: AtomicBool,
    /// Does what it is asked, and does not answer.
    pub(crate) loses_answers: AtomicBool,
    pub(crate) acquires: AtomicU32,
    pub(crate) renewals: AtomicU32,
    pub(crate) releases: AtomicU32,
    asked: Notify,
}

impl Store {
    async fn before(&self, count: &AtomicU32) -> Result<(), BackendError> {
        count.fetch_add(1, Ordering::SeqCst);
        self.asked.notify_waiters();
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err(BackendError::new(ErrorKind::Unavailable, "switched off"));
        }
        Ok(())
    }

    async fn after<T>(&self, answer: T) -> T {
        if self.loses_answers.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        answer
    }
}

impl LeaseBackend for Store {
    async fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.before(&self.acquires).await?;
        let answer = self.inner.try_hold(subject, holder, slots, ttl);
        self.after(answer).await
    }

    async fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.before(&self.renewals).await?;
        Ok(self.inner.try_renew(subject, holder, ttl))
    }

    async fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError> {
        self.before(&self.releases).await?;
        Ok(self.inner.try_release(subject, holder))
    }

    async fn in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError> {
        LeaseBackend::in_use(&self.inner, subject).await
    }

    fn accepts_slots(&self, slots: NonZeroU32) -> Result<(), BackendError> {
        if slots.get() > MOST {
            let why = format!("slots is {slots}, and there can be {MOST}: use fewer");
            return Err(BackendError::new(ErrorKind::Config, why));
        }
        Ok(())
    }
}

/// One store for two limiters, as two processes have.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub(crate) Arc<Store>);

impl std::fmt::Display for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("shared")
    }
}

impl CounterBackend for Shared {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        CounterBackend::acquire(&self.0.inner, subject, cost).await
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        self.0.inner.acquire_batch(subject, costs).await
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.0.inner.peek(subject, cost).await
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        self.0.inner.refund(subject, refund).await
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.0.inner.reset(subject).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.0.inner.ping().await
    }

    fn leases(self: Arc<Self>) -> Option<SharedLeases> {
        Some(SharedLeases::of(Arc::clone(&self.0)))
    }
}

pub(crate) fn store() -> Arc<Store> {
    Arc::default()
}

pub(crate) fn limiter(store: &Arc<Store>, on_failure: FailurePolicy) -> Limiter {
    Limiter::builder(Shared(Arc::clone(store)))
        .timeout(ms(50))
        .on_failure(on_failure)
        .breaker(Breaker {
            failures: u32::MAX,
            ratio: None,
            ..Breaker::default()
        })
        .build()
}

pub(crate) fn slots(store: &Arc<Store>, slots: u32) -> Concurrency {
    let limiter = limiter(store, FailurePolicy::Closed);
    limiter.concurrency("ocr", slots).build().unwrap()
}

pub(crate) fn is_full(answer: &Result<tollgate::Permit, NoSlot>) -> bool {
    matches!(answer, Err(NoSlot::Full { .. }))
}

pub(crate) async fn in_use(limit: &Concurrency, expected: u32) {
    let there = async || limit.in_use("k").await.unwrap() == expected;
    wait_until(&format!("{expected} in use"), PATIENCE, there).await;
}
