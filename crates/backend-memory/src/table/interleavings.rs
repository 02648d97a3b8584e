//! Every interleaving, and every order of memory that the standard allows, of small scenes.
//!
//! Who only reads is the spawned thread: loom does not interleave a writer with reads that the main
//! thread does.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::*;
use crate::hash::SPARE_BITS;

type Tiny = Table<AtomicU64>;

/// One bucket, which may be split once; a node or two.
fn tiny() -> Arc<Tiny> {
    let memory = Memory::new(2, 3, |words| {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    });
    Arc::new(Table::with(memory, AtomicU64::new(1), 2))
}

fn print(i: u64) -> Fingerprint {
    Fingerprint {
        hi: i + 2,
        lo: (i + 1) << SPARE_BITS,
    }
}

fn put(table: &Tiny, i: u64, tat: u64) {
    let entry = Entry {
        print: print(i),
        stored: Stored { tat, n: 1 },
    };
    table.lock(print(i).hi).push(entry);
}

/// Adds one, as a charge does: where it is found, else under the lock.
fn charge(table: &Tiny, i: u64) {
    if table
        .update(print(i), 1, |stored| ((), Some(stored.tat + 1)))
        .is_none()
    {
        let mut bucket = table.lock(print(i).hi);
        if let Some((position, mut stored)) = bucket.find(print(i)) {
            stored.tat += 1;
            let print = print(i);
            bucket.set(position, Entry { print, stored });
        }
    }
}

fn tat(table: &Tiny, i: u64) -> Option<u64> {
    let bucket = table.lock(print(i).hi);
    bucket.find(print(i)).map(|(_, stored)| stored.tat)
}

/// With at most so many switches away from a thread that could go on.
fn explore(switches: usize, scene: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(scene);
}

#[test]
fn no_charge_is_lost() {
    explore(3, || {
        let table = tiny();
        put(&table, 0, 10);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || charge(&other, 0));
        charge(&table, 0);
        thread.join().unwrap();
        assert_eq!(tat(&table, 0), Some(12));
    });
}

#[test]
fn a_reader_sees_an_entry_as_it_was_at_one_moment() {
    explore(3, || {
        let table = tiny();
        put(&table, 0, 100);
        let other = Arc::clone(&table);
        let reader = thread::spawn(move || {
            let seen = other.update(print(0), 1, |stored| (stored, None));
            let seen = seen.unwrap();
            assert!(
                [(100, 1), (700, 7)].contains(&(seen.tat, seen.n)),
                "{seen:?}"
            );
        });
        // Another rate: both words change.
        table.update(print(0), 7, |_| ((), Some(700)));
        reader.join().unwrap();
    });
}

#[test]
fn a_charge_never_lands_on_another_identity() {
    explore(3, || {
        let table = tiny();
        put(&table, 0, 10);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            // The slot goes to another, with the very same number in it.
            let mut bucket = other.lock(print(0).hi);
            bucket.remove(0);
            let stored = Stored { tat: 10, n: 1 };
            let print = print(1);
            bucket.push(Entry { print, stored });
        });
        table.update(print(0), 1, |stored| ((), Some(stored.tat + 1)));
        thread.join().unwrap();
        assert_eq!(tat(&table, 0), None);
        assert_eq!(tat(&table, 1), Some(10));
    });
}

#[test]
fn a_charge_survives_a_split() {
    explore(3, || {
        let table = tiny();
        put(&table, 0, 10);
        put(&table, 1, 20);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || other.grow(1_000));
        // One of them moves to the new bucket, the other stays.
        charge(&table, 0);
        charge(&table, 1);
        thread.join().unwrap();
        assert_eq!(table.buckets(), 2);
        assert_eq!((tat(&table, 0), tat(&table, 1)), (Some(11), Some(21)));
    });
}

#[test]
fn a_reader_is_not_led_astray_by_a_node_that_moves() {
    explore(1, || {
        let table = tiny();
        // The sixth is in a node.
        for i in 0..6 {
            put(&table, 2 * i, 10 + i);
        }
        let other = Arc::clone(&table);
        let reader = thread::spawn(move || {
            let seen = other.update(print(10), 1, |stored| (stored, None));
            assert!(
                [None, Some((15, 1))].contains(&seen.map(|s| (s.tat, s.n))),
                "{seen:?}"
            );
        });
        let mut bucket = table.lock(print(10).hi);
        let (position, _) = bucket.find(print(10)).unwrap();
        bucket.remove(position);
        // The node goes to the other bucket, and there to the same identity with another number:
        // it cannot be there, so whoever reads it there was led astray.
        let stored = Stored { tat: 99, n: 2 };
        let print = print(10);
        bucket.push(Entry { print, stored });
        bucket.remove(5);
        drop(bucket);
        reader.join().unwrap();
    });
}
