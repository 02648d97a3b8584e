//! Those who wait for a slot: how many, how long between two tries, and what wakes them.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_core::Key;

/// The first pause; each is half as long again as the one before, up to the longest.
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);

/// Pauses that grow and are partly random, so that waiters of many processes do not come at once.
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Backoff {
    /// Half of the pause is certain, half is chance.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 3 / 2).min(LONGEST);
        let random = RandomState::new().hash_one(pause) % 1_024;
        pause / 2 + (pause / 2).mul_f64(random as f64 / 1_024.0)
    }
}

/// Keys share so many places to wait at.
const PLACES: usize = 64;

/// The waiters of one limit in this process.
pub(super) struct Waiters {
    waiting: AtomicUsize,
    max: usize,
    places: Box<[Notify]>,
    hasher: RandomState,
}

impl Waiters {
    pub(super) fn new(max: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            max,
            places: (0..PLACES).map(|_| Notify::new()).collect(),
            hasher: RandomState::new(),
        }
    }

    fn place(&self, key: &Key<'_>) -> &Notify {
        &self.places[self.hasher.hash_one(key.as_bytes()) as usize % PLACES]
    }

    /// `None` if there are too many.
    pub(super) fn enter(&self, key: &Key<'_>) -> Option<Waiting<'_>> {
        let one_more = |waiting| (waiting < self.max).then_some(waiting + 1);
        self.waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .ok()
            .map(|_| Waiting {
                all: self,
                place: self.place(key),
            })
    }

    /// A slot of this key was freed here: one of those who may wait for it looks. It is a hint: a
    /// waiter of another key may get it, and then the pause of the right one ends by itself.
    pub(super) fn freed(&self, key: &Key<'_>) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.place(key).notify_one();
        }
    }
}

pub(super) struct Waiting<'a> {
    all: &'a Waiters,
    place: &'a Notify,
}

impl Waiting<'_> {
    pub(super) async fn woken(&self) {
        self.place.notified().await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.all.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_are_partly_random_and_bounded() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..30).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST));
        assert!(pauses[29] >= LONGEST / 2);
        let mut other = Backoff::default();
        let others: Vec<_> = (0..30).map(|_| other.next()).collect();
        assert_ne!(pauses, others);
    }

    #[test]
    fn waiters_are_bounded() {
        let waiters = Waiters::new(2);
        let first = waiters.enter(&Key::from("k"));
        let second = waiters.enter(&Key::from("k"));
        assert!(first.is_some() && second.is_some() && waiters.enter(&Key::from("k")).is_none());
        drop(first);
        assert!(waiters.enter(&Key::from("k")).is_some());
    }
}
