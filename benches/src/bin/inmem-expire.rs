//! `inmem-expire [--keys 1000000]`: the worst single check while so many keys expire.
//!
//! A flood of keys fills the table to its bound, with a quota of a second each; then they all are
//! idle, and as many others come, which need their room. Each check is timed by the wall and by the
//! thread's processor time: on a busy machine the longest ones by the wall are the scheduler's. (To
//! ask for processor time costs more than a check, so the medians are of the wall.)

use std::time::{Duration, Instant};

use tollgate_benches::inmem::{key, thread_cpu};
use tollgate_benches::number;
use tollgate_core::{Algorithm, Cost, ManualClock, Policy, Quota, Timestamp};
use tollgate_memory::MemoryBackend;

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn main() {
    let keys = number("keys", 1_000_000) as usize;
    println!(
        "| algorithm | phase | p50 ns | p99.9 cpu us | worst cpu us | worst wall us | good | ambitious |"
    );
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
            let mut walls = Vec::with_capacity(keys);
            let mut cpus = Vec::with_capacity(keys);
            for i in from..from + keys {
                let key = key(i);
                let began_cpu = thread_cpu();
                let began = Instant::now();
                backend.try_acquire(&policy, &key, Cost::ONE);
                walls.push(began.elapsed());
                cpus.push(thread_cpu() - began_cpu);
            }
            walls.sort_unstable();
            cpus.sort_unstable();
            table.push((name, walls, cpus));
        };
        phase("new keys, growing", 0, &mut table);
        phase("the same again", 0, &mut table);
        clock.advance(Duration::from_secs(10));
        phase("other keys, all old ones expired", keys, &mut table);
        phase("the same again", keys, &mut table);
        for (name, walls, cpus) in table {
            let (good, ambitious) = if name.starts_with("other") {
                ("1000", "100")
            } else {
                ("", "")
            };
            let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
            println!(
                "| {algorithm} | {name} | {} | {:.1} | {:.1} | {:.1} | {good} | {ambitious} |",
                walls[keys / 2].as_nanos(),
                micros(cpus[keys * 999 / 1_000]),
                micros(cpus[keys - 1]),
                micros(walls[keys - 1]),
            );
        }
    }
}
