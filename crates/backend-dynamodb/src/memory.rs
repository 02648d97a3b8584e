//! What was last seen of a key, so that the likely branch is tried first.
//!
//! It is never believed: what is written is written under conditions, and what is answered comes
//! from the store. A wrong or missing memory costs one more round trip. Keys are kept as a hash with
//! a random seed.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;

use parking_lot::Mutex;
use tollgate_core::algorithm::State;
use tollgate_core::record::Record;

use crate::record::Held;

const SHARDS: usize = 32;

/// The longest log that is kept.
const MAX_LOG: usize = 1_024;

/// How many keys may be remembered per entry of a log: 16 bytes beside some 100 for a key.
const ENTRIES_A_KEY: usize = 8;

/// What can be remembered.
pub(crate) trait Remembered: Clone {
    /// How much room it takes, in entries of a log; `None` for what is too long to keep.
    fn weight(&self) -> Option<usize>;
}

/// The record of a key, and its revision.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    record: Record,
    revision: Option<u64>,
}

impl Seen {
    pub(crate) fn of(held: &Held) -> Self {
        Self {
            record: held.record.clone(),
            revision: held.revision(),
        }
    }

    pub(crate) fn held(self) -> Held {
        Held::of_record(self.record, self.revision)
    }
}

impl Remembered for Seen {
    fn weight(&self) -> Option<usize> {
        let logs = self.record.iter().flatten().map(|state| match state {
            State::SlidingLog { admissions, .. } => admissions.len(),
            _ => 0,
        });
        let entries: usize = logs.sum();
        (entries <= MAX_LOG && !self.record.is_empty()).then_some(ENTRIES_A_KEY + entries)
    }
}

/// A bounded memory.
#[derive(Debug)]
pub(crate) struct Memory<T> {
    hasher: RandomState,
    shards: Vec<Mutex<Shard<T>>>,
    weight: usize,
}

/// Two generations: the young one becomes the old one when it is full, and the old one is forgotten.
#[derive(Debug)]
struct Shard<T> {
    young: HashMap<u64, T>,
    old: HashMap<u64, T>,
    weight: usize,
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            weight: 0,
        }
    }
}

impl<T: Remembered> Memory<T> {
    /// A memory of at least `keys` keys and at most twice as many; 0 remembers nothing.
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            weight: keys.div_ceil(SHARDS),
        }
    }

    /// What the key hashes to, here.
    pub(crate) fn hash(&self, key: &str) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(crate) fn get(&self, hash: u64) -> Option<T> {
        let mut shard = self.shard(hash).lock();
        let seen = match shard.young.get(&hash) {
            Some(seen) => seen.clone(),
            None => {
                let seen = shard.old.remove(&hash)?;
                shard.insert(hash, seen.clone(), self.weight);
                seen
            }
        };
        Some(seen)
    }

    pub(crate) fn put(&self, hash: u64, seen: T) {
        let mut shard = self.shard(hash).lock();
        if self.weight == 0 || seen.weight().is_none() {
            shard.forget(hash);
        } else {
            shard.insert(hash, seen, self.weight);
        }
    }

    pub(crate) fn forget(&self, hash: u64) {
        self.shard(hash).lock().forget(hash);
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<T>> {
        // The low bits choose the bucket in the shard.
        &self.shards[(hash >> 59) as usize % SHARDS]
    }
}

impl<T: Remembered> Shard<T> {
    fn insert(&mut self, hash: u64, seen: T, limit: usize) {
        let added = seen.weight().unwrap_or(0);
        if let Some(replaced) = self.young.insert(hash, seen) {
            self.weight -= replaced.weight().unwrap_or(0);
        }
        self.weight += added;
        if self.weight > limit * ENTRIES_A_KEY {
            self.old = mem::take(&mut self.young);
            self.weight = 0;
        }
    }

    fn forget(&mut self, hash: u64) {
        if let Some(seen) = self.young.remove(&hash) {
            self.weight -= seen.weight().unwrap_or(0);
        }
        self.old.remove(&hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(window: u64) -> Seen {
        let state = State::FixedWindow {
            period: 60,
            window,
            count: 1,
        };
        Seen {
            record: vec![Some(state)],
            revision: None,
        }
    }

    #[test]
    fn it_remembers_the_last_and_forgets_when_told() {
        let memory = Memory::new(100);
        let hash = memory.hash("tollgate:v1:p:digest");
        assert!(memory.get(hash).is_none());
        memory.put(hash, held(1));
        memory.put(hash, held(2));
        assert_eq!(memory.get(hash).unwrap().record, held(2).record);
        memory.forget(hash);
        assert!(memory.get(hash).is_none());
        memory.put(hash, held(1));
        memory.put(
            hash,
            Seen {
                record: Vec::new(),
                revision: None,
            },
        );
        assert!(memory.get(hash).is_none());
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let memory = Memory::new(1_000);
        let hot = memory.hash("hot");
        memory.put(hot, held(7));
        for number in 0..100_000 {
            memory.put(memory.hash(&number.to_string()), held(number));
            assert!(memory.get(hot).is_some(), "forgotten after {number}");
        }
        let kept: usize = memory
            .shards
            .iter()
            .map(|shard| shard.lock())
            .map(|shard| shard.young.len() + shard.old.len())
            .sum();
        assert!((1_000..=2_200).contains(&kept), "{kept}");
    }

    #[test]
    fn long_logs_are_not_kept() {
        let memory = Memory::new(1_000);
        let log = |entries: u64| {
            let admissions =
                (0..entries).map(|at| tollgate_core::algorithm::Admission { at, cost: 1 });
            let state = State::SlidingLog {
                period: 60,
                total: entries,
                admissions: admissions.collect(),
            };
            Seen {
                record: vec![Some(state)],
                revision: Some(1),
            }
        };
        memory.put(1, log(1_024));
        assert!(memory.get(1).is_some_and(|held| held.revision == Some(1)));
        memory.put(1, log(1_025));
        assert!(memory.get(1).is_none());
    }
}
