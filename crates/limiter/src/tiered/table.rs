//! Where refusals are remembered: a set-associative table. A hash names a set of eight; within it
//! one lock and a scan. Never larger than it was made, never swept as a whole.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_core::{Decision, Subject};

use super::answer::Entry;
use super::moment;
use crate::identity::Seed;
use crate::time::Instant;

/// Entries a set.
const WAYS: usize = 8;

/// One in so many calls that found nothing tidies a set; a power of two.
const TIDY_EVERY: usize = 8;

/// What is known of a cost.
pub(crate) enum Recall {
    /// It is refused.
    Refused(Decision),
    /// Nothing, so the store must be asked.
    Ask(Asked),
}

/// What must be known when the store's answer comes.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// The table's version when the call began.
    version: u64,
    /// Whether a larger cost is remembered as refused: an admitted charge makes its wait longer.
    pub(super) refused_more: bool,
}

/// A moment in the process's own time, or in virtual time. The two are never compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) virtual_time: bool,
    pub(super) micros: u64,
}

pub(super) struct Table {
    sets: Box<[Mutex<Set>]>,
    max: usize,
    /// How long a refusal is remembered at most, in microseconds.
    longest: u64,
    ways: usize,
    /// Entries in all sets: what a call looks at first, and mostly last.
    len: AtomicUsize,
    /// Grows when refunds and resets invalidate, so that a refusal from before is not remembered
    /// after.
    version: AtomicU64,
    /// The set that is tidied next.
    cursor: AtomicUsize,
    seeds: [Seed; 2],
    start: Instant,
}

#[derive(Default)]
struct Set {
    /// The version of the latest invalidation in here.
    invalidated: u64,
    entries: Vec<Entry>,
}

impl Table {
    pub(super) fn new(max: usize) -> Self {
        let sets = if max == 0 { 0 } else { (max / WAYS).max(1) };
        Self {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            max,
            longest: u64::MAX,
            ways: WAYS.min(max),
            len: AtomicUsize::new(0),
            version: AtomicU64::new(0),
            cursor: AtomicUsize::new(0),
            seeds: [Seed::random(), Seed::random()],
            start: Instant::now(),
        }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    pub(super) fn set_longest(&mut self, limit: Duration) {
        self.longest = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
    }

    /// `None` where only the wait itself bounds it.
    pub(super) fn longest(&self) -> Option<Duration> {
        (self.longest < u64::MAX).then(|| Duration::from_micros(self.longest))
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a call remembers that is about to ask.
    pub(super) fn asking(&self) -> Asked {
        Asked {
            version: self.version.load(Ordering::Acquire),
            refused_more: false,
        }
    }

    /// The answer to `cost`, if a refusal of this key is remembered whose cost `applies`.
    pub(super) fn recall(
        &self,
        subject: Subject<'_>,
        cost: u64,
        applies: impl FnOnce(u64) -> bool,
    ) -> Recall {
        // Mostly nobody is being refused, and this is all there is to it.
        let mut asked = self.asking();
        if self.is_empty() {
            return Recall::Ask(asked);
        }
        let hash = self.hash(subject);
        if let Some(set) = self.set(hash) {
            let mut set = set.lock();
            if let Some(i) = set.position(hash) {
                let now = self.now(subject);
                let entry = &set.entries[i];
                if !entry.holds(subject, now) {
                    set.entries.swap_remove(i);
                    self.len.fetch_sub(1, Ordering::Relaxed);
                } else if applies(entry.cost()) {
                    return Recall::Refused(entry.answer(subject, cost, now));
                } else {
                    asked.refused_more = true;
                }
            }
        }
        if (hash as usize).is_multiple_of(TIDY_EVERY) {
            self.tidy(subject);
        }
        Recall::Ask(asked)
    }

    /// Remembers a refusal, unless it is older than an invalidation of its set.
    pub(super) fn remember(
        &self,
        subject: Subject<'_>,
        cost: u64,
        asked: Asked,
        decision: &Decision,
    ) {
        if self.sets.is_empty() {
            return;
        }
        let hash = self.hash(subject);
        let Some(set) = self.set(hash) else { return };
        let now = self.now(subject);
        let Some(entry) = Entry::new(hash, subject, cost, now, self.longest, decision) else {
            return;
        };
        let mut set = set.lock();
        if set.invalidated > asked.version {
            return;
        }
        if let Some(i) = set.position(hash) {
            let known = &mut set.entries[i];
            // The smaller cost covers more; a larger one that was refused meanwhile adds nothing.
            if cost <= known.cost() || !known.holds(subject, now) {
                *known = entry;
            }
            return;
        }
        if set.entries.len() < self.ways {
            set.entries.push(entry);
            self.len.fetch_add(1, Ordering::Relaxed);
        } else if let Some(soonest) = set.entries.iter_mut().min_by_key(|known| known.until()) {
            *soonest = entry;
        }
    }

    /// Drops what is remembered of a key.
    pub(super) fn remove(&self, subject: Subject<'_>) {
        let hash = self.hash(subject);
        if let Some(set) = self.set(hash) {
            self.remove_from(&mut set.lock(), hash);
        }
    }

    /// Drops what is remembered of a key, and what calls under way are about to remember.
    pub(super) fn invalidate(&self, subject: Subject<'_>) {
        let hash = self.hash(subject);
        if let Some(set) = self.set(hash) {
            let mut set = set.lock();
            set.invalidated = self.version.fetch_add(1, Ordering::AcqRel) + 1;
            self.remove_from(&mut set, hash);
        }
    }

    /// Drops everything.
    pub(super) fn clear(&self) {
        let version = self.version.fetch_add(1, Ordering::AcqRel) + 1;
        for set in &self.sets {
            let mut set = set.lock();
            set.invalidated = version;
            self.len.fetch_sub(set.entries.len(), Ordering::Relaxed);
            set.entries = Vec::new();
        }
    }

    fn remove_from(&self, set: &mut Set, hash: u128) {
        if let Some(i) = set.position(hash) {
            set.entries.swap_remove(i);
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Drops what has ended in one set. Some of the calls that found nothing do one each, so that
    /// once a flood is over the table runs empty, and calls pass it by again.
    #[cold]
    fn tidy(&self, subject: Subject<'_>) {
        let cursor = self.cursor.fetch_add(1, Ordering::Relaxed);
        let Some(set) = self.sets.get(cursor % self.sets.len().max(1)) else {
            return;
        };
        let Some(mut set) = set.try_lock() else {
            return;
        };
        if set.entries.is_empty() {
            return;
        }
        let now = self.now(subject);
        let before = set.entries.len();
        set.entries.retain(|entry| !entry.is_over(now));
        if set.entries.is_empty() {
            set.entries = Vec::new();
        }
        let dropped = before - set.entries.len();
        self.len.fetch_sub(dropped, Ordering::Relaxed);
    }

    fn now(&self, subject: Subject<'_>) -> Moment {
        moment(subject, || self.start.elapsed().as_micros() as u64)
    }

    fn set(&self, hash: u128) -> Option<&Mutex<Set>> {
        let sets = self.sets.len() as u128;
        // The upper half, scaled: no division, and the lower half is left to tell entries apart.
        self.sets.get((((hash >> 64) * sets) >> 64) as usize)
    }

    fn hash(&self, subject: Subject<'_>) -> u128 {
        let [a, b] = &self.seeds;
        (u128::from(a.hash(subject)) << 64) | u128::from(b.hash(subject))
    }
}

impl Set {
    fn position(&self, hash: u128) -> Option<usize> {
        self.entries.iter().position(|entry| entry.hash() == hash)
    }
}
