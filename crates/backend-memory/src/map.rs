//! Everything that is not a plain token bucket: whole records of the core, in many small maps
//! behind mutexes.
//!
//! A shard's lock is also what adding an identity to the table is done under: so an identity has
//! its record in one of the two places, whatever policies of the same name do at the same time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::{Mutex, MutexGuard};
use tollgate_core::record::Record;

use crate::hash::{Fingerprint, SPARE_BITS};
use crate::record::Kept;
use crate::room::{Padded, Place, Room};

/// How many idle records one call removes from a shard. The next ones go on.
const REMOVE: usize = 64;

/// A shard is never cleaned below so many records.
const FEW: usize = 32;

/// The keys are hashes already.
#[derive(Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a fingerprint is hashed as one number");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A part of the map.
#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) records: HashMap<Fingerprint, Kept, BuildHasherDefault<AsItIs>>,
    /// For [`Kept::update`], so that it need not allocate.
    pub(crate) scratch: Record,
    /// How many records there may be before the idle ones are looked for.
    sweep_at: usize,
}

/// What a look through a shard came to.
pub(crate) struct Swept {
    /// What it removed weighed so much.
    pub(crate) weight: u64,
    /// When the next record will be idle.
    pub(crate) next_idle: u64,
}

impl Shard {
    /// Removes idle records if there are twice as many records as were in use the last time: so a
    /// record is looked at a bounded number of times, and a shard keeps within twice what is in
    /// use.
    pub(crate) fn keep_small(&mut self, now: u64, room: &Room) {
        if self.records.len() < self.sweep_at.max(FEW) {
            return;
        }
        let before = self.records.len();
        self.sweep(now, room);
        if before - self.records.len() < REMOVE {
            self.sweep_at = 2 * self.records.len();
        }
    }

    /// Removes some idle records, and what is idle in the others.
    pub(crate) fn sweep(&mut self, now: u64, room: &Room) -> Swept {
        let (mut weight, mut next_idle) = (0, u64::MAX);
        let idle = self.records.extract_if(|_, record| {
            let idle_at = record.idle_at();
            if idle_at > now {
                next_idle = next_idle.min(idle_at);
                weight += record.forget_old(now);
            }
            idle_at <= now
        });
        let removed: u64 = idle.take(REMOVE).map(|(_, record)| record.weight()).sum();
        weight += removed;
        room.release(Place::Map, weight);
        if self.records.len() < self.records.capacity() / 8 {
            self.records.shrink_to(2 * self.records.len());
        }
        Swept { weight, next_idle }
    }
}

pub(crate) struct Map {
    shards: Box<[Padded<Mutex<Shard>>]>,
}

impl Map {
    /// Shards are small, about a thousand records when `max` are there, so that the longest look
    /// through one takes microseconds.
    pub(crate) fn new(max: u64) -> Self {
        let shards = (max / 1_024).next_power_of_two().clamp(16, 1_024);
        Self {
            shards: (0..shards).map(|_| Padded(Mutex::default())).collect(),
        }
    }

    pub(crate) fn shard(&self, print: Fingerprint) -> MutexGuard<'_, Shard> {
        let index = (print.lo >> SPARE_BITS) as usize % self.shards.len();
        self.shards[index].0.lock()
    }

    pub(crate) fn shards(&self) -> impl ExactSizeIterator<Item = &Mutex<Shard>> {
        self.shards.iter().map(|shard| &shard.0)
    }

    /// How many records do not decide like none at `now`.
    pub(crate) fn live(&self, now: u64) -> u64 {
        let live = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let records = shard.records.values();
            records.filter(|record| record.idle_at() > now).count()
        };
        self.shards().map(live).sum::<usize>() as u64
    }
}
