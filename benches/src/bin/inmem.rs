//! `inmem [--only a,b] [--keys 1,1000,1000000] [--threads 1,2] [--path allow,deny] [--rounds 5] [--ms 300]`
//!
//! Nanoseconds a keyed check, and the ratio to `governor` in the same run. Medians of the rounds.

use std::time::Duration;

use tollgate_benches::inmem::{NAMES, Nanos, key, make, run};
use tollgate_benches::{list, median, number};

fn main() {
    let only = list("only", &NAMES.join(","));
    let (rounds, ms) = (number("rounds", 5), number("ms", 300));
    println!(
        "| keys | path | threads | limiter | wall ns | cpu ns | wall x | cpu x | good | ambitious |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for keys in list("keys", "1,1000,1000000") {
        let n: usize = keys.parse().expect("--keys: numbers");
        let keys: Vec<String> = (0..n).map(key).collect();
        for path in list("path", "allow,deny") {
            let limiters: Vec<_> = NAMES
                .iter()
                .filter(|name| only.iter().any(|only| only == *name))
                .map(|name| (*name, make(name, n, path == "deny")))
                .collect();
            for (_, limiter) in &limiters {
                for key in &keys {
                    limiter.check(key);
                }
            }
            for threads in list("threads", "1,2") {
                let threads: usize = threads.parse().expect("--threads: numbers");
                let mut results = vec![Vec::new(); limiters.len()];
                for _ in 0..rounds {
                    for (result, (_, limiter)) in results.iter_mut().zip(&limiters) {
                        let time = Duration::from_millis(ms);
                        result.push(run(limiter.as_ref(), &keys, threads, time));
                    }
                }
                let of = |result: &Vec<Nanos>, what: fn(&Nanos) -> f64| {
                    median(result.iter().map(what).collect())
                };
                let (wall, cpu) = (|n: &Nanos| n.wall, |n: &Nanos| n.cpu);
                let anchor = limiters.iter().position(|(name, _)| *name == "governor");
                for ((name, _), result) in limiters.iter().zip(&results) {
                    let ratio = |what| {
                        anchor.map_or_else(String::new, |i| {
                            format!("{:.2}", of(result, what) / of(&results[i], what))
                        })
                    };
                    let (good, ambitious) = target(name, n, &path, threads);
                    println!(
                        "| {n} | {path} | {threads} | {name} | {:.1} | {:.1} | {} | {} | {good} | {ambitious} |",
                        of(result, wall),
                        of(result, cpu),
                        ratio(wall),
                        ratio(cpu),
                    );
                }
            }
        }
    }
}

/// What the ratio should be at most, where that was decided.
fn target(name: &str, keys: usize, path: &str, threads: usize) -> (&'static str, &'static str) {
    match (name, keys, path, threads) {
        ("tollgate-async", ..) => ("1.3", ""),
        ("tollgate", 1..=1_000, "allow", 1) => ("0.85", "0.6"),
        ("tollgate", 1..=1_000, "deny", 1) => ("0.75", "0.55"),
        ("tollgate", 1, "allow", 2) => ("0.8", "0.55"),
        ("tollgate", 1, "deny", 2) => ("0.6", "0.3"),
        ("tollgate", 1_000_000, _, 1) => ("0.9", "0.65"),
        _ => ("", ""),
    }
}
