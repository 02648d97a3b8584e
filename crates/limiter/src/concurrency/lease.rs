//! One holding of one slot, shared by the permit and the keeper.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tollgate_core::{BackendError, Key};

use super::slots::Place;
use super::{Inner, NoSlot, Permit};
use crate::time::{FOREVER, Instant, wall_clock};

/// One holding.
pub(crate) struct Lease {
    pub(super) of: Arc<Inner>,
    pub(super) key: Key<'static>,
    /// What the store knows it by: 128 bits that nobody can guess.
    pub(super) holder: Box<str>,
    /// The limit and the key, as this process counts its own.
    pub(super) group: u64,
    held: Mutex<Held>,
    lost: AtomicBool,
    changed: Notify,
}

#[derive(Clone, Copy)]
struct Held {
    place: Place,
    /// When it is out, unless it is renewed: by this process's clock, counted from before the store
    /// was asked, so never later than the store's own end.
    until: Instant,
}

impl Lease {
    fn new(of: &Arc<Inner>, key: &Key<'static>, place: Place) -> Arc<Self> {
        let held = Held {
            place,
            until: match place {
                Place::Store => Instant::now() + of.ttl,
                Place::Here => Instant::now() + FOREVER,
            },
        };
        Arc::new(Self {
            of: Arc::clone(of),
            key: key.clone(),
            holder: holder(),
            group: group(&of.name, key),
            held: Mutex::new(held),
            lost: AtomicBool::new(false),
            changed: Notify::new(),
        })
    }

    /// Asks once. A slot, or how many are in.
    pub(super) async fn try_acquire(
        of: &Arc<Inner>,
        key: &Key<'static>,
    ) -> Result<Result<Permit, u32>, NoSlot> {
        let lease = Self::new(of, key, Place::Store);
        // Whoever is dropped while the store is asked may hold a slot without knowing.
        let mut asking = Asking(Some(Arc::clone(&lease)));
        let began = Instant::now();
        let error = match of.store.acquire(&lease).await {
            Ok(answer) => {
                let Some(fence) = answer.fence.filter(|_| answer.ok) else {
                    asking.0 = None;
                    return Ok(Err(answer.in_use));
                };
                lease.renewed(began);
                // Those that the store does not know of count too: it is given back.
                if let Err(own) = of.limiter.keeper().hold(&lease, fence) {
                    return Ok(Err(own));
                }
                asking.0 = None;
                return Ok(Ok(Permit::new(lease, fence)));
            }
            Err(error) => error,
        };
        if !error.may_have_charged() {
            asking.0 = None;
        }
        drop(asking);
        Self::instead(of, key, error)
    }

    /// What this process answers when the store does not.
    #[cold]
    fn instead(
        of: &Arc<Inner>,
        key: &Key<'static>,
        error: BackendError,
    ) -> Result<Result<Permit, u32>, NoSlot> {
        if !of.store.counts_here(of, &error) {
            return Err(NoSlot::Unavailable {
                retry_after: of.limiter.fallback().retry_after().max(of.retry_after),
                source: error,
            });
        }
        let lease = Self::new(of, key, Place::Here);
        let now = of.limiter.virtual_now().unwrap_or_else(wall_clock);
        let held = of.limiter.keeper().hold_here(&lease, now.as_micros());
        Ok(held.map(|fence| Permit::new(lease, fence)))
    }

    /// Where it is held.
    pub(super) fn place(&self) -> Place {
        self.held.lock().place
    }

    /// The moment by which it must have been renewed.
    pub(super) fn until(&self) -> Instant {
        self.held.lock().until
    }

    /// The store said yes to a question that was asked at `began`.
    pub(super) fn renewed(&self, began: Instant) {
        self.held.lock().until = began + self.of.ttl;
    }

    /// This process counts it from now on. Not if its time has passed: the holder may know that.
    pub(super) fn keep_here(&self) -> bool {
        let now = Instant::now();
        let mut held = self.held.lock();
        if held.until <= now {
            return false;
        }
        held.place = Place::Here;
        held.until = now + FOREVER;
        drop(held);
        self.changed.notify_waiters();
        true
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Also where the keeper is late itself: the clock decides.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || Instant::now() >= self.until()
    }

    /// Returns when it is lost.
    pub(super) async fn lost(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_lost() {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(self.until()) => {}
            }
        }
    }
}

/// Gives back what a call may have taken that was dropped before it knew.
struct Asking(Option<Arc<Lease>>);

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(lease) = self.0.take() {
            let limiter = lease.of.limiter.clone();
            limiter.keeper().release(lease);
        }
    }
}

/// A number that no two limits or keys have in common, but by a chance of 1 in 2^64.
fn group(name: &str, key: &Key<'_>) -> u64 {
    static RANDOM: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    RANDOM.hash_one((name, key.as_bytes()))
}

fn holder() -> Box<str> {
    static RANDOM: LazyLock<[RandomState; 2]> =
        LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let [a, b] = [RANDOM[0].hash_one(number), RANDOM[1].hash_one(number)];
    format!("{a:016x}{b:016x}").into()
}
