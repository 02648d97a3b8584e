//! Concurrency slots in this process: who holds them, until when.
//!
//! Apart from the counters: a slot in use is never dropped to make room, so what is past the bound
//! is an error and not a refusal.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_core::{BackendError, ErrorKind, LeaseAnswer, LeaseBackend, LeaseSubject};

use crate::MemoryBackend;
use crate::hash::Fingerprint;
use crate::map::AsItIs;
use crate::room::Padded;

/// So many locks.
const SHARDS: usize = 64;
/// A shard is not swept below so many keys.
const FEW: usize = 32;

/// Who holds the slots of one key.
#[derive(Default)]
struct Holders(Vec<Holding>);

struct Holding {
    holder: Fingerprint,
    /// In microseconds; out at this very one.
    until: u64,
}

impl Holders {
    /// Those whose time has passed are out; how many these were.
    fn expire(&mut self, now: u64) -> u64 {
        let before = self.0.len();
        self.0.retain(|holding| holding.until > now);
        (before - self.0.len()) as u64
    }

    fn of(&mut self, holder: Fingerprint) -> Option<&mut Holding> {
        self.0.iter_mut().find(|holding| holding.holder == holder)
    }

    fn in_use(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

#[derive(Default)]
struct Shard {
    keys: HashMap<Fingerprint, Holders, BuildHasherDefault<AsItIs>>,
    /// How many keys there may be before the expired ones are looked for.
    sweep_at: usize,
}

impl Shard {
    /// Removes who has left; how many these were.
    fn sweep(&mut self, now: u64) -> u64 {
        let mut gone = 0;
        self.keys.retain(|_, holders| {
            gone += holders.expire(now);
            !holders.0.is_empty()
        });
        self.sweep_at = 2 * self.keys.len();
        if self.keys.len() < self.keys.capacity() / 8 {
            self.keys.shrink_to(2 * self.keys.len());
        }
        gone
    }
}

/// The slots of all keys.
pub(crate) struct Leases {
    shards: Box<[Padded<Mutex<Shard>>]>,
    held: AtomicU64,
    max: u64,
    /// The last number that was given out. One for all keys, so that a key that was forgotten
    /// and comes again goes on above it.
    fence: AtomicU64,
}

impl Leases {
    pub(crate) fn new(max: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded(Mutex::default())).collect(),
            held: AtomicU64::new(0),
            max,
            fence: AtomicU64::new(0),
        }
    }

    fn shard(&self, print: Fingerprint) -> &Mutex<Shard> {
        &self.shards[print.hi as usize % SHARDS].0
    }

    /// One step on the holders of a key, after those whose time has passed are out.
    fn step<T>(&self, print: Fingerprint, now: u64, f: impl FnOnce(&mut Holders) -> T) -> T {
        let mut shard = self.shard(print).lock();
        if shard.keys.len() >= shard.sweep_at.max(FEW) {
            self.held.fetch_sub(shard.sweep(now), Relaxed);
        }
        let holders = shard.keys.entry(print).or_default();
        self.held.fetch_sub(holders.expire(now), Relaxed);
        let answer = f(holders);
        if holders.0.is_empty() {
            shard.keys.remove(&print);
        }
        answer
    }

    /// Takes a place for one more holder.
    fn claim(&self) -> bool {
        let one_more = |held| (held < self.max).then_some(held + 1);
        self.held.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    /// Makes room at the bound. It looks at everything, and is called only there.
    fn sweep(&self, now: u64) {
        for shard in &self.shards {
            let gone = shard.0.lock().sweep(now);
            self.held.fetch_sub(gone, Relaxed);
        }
    }

    fn next_fence(&self, now: u64) -> u64 {
        let last = self
            .fence
            .fetch_update(Relaxed, Relaxed, |last| Some(now.max(last + 1)))
            .unwrap_or_else(|last| last);
        now.max(last + 1)
    }

    /// `None` if the bound is reached.
    fn acquire(
        &self,
        print: Fingerprint,
        now: u64,
        holder: Fingerprint,
        slots: NonZeroU32,
        ttl: u64,
    ) -> Option<LeaseAnswer> {
        let until = now.saturating_add(ttl);
        self.step(print, now, |holders| {
            let ok = if let Some(holding) = holders.of(holder) {
                holding.until = until;
                true
            } else if holders.0.len() >= slots.get() as usize {
                false
            } else if self.claim() {
                holders.0.push(Holding { holder, until });
                true
            } else {
                return None;
            };
            Some(LeaseAnswer {
                ok,
                in_use: holders.in_use(),
                fence: ok.then(|| self.next_fence(now)),
            })
        })
    }
}

impl MemoryBackend {
    fn slots(&self, subject: LeaseSubject<'_>) -> (Fingerprint, u64) {
        let print = self.prints.of_lease(subject.name, subject.key);
        (print, self.time.moment(subject.at).now)
    }

    /// Takes a slot: [`LeaseBackend::acquire`] without a future.
    ///
    /// At most [`max_keys`](crate::MemoryBackendBuilder::max_keys) slots are held at one time, over
    /// all limits and keys.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] for one more than that.
    pub fn try_hold(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        let (print, now) = self.slots(subject);
        let holder = self.prints.of_text(holder);
        let ttl = micros(ttl);
        let acquire = || self.leases.acquire(print, now, holder, slots, ttl);
        if let Some(answer) = acquire() {
            return Ok(answer);
        }
        self.leases.sweep(now);
        acquire().ok_or_else(|| {
            let max = self.leases.max;
            let context = format!("all {max} slots that memory may hold are in use");
            BackendError::new(ErrorKind::OutOfMemory, context)
        })
    }

    /// Goes on holding a slot: [`LeaseBackend::renew`] without a future.
    pub fn try_renew(&self, subject: LeaseSubject<'_>, holder: &str, ttl: Duration) -> LeaseAnswer {
        let (print, now) = self.slots(subject);
        let holder = self.prints.of_text(holder);
        self.leases.step(print, now, |holders| {
            let holding = holders.of(holder);
            let ok = holding.is_some();
            if let Some(holding) = holding {
                holding.until = now.saturating_add(micros(ttl));
            }
            LeaseAnswer {
                ok,
                in_use: holders.in_use(),
                fence: None,
            }
        })
    }

    /// Gives a slot back: [`LeaseBackend::release`] without a future.
    pub fn try_release(&self, subject: LeaseSubject<'_>, holder: &str) -> LeaseAnswer {
        let (print, now) = self.slots(subject);
        let holder = self.prints.of_text(holder);
        self.leases.step(print, now, |holders| {
            let before = holders.0.len();
            holders.0.retain(|holding| holding.holder != holder);
            let ok = holders.0.len() < before;
            self.leases.held.fetch_sub(u64::from(ok), Relaxed);
            LeaseAnswer {
                ok,
                in_use: holders.in_use(),
                fence: None,
            }
        })
    }
}

/// Finding out whether a holder is in is a look through the holders of its key: with 10,000 slots
/// on one key some microseconds.
impl LeaseBackend for MemoryBackend {
    async fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.try_hold(subject, holder, slots, ttl)
    }

    async fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        Ok(self.try_renew(subject, holder, ttl))
    }

    async fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError> {
        Ok(self.try_release(subject, holder))
    }

    async fn in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError> {
        let (print, now) = self.slots(subject);
        Ok(self.leases.step(print, now, |holders| holders.in_use()))
    }
}

fn micros(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tollgate_core::{Key, Timestamp};

    use super::*;

    const TTL: Duration = Duration::from_secs(1);

    fn subject<'a>(key: &'a Key<'a>, second: u64) -> LeaseSubject<'a> {
        LeaseSubject {
            name: "ocr",
            key,
            at: Some(Timestamp::from_micros(1_000_000 * (1_000 + second))),
        }
    }

    #[tokio::test]
    async fn slots_are_bounded_and_those_that_expired_make_room() {
        let backend = MemoryBackend::builder().max_keys(100).build();
        let slots = NonZeroU32::MIN;
        for i in 0..100 {
            let key = Key::from(i.to_string());
            let held = LeaseBackend::acquire(&backend, subject(&key, 0), "h", slots, TTL).await;
            assert!(held.unwrap().ok);
        }
        let key = Key::from("one more");
        let refused = LeaseBackend::acquire(&backend, subject(&key, 0), "h", slots, TTL).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(backend.leases.held.load(Relaxed), 100);
        let held = LeaseBackend::acquire(&backend, subject(&key, 1), "h", slots, TTL).await;
        assert!(held.unwrap().ok);
        assert_eq!(backend.leases.held.load(Relaxed), 1);
        let gone = backend.release(subject(&key, 1), "h").await.unwrap();
        assert!(gone.ok);
        assert_eq!(backend.leases.held.load(Relaxed), 0);
        let kept: usize = backend
            .leases
            .shards
            .iter()
            .map(|s| s.0.lock().keys.len())
            .sum();
        assert_eq!(kept, 0, "keys without holders are forgotten");
    }

    #[tokio::test]
    async fn asking_keeps_nothing() {
        let backend = MemoryBackend::new();
        for i in 0..1_000 {
            let key = Key::from(i.to_string());
            assert_eq!(backend.in_use(subject(&key, 0)).await.unwrap(), 0);
            assert!(!backend.release(subject(&key, 0), "h").await.unwrap().ok);
        }
        let kept: usize = backend
            .leases
            .shards
            .iter()
            .map(|s| s.0.lock().keys.len())
            .sum();
        assert_eq!(kept, 0);
    }
}
