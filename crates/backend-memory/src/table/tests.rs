use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::hash::SPARE_BITS;

/// Few enough hashes that they meet, and that buckets overflow.
fn print(i: u64) -> Fingerprint {
    Fingerprint {
        hi: (i * 3) % 257 + 1,
        lo: i << SPARE_BITS,
    }
}

fn entry(i: u64, tat: u64) -> Entry {
    Entry {
        print: print(i),
        stored: Stored {
            tat,
            n: i % 1_024 + 1,
        },
    }
}

/// Without the lock if that finds it: of two that share half a hash it does not find both.
fn find(table: &Table, i: u64) -> Option<u64> {
    let free = table.update(print(i), 1, |stored| (stored.tat, None));
    let found = table.lock(print(i).hi).find(print(i));
    let locked = found.map(|(_, stored)| stored.tat);
    assert!(free.is_none() || free == locked);
    locked
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u64),
    Remove(u64),
    Sweep(u64),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_a_map(ops in prop::collection::vec(
        prop_oneof![
            8 => (0_u64..600, 0_u64..1_000_000).prop_map(|(i, tat)| Op::Put(i, tat)),
            3 => (0_u64..600).prop_map(Op::Remove),
            1 => (0_u64..1_000).prop_map(Op::Sweep),
        ],
        1..1_500,
    )) {
        let table = Table::new(600);
        let mut model: HashMap<u64, u64> = HashMap::new();
        for op in ops {
            match op {
                Op::Put(i, tat) => {
                    let mut bucket = table.lock(print(i).hi);
                    match bucket.find(print(i)) {
                        Some((position, _)) => bucket.set(position, entry(i, tat)),
                        None => bucket.push(entry(i, tat)),
                    }
                    drop(bucket);
                    model.insert(i, tat);
                    table.grow(model.len() as u64);
                }
                Op::Remove(i) => {
                    let mut bucket = table.lock(print(i).hi);
                    let found = bucket.find(print(i));
                    if let Some((position, _)) = found {
                        bucket.remove(position);
                    }
                    prop_assert_eq!(found.map(|(_, stored)| stored.tat), model.remove(&i));
                }
                Op::Sweep(now) => {
                    let removed: u64 = (0..table.buckets())
                        .map(|index| table.sweep(index, now).removed)
                        .sum();
                    let before = model.len() as u64;
                    model.retain(|i, tat| *tat > now * (i % 1_024 + 1));
                    prop_assert_eq!(removed, before - model.len() as u64);
                }
            }
            prop_assert_eq!(table.live(0), model.values().filter(|tat| **tat > 0).count() as u64);
        }
        for i in 0..600 {
            prop_assert_eq!(find(&table, i), model.get(&i).copied());
        }
    }
}

#[test]
fn all_entries_may_crowd_into_one_bucket() {
    let table = Table::new(1_000);
    for i in 0..1_000 {
        // The low bits are the same, however many buckets there are.
        let print = Fingerprint {
            hi: i << 32 | 1,
            lo: 0,
        };
        let stored = Stored { tat: i + 1, n: 1 };
        table.lock(print.hi).push(Entry { print, stored });
        table.grow(i + 1);
    }
    assert_eq!(table.live(0), 1_000);
    for i in 0..1_000 {
        let print = Fingerprint {
            hi: i << 32 | 1,
            lo: 0,
        };
        assert_eq!(table.update(print, 1, |s| (s.tat, None)), Some(i + 1));
    }
}

#[test]
fn an_entry_takes_about_forty_bytes_at_every_size() {
    const ENTRIES: u64 = 200_000;
    let table = Table::new(ENTRIES);
    let hash = |i: u64| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).swap_bytes() | 1 << 63;
    let (mut most, mut sum) = (0.0_f64, 0.0);
    for i in 0..ENTRIES {
        let print = Fingerprint { hi: hash(i), lo: 0 };
        let stored = Stored { tat: 1, n: 1 };
        table.lock(print.hi).push(Entry { print, stored });
        table.grow(i + 1);
        // At every size; a table of a few has its first buckets.
        if i % 1_000 == 999 {
            let bytes = 128 * table.buckets() + 64 * table.memory.nodes_in_use();
            let each = bytes as f64 / (i + 1) as f64;
            (most, sum) = (most.max(each), sum + each);
        }
    }
    let mean = sum / (ENTRIES / 1_000) as f64;
    assert!(most <= 46.0 && mean <= 38.0, "most {most}, mean {mean}");
}

#[test]
fn nothing_is_lost_while_it_grows_under_many_hands() {
    const EACH: u64 = 20_000;
    const THREADS: u64 = 4;
    let table = Table::new(THREADS * EACH);
    let count = std::sync::atomic::AtomicU64::new(0);
    let spread = |i: u64| Fingerprint {
        hi: (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 << 63,
        lo: i << SPARE_BITS,
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, count) = (&table, &count);
            scope.spawn(move || {
                for i in thread * EACH..(thread + 1) * EACH {
                    let print = spread(i);
                    let stored = Stored { tat: 0, n: 1 };
                    table.lock(print.hi).push(Entry { print, stored });
                    table.grow(1 + count.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
                    // It is there at once, and charges on it and on earlier ones are not lost.
                    for i in [i, thread * EACH, (i + thread * EACH) / 2] {
                        let found = table.update(spread(i), 1, |s| ((), Some(s.tat + 1)));
                        // In the middle of a move it is only found by who holds the lock.
                        if found.is_none() {
                            let mut bucket = table.lock(spread(i).hi);
                            let (position, mut stored) = bucket.find(spread(i)).unwrap();
                            stored.tat += 1;
                            let print = spread(i);
                            bucket.set(position, Entry { print, stored });
                        }
                    }
                }
            });
        }
    });
    // Who found another one splitting has left it to the next.
    for _ in 0..table.limit {
        table.grow(THREADS * EACH);
    }
    assert_eq!(table.buckets(), table.limit);
    let charges: u64 = (0..THREADS * EACH)
        .map(|i| table.update(spread(i), 1, |s| (s.tat, None)).unwrap())
        .sum();
    assert_eq!(charges, 3 * THREADS * EACH);
}
