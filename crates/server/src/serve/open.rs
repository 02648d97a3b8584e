//! Which connections are open, and telling them to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// How many connections a worker has.
#[derive(Debug, Default)]
pub(super) struct Open {
    count: AtomicUsize,
    none: Notify,
}

impl Open {
    /// One more, until the slot is dropped.
    pub(super) fn enter(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Slot {
        self.count.fetch_add(1, Ordering::Relaxed);
        Slot {
            open: Arc::clone(self),
            _permit: Some(permit),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until there is none.
    pub(super) async fn none(&self) {
        loop {
            let none = self.none.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }
}

/// A place among the connections.
#[derive(Debug, Default)]
pub(super) struct Slot {
    open: Arc<Open>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.open.count.fetch_sub(1, Ordering::Release) == 1 {
            self.open.none.notify_waiters();
        }
    }
}

/// What tells connections to end with their next answer.
#[derive(Debug, Default)]
pub(super) struct Drain {
    begun: AtomicBool,
    told: Notify,
}

impl Drain {
    /// Tells all, those that are made from now on, too.
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    pub(super) fn begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Wakes who polls it when it begins. What began before this call is known by
    /// [`begun`](Self::begun) only.
    pub(super) fn told(&self) -> Notified<'_> {
        self.told.notified()
    }
}
