//! A record of one's own: found where it is, or made where there is room.
//!
//! Locks are taken in one order: the shard of the map, then the bucket of the table.

use tollgate_core::Policy;
use tollgate_core::algorithm::State;
use tollgate_core::record::Record;

use crate::MemoryBackend;
use crate::call::Call;
use crate::clock::Moment;
use crate::hash::Fingerprint;
use crate::map::Shard;
use crate::rate::{Rate, Stored};
use crate::record::{Kept, merge_newest, shrink, weight};
use crate::room::Place;
use crate::table::Entry;

/// How long, in microseconds, an idle entry is kept for its identity to come back to while there is
/// room: one of a fast quota is idle most of the time, and finding it again is cheaper than adding
/// it again.
const KEEP_IDLE: u64 = 1_000_000;

/// There is no room for a record.
pub(crate) struct Full;

/// One call's claim to a record of its own.
pub(crate) struct Claim<'a> {
    pub(crate) backend: &'a MemoryBackend,
    pub(crate) policy: &'a Policy,
    pub(crate) print: Fingerprint,
    pub(crate) moment: Moment,
}

impl Claim<'_> {
    /// Decides on the identity's own record, which is made if it must be and may be.
    pub(crate) fn decide<C: Call>(&self, call: &C) -> Result<C::Answer, Full> {
        let mut shard = self.backend.map.shard(self.print);
        let Shard {
            records, scratch, ..
        } = &mut *shard;
        if let Some(kept) = records.get_mut(&self.print) {
            return Ok(kept.update(scratch, |record| self.in_map(call, record)));
        }
        // Nobody adds this identity to the table or the map while its shard is locked.
        let answer = match Rate::of(self.policy, self.moment.now) {
            Some(rate) => self.in_table(call, &rate),
            None => self.new_in_map(call, &mut shard),
        };
        drop(shard);
        self.backend.table.grow(self.backend.room.entries());
        answer
    }

    /// A record that is there already.
    fn in_map<C: Call>(&self, call: &C, record: &mut Record) -> C::Answer {
        let room = &self.backend.room;
        let before = weight(record);
        let (answer, changed) = call.record(self.policy.quotas(), record, self.moment.now);
        if changed {
            let after = weight(record);
            if after > before && !room.claim(Place::Map, after - before) {
                merge_newest(record, before);
            } else if after < before {
                room.release(Place::Map, before - after);
            }
            shrink(record);
        }
        answer
    }

    /// An identity whose record is in the table, or will be.
    fn in_table<C: Call>(&self, call: &C, rate: &Rate) -> Result<C::Answer, Full> {
        let (room, now) = (&self.backend.room, self.moment.now);
        let mut bucket = self.backend.table.lock(self.print.hi);
        let found = bucket.find(self.print);
        let (outcome, write) = call.bucket(rate, found.map(|(_, stored)| stored), now);
        let entry = write.map(|tat| Entry {
            print: self.print,
            stored: Stored { tat, n: rate.n },
        });
        match (found, entry) {
            (Some((position, _)), Some(entry)) => bucket.set(position, entry),
            (Some(_), None) => {}
            (None, Some(entry)) => {
                // The slot of a neighbour that was idle for a while costs no room. At the bound any
                // that is idle will do.
                let reuse = if self.moment.may_go_back {
                    None
                } else {
                    bucket.find_idle(now.saturating_sub(KEEP_IDLE))
                };
                if let Some(position) = reuse {
                    bucket.set(position, entry);
                } else if room.claim(Place::Table, 1) {
                    bucket.push(entry);
                } else if let Some(position) = bucket.find_idle(now) {
                    bucket.set(position, entry);
                } else {
                    return Err(Full);
                }
            }
            (None, None) => {
                if C::OWNS && room.is_full() && bucket.find_idle(now).is_none() {
                    return Err(Full);
                }
            }
        }
        drop(bucket);
        Ok(call.answer(rate, now, outcome))
    }

    /// An identity whose record, if it has one, is still in the table, which its policy is not for.
    fn new_in_map<C: Call>(&self, call: &C, shard: &mut Shard) -> Result<C::Answer, Full> {
        let (room, now) = (&self.backend.room, self.moment.now);
        if !self.moment.may_go_back {
            shard.keep_small(now, room);
        }
        let mut bucket = self.backend.table.lock(self.print.hi);
        let found = bucket.find(self.print);
        let record = &mut shard.scratch;
        record.clear();
        record.extend(found.map(|(_, stored)| {
            Some(State::TokenBucket {
                tick: 1,
                n: stored.n,
                tat: stored.tat.into(),
            })
        }));
        let (answer, changed) = call.record(self.policy.quotas(), record, now);
        if !changed {
            return if found.is_none() && C::OWNS && room.is_full() {
                Err(Full)
            } else {
                Ok(answer)
            };
        }
        // A new record has one admission in a log, so it weighs one.
        if let Some((position, _)) = found {
            bucket.remove(position);
            room.moved();
        } else if !room.claim(Place::Map, 1) {
            return Err(Full);
        }
        shard.records.insert(self.print, Kept::new(record));
        Ok(answer)
    }
}
