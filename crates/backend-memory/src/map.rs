//! Everything that is not a plain token bucket: whole records of the core, in many small maps
//! behind mutexes.
//!
//! A shard's lock is also what adding an identity to the table is done under: so an identity has
//! its record in one of the two places, whatever policies of the same name do at the same time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::{Mutex, MutexGuard};
use tollgate_core::record::{self, Record};

use crate::hash::{Fingerprint, SPARE_BITS};
use crate::record::{forget_old, weight};
use crate::room::{Padded, Place, Room};

/// Keys are hashes already.
#[derive(Default)]
pub(crate) struct HalfOfIt(u64);

impl Hasher for HalfOfIt {
    fn write_u128(&mut self, print: u128) {
        self.0 = (print >> 64) as u64;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u128");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A part of the map.
#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) records: HashMap<u128, Record, BuildHasherDefault<HalfOfIt>>,
    /// How many records there may be before the idle ones are looked for.
    sweep_at: usize,
}

impl Shard {
    /// Removes idle records if there are as many as twice those that were left the last time: so a
    /// record is looked at a bounded number of times, and the map keeps within twice what is live.
    pub(crate) fn keep_small(&mut self, now: u64, room: &Room) {
        if self.records.len() >= self.sweep_at.max(32) {
            self.sweep(now, room);
            self.sweep_at = 2 * self.records.len();
        }
    }

    /// Removes idle records, and what is idle in the others. Tells how much that weighed, and when
    /// the next record will be idle.
    pub(crate) fn sweep(&mut self, now: u64, room: &Room) -> (u64, u64) {
        let (mut removed, mut next_idle) = (0, u64::MAX);
        self.records.retain(|_, record| {
            let idle_at = record::expires_at(record);
            if idle_at <= now {
                removed += weight(record);
                return false;
            }
            next_idle = next_idle.min(idle_at);
            let before = weight(record);
            forget_old(record, now);
            removed += before - weight(record);
            true
        });
        room.release(Place::Map, removed);
        if self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(2 * self.records.len());
        }
        (removed, next_idle)
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
            records
                .filter(|record| record::expires_at(record) > now)
                .count()
        };
        self.shards().map(live).sum::<usize>() as u64
    }
}
