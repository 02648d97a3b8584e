//! The bound: how many records there are, over both tables, never more than so many.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A value in cache lines of its own, so that those who only read its neighbours are not slowed
/// down by those who write it.
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// Counts records: entries of the table, and what the map holds. In the map a record counts one, and
/// one for each admission of a sliding log beyond its first.
///
/// A record's room is claimed before the record is made and released after it is gone, so the
/// number of records is at most what is counted here.
pub(crate) struct Room {
    /// Entries in the low half, the map's weight in the high half; one word, so that the bound is
    /// exact.
    used: Padded<AtomicU64>,
    max: u64,
}

const MAP: u32 = 32;

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Table,
    Map,
}

impl Place {
    fn of(self, weight: u64) -> u64 {
        match self {
            Self::Table => weight,
            Self::Map => weight << MAP,
        }
    }
}

fn total(used: u64) -> u64 {
    entries(used) + (used >> MAP)
}

fn entries(used: u64) -> u64 {
    used & ((1 << MAP) - 1)
}

impl Room {
    /// Room for `max`, which is below 2^32.
    pub(crate) fn new(max: u64) -> Self {
        Self {
            used: Padded(AtomicU64::new(0)),
            max,
        }
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    pub(crate) fn used(&self) -> u64 {
        total(self.used.0.load(Relaxed))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used() >= self.max
    }

    /// Entries of the table.
    pub(crate) fn entries(&self) -> u64 {
        entries(self.used.0.load(Relaxed))
    }

    /// Claims room; whether there was so much.
    pub(crate) fn claim(&self, place: Place, weight: u64) -> bool {
        self.used
            .0
            .try_update(Relaxed, Relaxed, |used| {
                (total(used) + weight <= self.max).then(|| used + place.of(weight))
            })
            .is_ok()
    }

    pub(crate) fn release(&self, place: Place, weight: u64) {
        self.used.0.fetch_sub(place.of(weight), Relaxed);
    }

    /// A record went from the table to the map.
    pub(crate) fn moved(&self) {
        let change = Place::Map.of(1) - Place::Table.of(1);
        self.used.0.fetch_add(change, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_over_both_places() {
        let room = Room::new(3);
        assert!(room.claim(Place::Table, 1));
        assert!(room.claim(Place::Map, 2));
        assert!(room.is_full());
        assert!(!room.claim(Place::Table, 1));
        assert!(!room.claim(Place::Map, 1));
        room.release(Place::Map, 1);
        room.moved();
        assert_eq!((room.used(), room.entries()), (2, 0));
        assert!(room.claim(Place::Table, 1));
        assert_eq!((room.used(), room.entries()), (3, 1));
    }

    #[test]
    fn threads_claim_exactly_what_there_is() {
        let room = Room::new(1_000);
        let won: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|i| {
                    let place = if i % 2 == 0 { Place::Table } else { Place::Map };
                    let room = &room;
                    scope.spawn(move || (0..500).filter(|_| room.claim(place, 1)).count())
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!((won, room.used()), (1_000, 1_000));
    }
}
