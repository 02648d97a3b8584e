//! The calls of this process that write the same key go one after another: they would only defeat
//! each other's swaps.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

const SHARDS: usize = 64;

type Queue = Arc<tokio::sync::Mutex<()>>;

/// A queue for each key that somebody writes now, and for no other.
pub(crate) struct Turns {
    shards: Box<[Mutex<HashMap<u128, Queue>>]>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Turns {
    /// Waits for its turn, first come first served.
    pub(crate) async fn take(&self, key: u128) -> Turn<'_> {
        let shard = &self.shards[key as usize % SHARDS];
        let queue = Arc::clone(shard.lock().entry(key).or_default());
        let place = Place { shard, key, queue };
        let held = Arc::clone(&place.queue).lock_owned().await;
        Turn {
            _held: held,
            _place: place,
        }
    }

    /// How many keys have a queue.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turns")
    }
}

/// Others wait until it is dropped.
pub(crate) struct Turn<'a> {
    // Before the place, so that the last one to leave finds itself alone.
    _held: OwnedMutexGuard<()>,
    _place: Place<'a>,
}

/// In the queue, at its head or not.
struct Place<'a> {
    shard: &'a Mutex<HashMap<u128, Queue>>,
    key: u128,
    queue: Queue,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut shard = self.shard.lock();
        // The map's and its own; whoever comes needs the lock to get another.
        if Arc::strong_count(&self.queue) == 2 {
            shard.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_in_order_and_nothing_stays() {
        let turns = Turns::default();
        let first = turns.take(7).await;
        let other = turns.take(8).await;
        assert_eq!(turns.len(), 2);
        let second = turns.take(7);
        tokio::pin!(second);
        let none = std::time::Duration::ZERO;
        assert!(tokio::time::timeout(none, &mut second).await.is_err());
        // Whoever gives up leaves the queue.
        assert!(tokio::time::timeout(none, turns.take(7)).await.is_err());
        drop(first);
        drop(second.await);
        drop(other);
        assert_eq!(turns.len(), 0);
    }
}
