//! The calls of this process that write the same key go one after another: they would only defeat
//! each other's swaps.
//!
//! A turn is a courtesy and no lock. One that takes too long, because its server does not answer, is
//! passed on: a swap that is lost to it costs a trip, and waiting would cost the answer.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::time::Instant;

const SHARDS: usize = 64;

/// How long a turn may take before the next begins.
const LONGEST: Duration = Duration::from_millis(30);

/// A place for each key that somebody writes now, and for no other.
pub(crate) struct Turns {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Default)]
struct Shard {
    places: HashMap<u128, Place, RandomState>,
    /// How many turns there were.
    turns: u64,
}

/// Whose turn it is, and who is next.
struct Place {
    /// The number of the turn, which no other has.
    number: u64,
    began: Instant,
    waiting: VecDeque<Sender<u64>>,
}

impl Shard {
    /// The number of another turn.
    fn number(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// A turn on a key that nobody has.
    fn begin(&mut self, key: u128) -> u64 {
        let place = Place {
            number: self.number(),
            began: Instant::now(),
            waiting: VecDeque::new(),
        };
        let number = place.number;
        self.places.insert(key, place);
        number
    }

    /// Ends a turn, unless it was passed on already.
    fn pass_on(&mut self, key: u128, ended: u64) {
        while let Some(place) = self.places.get_mut(&key)
            && place.number == ended
        {
            let Some(next) = place.waiting.pop_front() else {
                self.places.remove(&key);
                return;
            };
            // Those who have gone take no turn.
            let number = self.turns + 1;
            if next.send(number).is_ok() {
                place.number = number;
                place.began = Instant::now();
                self.turns = number;
            }
        }
    }
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
        let (until, receiver) = {
            let mut shard_now = shard.lock();
            let Some(place) = shard_now.places.get_mut(&key) else {
                let number = shard_now.begin(key);
                return Turn { shard, key, number };
            };
            let (sender, receiver) = oneshot::channel();
            place.waiting.push_back(sender);
            (place.began + LONGEST, receiver)
        };
        let mut waiter = Waiter {
            shard,
            key,
            receiver,
        };
        let number = waiter.wait(until).await;
        Turn { shard, key, number }
    }

    /// How many keys have a place.
    #[cfg(test)]
    fn len(&self) -> usize {
        let places = self.shards.iter().map(|shard| shard.lock().places.len());
        places.sum()
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turns")
    }
}

/// Others wait until it is dropped.
pub(crate) struct Turn<'a> {
    shard: &'a Mutex<Shard>,
    key: u128,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.shard.lock().pass_on(self.key, self.number);
    }
}

/// In the queue, and not at its head.
struct Waiter<'a> {
    shard: &'a Mutex<Shard>,
    key: u128,
    receiver: Receiver<u64>,
}

impl Waiter<'_> {
    /// The number of its turn, which it is given, or takes from one that has lasted too long.
    async fn wait(&mut self, mut until: Instant) -> u64 {
        loop {
            if let Ok(Ok(number)) = tokio::time::timeout_at(until, &mut self.receiver).await {
                return number;
            }
            let mut shard = self.shard.lock();
            // It may have come just now.
            if let Ok(number) = self.receiver.try_recv() {
                return number;
            }
            let next = shard.turns + 1;
            let Some(place) = shard.places.get_mut(&self.key) else {
                return shard.begin(self.key);
            };
            until = place.began + LONGEST;
            if until <= Instant::now() {
                self.receiver.close();
                place.number = next;
                place.began = Instant::now();
                shard.turns = next;
                return next;
            }
        }
    }
}

/// One who gives up after the turn came, and before it was seen, passes it on.
impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut shard = self.shard.lock();
        self.receiver.close();
        if let Ok(number) = self.receiver.try_recv() {
            shard.pass_on(self.key, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn one_at_a_time_in_order_and_nothing_stays() {
        let turns = Turns::default();
        let first = turns.take(7).await;
        let mut second = pin!(turns.take(7));
        let mut third = pin!(turns.take(7));
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(third.as_mut()).is_pending());
        // Another key of the same shard waits for nobody.
        drop(turns.take(7 + SHARDS as u128).await);
        drop(first);
        assert!(poll(third.as_mut()).is_pending());
        drop(second.await);
        drop(third.await);
        assert_eq!(turns.len(), 0);
    }

    #[tokio::test]
    async fn those_who_leave_the_queue_hold_nobody_up() {
        let turns = Turns::default();
        let first = turns.take(7).await;
        {
            let mut gone = pin!(turns.take(7));
            assert!(poll(gone.as_mut()).is_pending());
        }
        let mut next = pin!(turns.take(7));
        {
            let mut unseen = pin!(turns.take(7));
            assert!(poll(unseen.as_mut()).is_pending());
            assert!(poll(next.as_mut()).is_pending());
            drop(first);
            assert!(poll(next.as_mut()).is_pending());
            // Its turn has come, and it goes without having seen that.
        }
        drop(next.await);
        assert_eq!(turns.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_takes_too_long_is_passed_on() {
        let turns = Turns::default();
        let began = Instant::now();
        let stuck = turns.take(7).await;
        let second = turns.take(7).await;
        assert_eq!(began.elapsed(), LONGEST);
        // Who comes after that waits for the second one, and the late end of the first is nothing.
        let mut third = pin!(turns.take(7));
        assert!(poll(third.as_mut()).is_pending());
        drop(stuck);
        assert!(poll(third.as_mut()).is_pending());
        drop(second);
        drop(third.await);
        assert_eq!(began.elapsed(), LONGEST);
        assert_eq!(turns.len(), 0);
    }
}
