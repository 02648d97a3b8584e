//! The guard that holds a slot.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{BackendError, Origin};

use super::lease::Lease;
use super::slots::Place;

/// Holds a slot until it is dropped.
///
/// Dropping it does not block: the slot is given back in the background, and if that fails it is
/// free once its time to live has passed. [`Limiter::drain`](crate::Limiter::drain) waits for that
/// at shutdown; [`release`](Self::release) does it now.
///
/// ```
/// use tollgate::Limiter;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
/// let gpu = limiter.concurrency("gpu", 1).build()?;
/// let permit = gpu.acquire("all").await?;
/// tokio::select! {
///     () = async { /* work */ } => {}
///     () = permit.lost() => { /* stop: somebody else may have the slot */ }
/// }
/// assert!(permit.release().await?);
/// # Ok(())
/// # }
/// ```
#[must_use = "the slot is given back when this is dropped"]
pub struct Permit {
    lease: Option<Arc<Lease>>,
    fence: u64,
    origin: Origin,
}

impl Permit {
    pub(super) fn new(lease: Arc<Lease>, fence: u64) -> Self {
        Self {
            origin: match lease.place() {
                Place::Store => Origin::Shared,
                Place::Here => Origin::LocalFallback,
            },
            lease: Some(lease),
            fence,
        }
    }

    fn lease(&self) -> &Lease {
        self.lease
            .as_deref()
            .expect("only release and drop take it, and they end the permit")
    }

    /// Returns when the slot was lost: it could not be renewed in time, the store forgot it, or the
    /// limiter was [drained](crate::Limiter::drain). Somebody else may have it then, so the work
    /// should stop.
    ///
    /// # Cancellation
    /// May be dropped and called again.
    pub async fn lost(&self) {
        self.lease().lost().await;
    }

    /// Whether it was lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lease().is_lost()
    }

    /// The number of this holding. It only grows: who holds a slot later has a larger one. What the
    /// holder writes to can refuse a smaller number than it has seen.
    #[must_use]
    pub const fn fence(&self) -> u64 {
        self.fence
    }

    /// Who gave it out: the store ([`Origin::Shared`]) or, because that did not answer, this process
    /// ([`Origin::LocalFallback`]).
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// Gives the slot back now. Says whether it was still held.
    ///
    /// # Errors
    /// When the store does not answer: it is then tried again in the background, and the slot is
    /// free once its time to live has passed in any case.
    ///
    /// # Cancellation
    /// A call that is dropped gives the slot back in the background.
    pub async fn release(mut self) -> Result<bool, BackendError> {
        let lease = Arc::clone(
            self.lease
                .as_ref()
                .expect("only release and drop take it, and they end the permit"),
        );
        // Renewed no more, whatever comes of it.
        let held = lease.of.limiter.keeper().registry().remove(&lease);
        let released = match lease.place() {
            Place::Store => lease.of.store.release(&lease).await,
            Place::Here => {
                lease.of.waiters.freed(&lease.key);
                Ok(held)
            }
        };
        if released.is_ok() {
            self.lease = None;
        }
        released
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            let limiter = lease.of.limiter.clone();
            limiter.keeper().release(lease);
        }
    }
}

/// Without the key.
impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("name", &self.lease.as_ref().map(|lease| &lease.of.name))
            .field("fence", &self.fence)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
