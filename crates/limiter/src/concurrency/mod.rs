//! How many may run at the same time, across every process.
//!
//! ```text
//! acquire ── slots (the store behind timeout and breaker, or this process instead)
//!    │
//!    └─> permit ── keeper: one task a limiter, renews what is held and releases what was dropped
//! ```

mod config;
mod error;
mod keeper;
mod lease;
mod permit;
mod registry;
mod slots;
mod wait;

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{BackendError, Key, NoSlot};

use crate::Limiter;
use crate::time::Instant;

pub use config::ConcurrencyBuilder;
pub use error::{ConcurrencyError, RunError};
pub use permit::Permit;

pub(crate) use keeper::Keeper;

use lease::Lease;
use slots::Slots;
use wait::{Backoff, Waiters};

/// A limit on how many run at the same time: `slots` holders at most for each key, over all the
/// processes that use the store.
///
/// For work whose cost is how long it runs: inference, rendering, reports. A slot belongs to a
/// [`Permit`] and is given back when that is dropped; what a dead process held is free again once
/// its time to live has passed.
///
/// # Behavior
/// - Taking a slot is one round trip, however many are held.
/// - A permit is renewed every third of its time to live, by one task for all permits of the
///   limiter. A holder that could not renew in time has lost its slot, and is
///   [told](Permit::lost).
/// - All slots taken: the caller waits up to [`wait`](ConcurrencyBuilder::wait) (not at all by
///   default), asking again after pauses that are partly random and grow; a slot that this process
///   frees wakes its waiters. There is no queue and no order among waiters.
/// - Store unreachable: by the failure policy of the limiter. Open and local: this process counts
///   its own slots, at most as many as the limit. Closed: [`NoSlot::Unavailable`]. It is reported
///   like every decision that the store did not make.
///
/// # What it cannot promise
/// A holder that stalls for longer than its time to live (a frozen process, a long pause of the
/// machine) loses its slot without noticing while it is frozen. Where that matters, what is
/// protected should refuse a [fencing number](Permit::fence) below one it has seen.
///
/// ```
/// use tollgate::{Limiter, NoSlot};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
/// let ocr = limiter.concurrency("ocr", 1).build()?;
///
/// let permit = ocr.acquire("everybody").await?;
/// assert!(matches!(ocr.acquire("everybody").await, Err(NoSlot::Full { .. })));
/// drop(permit);
/// limiter.drain().await;
/// assert_eq!(ocr.in_use("everybody").await?, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Concurrency(Arc<Inner>);

pub(crate) struct Inner {
    limiter: Limiter,
    name: Box<str>,
    /// What its failures are counted by, apart from policies of the same name.
    rule: Box<str>,
    slots: NonZeroU32,
    ttl: Duration,
    wait: Duration,
    retry_after: Duration,
    per_client: bool,
    waiters: Waiters,
    store: Slots,
}

impl Concurrency {
    /// Takes a slot of this key, waiting for it as long as this limit says.
    ///
    /// # Errors
    /// [`NoSlot`]: all are taken, or the store does not answer and the failure policy is closed.
    ///
    /// # Cancellation
    /// A call that is dropped holds no slot: if the store had given it one, that is given back.
    pub async fn acquire<'a>(&self, key: impl Into<Key<'a>> + Send) -> Result<Permit, NoSlot> {
        self.acquire_within(key, self.0.wait).await
    }

    /// Takes a slot of this key, waiting for it up to `wait`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancellation
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within<'a>(
        &self,
        key: impl Into<Key<'a>> + Send,
        wait: Duration,
    ) -> Result<Permit, NoSlot> {
        let key = key.into().into_owned();
        let deadline = Instant::now() + wait.min(crate::time::FOREVER);
        let mut waiting = None;
        let mut backoff = Backoff::default();
        loop {
            let in_use = match Lease::try_acquire(&self.0, &key).await? {
                Ok(permit) => return Ok(permit),
                Err(in_use) => in_use,
            };
            let full = NoSlot::Full {
                in_use,
                slots: self.0.slots.get(),
                retry_after: self.0.retry_after,
                per_client: self.0.per_client,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(full);
            }
            // Counted from the first refusal on; who finds too many waiting does not join them.
            if waiting.is_none() {
                waiting = self.0.waiters.enter(&key);
            }
            let Some(waiting) = &waiting else {
                return Err(full);
            };
            let _ = tokio::time::timeout(backoff.next().min(left), waiting.woken()).await;
        }
    }

    /// Runs work under a permit: takes a slot, and gives it back when the work is done, fails or
    /// panics. Work whose slot is lost is dropped where it awaits.
    ///
    /// # Errors
    /// [`RunError::NoSlot`] when there was none, [`RunError::Lost`] when it was lost on the way.
    ///
    /// # Cancellation
    /// A call that is dropped drops the work and gives the slot back.
    pub async fn run<'a, F: Future>(
        &self,
        key: impl Into<Key<'a>> + Send,
        work: F,
    ) -> Result<F::Output, RunError> {
        let permit = self.acquire(key).await?;
        let output = tokio::select! {
            biased;
            output = work => output,
            () = permit.lost() => return Err(RunError::Lost),
        };
        // Now, so that who runs one after the other finds the slot free. Should that fail, it is
        // tried again in the background.
        let _ = permit.release().await;
        Ok(output)
    }

    /// How many slots of this key are held.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn in_use<'a>(&self, key: impl Into<Key<'a>> + Send) -> Result<u32, BackendError> {
        self.0.store.in_use(&self.0, &key.into()).await
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How many may be in at the same time, for each key.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.0.slots.get()
    }

    /// How long a slot is held without a renewal.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.0.ttl
    }

    /// How soon those may come back who found all slots taken.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.0.retry_after
    }

    /// Whether keys are clients, each of which has slots of its own.
    #[must_use]
    pub fn is_per_client(&self) -> bool {
        self.0.per_client
    }

    /// The limiter it belongs to.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.0.limiter
    }
}

impl fmt::Debug for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concurrency")
            .field("name", &self.0.name)
            .field("slots", &self.0.slots)
            .field("ttl", &self.0.ttl)
            .field("wait", &self.0.wait)
            .field("per_client", &self.0.per_client)
            .finish_non_exhaustive()
    }
}
