//! `inmem-expire [--keys 1000000]`: the worst single check while so many keys expire.
//!
//! A flood of keys fills the table to its bound within a second of quota each; then they all are
//! idle, and as many others come, which need their room. Each check is timed. The longest ones of a
//! busy machine are the scheduler's, so the table also has those of a check of a key that is there
//! already, in the same minute.

use std::time::{Duration, Instant};

use tollgate_benches::inmem::key;
use tollgate_benches::number;
use tollgate_core::{Algorithm, Cost, ManualClock, Policy, Quota, Timestamp};
use tollgate_memory::MemoryBackend;

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn main() {
    let keys = number("keys", 1_000_000) as usize;
    println!("| algorithm | phase | checks | p50 ns | p99.9 us | worst us | good | ambitious |");
    println!("|---|---|---|---|---|---|---|---|");
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindow] {
        let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000));
        let backend = MemoryBackend::builder()
            .max_keys(keys as u64)
            .clock(clock.clone())
            .build();
        let quota = Quota::new(algorithm, 10, Duration::from_secs(1)).expect("can be counted");
        let policy = Policy::new("bench", [quota]).expect("the name is short");
        let mut table = Vec::new();
        let phase = |name: &'static str, from: usize, table: &mut Vec<_>| {
            let mut times = Vec::with_capacity(keys);
            for i in from..from + keys {
                let key = key(i);
                let began = Instant::now();
                backend.try_acquire(&policy, &key, Cost::ONE);
                times.push(began.elapsed());
            }
            times.sort_unstable();
            table.push((name, times));
        };
        phase("new keys, growing", 0, &mut table);
        phase("the same again", 0, &mut table);
        clock.advance(Duration::from_secs(10));
        phase("other keys, all old ones expired", keys, &mut table);
        phase("the same again", keys, &mut table);
        for (name, times) in table {
            let (good, ambitious) = if name.starts_with("other") {
                ("1000", "100")
            } else {
                ("", "")
            };
            println!(
                "| {algorithm} | {name} | {keys} | {} | {:.1} | {:.1} | {good} | {ambitious} |",
                times[times.len() / 2].as_nanos(),
                times[times.len() * 999 / 1_000].as_nanos() as f64 / 1e3,
                times[times.len() - 1].as_nanos() as f64 / 1e3,
            );
        }
    }
}
