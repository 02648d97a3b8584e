//! Token buckets in 24 bytes each: a hash table of 128-byte buckets that grows one bucket at a time
//! (linear hashing), never copies itself, and is swept where it stands.
//!
//! An idle entry decides like none, so its slot serves the next identity that comes to its bucket:
//! in the course of ordinary calls nothing else needs sweeping. The number of entries is kept by
//! whoever adds and removes them ([`crate::room`]).

mod bucket;
#[cfg(test)]
mod interleavings;
mod memory;
#[cfg(test)]
mod tests;
mod word;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;

use crate::hash::Fingerprint;
use crate::rate::Stored;
use crate::room::Padded;
pub(crate) use bucket::Entry;
use bucket::{Locked, MAX_NODES, View};
use memory::Memory;
use word::Word;

/// Buckets at the start: 4 KiB.
const FIRST: u64 = 32;
/// The table grows while there are more than 38 entries for every ten buckets: at that load a
/// bucket in five is continued in a node, and an entry takes 37 bytes.
const LOAD: (u64, u64) = (38, 10);

/// The most entries a table can be made for.
pub(crate) const MAX_ENTRIES: u64 = 2 * MAX_NODES as u64;

pub(crate) struct Table<W: Word = AtomicU64> {
    memory: Memory<W>,
    /// How many buckets there are now.
    buckets: Padded<W>,
    limit: u64,
    growing: Padded<Mutex<()>>,
}

impl Table {
    /// A table for at most so many entries (at most [`MAX_ENTRIES`]).
    pub(crate) fn new(entries: u64) -> Self {
        let limit = (entries * LOAD.1).div_ceil(LOAD.0).max(FIRST);
        let memory = Memory::zeroed(limit as usize, entries as usize / 2 + 1);
        Self::with(memory, AtomicU64::new(FIRST), limit)
    }
}

impl<W: Word> Table<W> {
    fn with(memory: Memory<W>, buckets: W, limit: u64) -> Self {
        Self {
            memory,
            buckets: Padded(buckets),
            limit,
            growing: Padded(Mutex::new(())),
        }
    }

    /// How many buckets there are.
    pub(crate) fn buckets(&self) -> u64 {
        self.buckets.0.load(Acquire)
    }

    /// The bucket of a hash.
    #[inline(always)]
    fn index(&self, hash: u64) -> u64 {
        home(hash, self.buckets())
    }

    /// Decides on an entry that is there, and writes the `tat` that `decide` gives, if any, in the
    /// same atomic step. `decide` may run several times. `None`: it is not there.
    #[inline]
    pub(crate) fn update<R>(
        &self,
        print: Fingerprint,
        n: u64,
        mut decide: impl FnMut(Stored) -> (R, Option<u64>),
    ) -> Option<R> {
        let mut attempt = 0;
        loop {
            if let Some(view) = View::open(&self.memory, self.index(print.hi)) {
                let slot = view.find(print)?;
                let (outcome, write) = decide(View::read(slot));
                let done = match write {
                    Some(tat) => view.write(slot, print, Stored { tat, n }),
                    None => view.still_stands(),
                };
                if done {
                    return Some(outcome);
                }
            }
            W::pause(&mut attempt);
        }
    }

    /// Locks the bucket of a hash.
    pub(crate) fn lock(&self, hash: u64) -> Locked<'_, W> {
        let mut attempt = 0;
        loop {
            let index = self.index(hash);
            if let Some(locked) = View::open(&self.memory, index).and_then(View::lock) {
                // It may have been split before it was locked; it cannot be now.
                if self.index(hash) == index {
                    return locked;
                }
            } else {
                W::pause(&mut attempt);
            }
        }
    }

    /// Splits a bucket or two if there are too many `entries`. Whoever adds an entry does this, so
    /// the table keeps up without ever stopping anybody.
    pub(crate) fn grow(&self, entries: u64) {
        if entries * LOAD.1 <= self.buckets() * LOAD.0 {
            return;
        }
        let Some(_growing) = self.growing.0.try_lock() else {
            return;
        };
        for _ in 0..2 {
            let buckets = self.buckets();
            if buckets >= self.limit || entries * LOAD.1 <= buckets * LOAD.0 {
                return;
            }
            self.split(buckets);
        }
    }

    /// Makes bucket number `new`, and moves what belongs there out of the one it was in.
    fn split(&self, new: u64) {
        let half = 1 << new.ilog2();
        let mut old = self.lock_bucket(new - half);
        {
            let mut fresh = self.lock_bucket(new);
            // From the end, because the last entry takes the place of one that goes.
            for position in (0..old.count()).rev() {
                let entry = old.get(position);
                if home(entry.print.hi, new + 1) == new {
                    old.remove(position);
                    fresh.push(entry);
                }
            }
        }
        // Published while the old bucket is still locked: who locks it next sees the new number.
        self.buckets.0.store(new + 1, Release);
    }

    fn lock_bucket(&self, index: u64) -> Locked<'_, W> {
        let mut attempt = 0;
        loop {
            match View::open(&self.memory, index).and_then(View::lock) {
                Some(locked) => return locked,
                None => W::pause(&mut attempt),
            }
        }
    }

    /// Removes what is idle from a bucket. Tells how much that was, and when the next of what is
    /// left will be.
    pub(crate) fn sweep(&self, index: u64, now: u64) -> Swept {
        let census = self.census(index, now);
        if census.idle == 0 {
            return Swept {
                removed: 0,
                next_idle: census.next_idle,
            };
        }
        let mut locked = self.lock_bucket(index);
        let mut removed = 0;
        while let Some(position) = locked.find_idle(now) {
            locked.remove(position);
            removed += 1;
        }
        Swept {
            removed,
            next_idle: census.next_idle,
        }
    }

    /// How many entries do not decide like none at `now`.
    pub(crate) fn live(&self, now: u64) -> u64 {
        (0..self.buckets())
            .map(|index| {
                let census = self.census(index, now);
                census.entries - census.idle
            })
            .sum()
    }

    fn census(&self, index: u64, now: u64) -> bucket::Census {
        let mut attempt = 0;
        loop {
            let view = View::open(&self.memory, index);
            if let Some(census) = view.and_then(|view| view.census(now)) {
                return census;
            }
            W::pause(&mut attempt);
        }
    }
}

/// What sweeping came to.
pub(crate) struct Swept {
    pub(crate) removed: u64,
    pub(crate) next_idle: u64,
}

/// The bucket of a hash where there are so many: buckets are split in order, so those beyond the
/// last power of two hold what those that many places before them gave up.
#[inline(always)]
fn home(hash: u64, buckets: u64) -> u64 {
    // There is always one.
    let half = 1 << (buckets | 1).ilog2();
    let index = hash & (2 * half - 1);
    if index < buckets {
        index
    } else {
        index & (half - 1)
    }
}
