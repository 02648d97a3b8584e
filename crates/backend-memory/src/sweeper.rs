//! Makes room at the bound: idle records are removed, a little at a time, by the calls that need
//! their room. No thread, no timer, and nothing below the bound.

use parking_lot::Mutex;

use crate::map::Map;
use crate::room::{Padded, Place, Room};
use crate::table::Table;

/// What one call looks at: so many buckets, or twice as many records of the map. It takes some
/// tens of microseconds.
const LOOK_AT: u64 = 2_048;
/// What one call removes; the next ones find that room.
const REMOVE: u64 = 64;
/// How long, in microseconds, to believe that nothing is idle after all was looked at.
const BELIEVE: u64 = 100_000;

/// Goes round all buckets and shards.
pub(crate) struct Sweeper(Padded<Mutex<Round>>);

#[derive(Default)]
struct Round {
    /// Where to look next: a bucket or, beyond them, a shard.
    next: u64,
    /// How many places in a row had nothing idle.
    in_vain: u64,
    /// When the first of what they hold will be idle.
    next_idle: u64,
    /// From and to when nothing is idle.
    quiet: (u64, u64),
}

impl Sweeper {
    pub(crate) fn new() -> Self {
        Self(Padded(Mutex::default()))
    }

    /// Looks for idle records and removes them; whether there is room now.
    ///
    /// A table of up to some thousand records is looked through as a whole, so that nothing is
    /// refused a record while an idle one is there; a larger one is by several calls.
    pub(crate) fn make_room(&self, now: u64, room: &Room, table: &Table, map: &Map) -> bool {
        let mut round = self.0.0.lock();
        if !room.is_full() {
            return true;
        }
        if round.quiet.0 <= now && now < round.quiet.1 {
            return false;
        }
        let (mut looked_at, mut removed) = (0, 0);
        while looked_at < LOOK_AT && removed < REMOVE {
            let buckets = table.buckets();
            let places = buckets + map.shards().len() as u64;
            if round.in_vain >= places {
                round.in_vain = 0;
                // Some of them may have been looked at some time ago.
                if now < round.next_idle {
                    round.quiet = (now, round.next_idle.min(now.saturating_add(BELIEVE)));
                    break;
                }
            }
            let (gone, next_idle, cost) = if round.next < buckets {
                let swept = table.sweep(round.next, now);
                room.release(Place::Table, swept.removed);
                (swept.removed, swept.next_idle, 1 + swept.removed)
            } else if let Some(shard) = map.shards().nth((round.next - buckets) as usize) {
                let mut shard = shard.lock();
                let cost = 1 + shard.records.len() as u64 / 2;
                let swept = shard.sweep(now, room);
                (swept.weight, swept.next_idle, cost)
            } else {
                (0, u64::MAX, 0)
            };
            round.next = if round.next + 1 < places {
                round.next + 1
            } else {
                0
            };
            if gone > 0 || round.in_vain == 0 {
                (round.in_vain, round.next_idle) = (0, u64::MAX);
            }
            round.in_vain += u64::from(gone == 0);
            round.next_idle = round.next_idle.min(next_idle);
            looked_at += cost;
            removed += gone;
        }
        !room.is_full()
    }
}
