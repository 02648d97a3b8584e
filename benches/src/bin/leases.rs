//! Slots taken and given back a second, by one process: in memory and in Redis, on one key and on
//! many, beside a hand-written loop of the two script calls, and as a share of what
//! `redis-benchmark` makes of the same two.
//!
//! ```text
//! leases [--url redis://127.0.0.1:6379] [--tasks 1,64] [--keys 1,10000] [--seconds 2] [--rounds 3]
//!        [--threads 1] [--only memory,tollgate,loop,benchmark]
//! ```
//!
//! `redis-benchmark` takes and gives back by turns of a whole run, not of a pair: most of its
//! releases find nothing to give back, which is the cheaper case for the server.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a driver, which measures and fails by panicking"
)]

use std::future::Future;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use rustix::time::{ClockId, clock_gettime};
use tollgate::{Concurrency, Limiter};
use tollgate_benches::{arg, list, median, number};
use tollgate_redis::RedisBackend;

const SCRIPT: &str = include_str!("../../../lua/src/lease.lua");
const SLOTS: u32 = 1_000_000;

type Pair<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Somebody who takes a slot and gives it back.
trait Slots: Send + Sync {
    fn pair<'a>(&'a self, key: &'a str, task: u64) -> Pair<'a>;
}

struct Ours(Concurrency);

impl Slots for Ours {
    fn pair<'a>(&'a self, key: &'a str, _: u64) -> Pair<'a> {
        Box::pin(async move {
            let permit = self.0.acquire(key).await.unwrap();
            assert!(permit.release().await.unwrap());
        })
    }
}

/// The two calls and nothing else: no guard, no timeout, nobody who renews.
struct Loop {
    connection: MultiplexedConnection,
    sha: String,
}

impl Slots for Loop {
    fn pair<'a>(&'a self, key: &'a str, task: u64) -> Pair<'a> {
        Box::pin(async move {
            let mut connection = self.connection.clone();
            for call in ["acquire", "release"] {
                let mut command = redis::cmd("EVALSHA");
                command
                    .arg(&self.sha)
                    .arg(1)
                    .arg(key)
                    .arg(call)
                    .arg(format!("h{task}"))
                    .arg(60_000_000)
                    .arg(SLOTS);
                let answer: Vec<i64> = command.query_async(&mut connection).await.unwrap();
                assert_eq!(answer[0], 1);
            }
        })
    }
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Pairs a second, and the processor time of each in this process in microseconds.
async fn load(
    slots: &Arc<dyn Slots>,
    keys: &Arc<Vec<String>>,
    tasks: u64,
    seconds: u64,
) -> (f64, f64) {
    let count = Arc::new(AtomicU64::new(0));
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (slots, keys, count) = (Arc::clone(slots), Arc::clone(keys), Arc::clone(&count));
            tokio::spawn(async move {
                let mut random = task * 7_919 + 1;
                while began.elapsed() < Duration::from_secs(seconds) {
                    // The clock is a tenth of a pair in memory.
                    for _ in 0..8 {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let key = &keys[(random >> 33) as usize % keys.len()];
                        slots.pair(key, task).await;
                    }
                    count.fetch_add(8, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in running {
        task.await.unwrap();
    }
    let count = count.load(Ordering::Relaxed) as f64;
    (
        count / began.elapsed().as_secs_f64(),
        (cpu_seconds() - cpu) * 1e6 / count,
    )
}

/// Two `EVALSHA`s a second, one after the other, as redis-benchmark would do them.
fn benchmark(url: &str, sha: &str, keys: usize, tasks: u64, seconds: u64) -> f64 {
    let calls = (seconds * 20_000 * tasks.min(4)).to_string();
    let run = |call: &str| {
        let mut command = Command::new("redis-benchmark");
        command.args(["-u", url, "--csv", "-n", &calls, "-c", &tasks.to_string()]);
        let (range, key, holder) = match keys {
            1 => (tasks, "bench-lease", "h__rand_int__"),
            _ => (keys as u64, "bench-lease:__rand_int__", "h"),
        };
        command.args([
            "-r",
            &range.to_string(),
            "EVALSHA",
            sha,
            "1",
            key,
            call,
            holder,
        ]);
        command.args(["60000000", &SLOTS.to_string()]);
        let output = command.output().expect("redis-benchmark is in PATH");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate = text
            .lines()
            .last()
            .and_then(|line| line.split("\",\"").nth(1));
        rate.and_then(|rate| rate.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("redis-benchmark said {text}"))
    };
    1.0 / (1.0 / run("acquire") + 1.0 / run("release"))
}

fn limit(limiter: &Limiter) -> Arc<dyn Slots> {
    Arc::new(Ours(limiter.concurrency("bench", SLOTS).build().unwrap()))
}

fn main() {
    let url = arg("url");
    let (seconds, rounds) = (number("seconds", 2), number("rounds", 3));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(number("threads", 1) as usize)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let only = list("only", "memory,tollgate,loop,benchmark");
        let wanted = |name: &str| only.iter().any(|it| it == name);
        let mut rows: Vec<(&str, Arc<dyn Slots>)> = Vec::new();
        let memory = tollgate::connect("memory://").await.unwrap();
        let memory = Limiter::builder(memory).build();
        if wanted("memory") {
            rows.push(("memory", limit(&memory)));
        }
        let mut sha = String::new();
        let mut limiters = Vec::new();
        if let Some(url) = &url {
            let client = redis::Client::open(url.as_str()).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(SCRIPT);
            sha = load.query_async(&mut connection).await.unwrap();
            let backend = RedisBackend::builder(url).timeout(Duration::from_secs(10));
            let limiter = Limiter::builder(backend.connect().await.unwrap())
                .timeout(Duration::from_secs(10))
                .build();
            if wanted("tollgate") {
                rows.push(("redis", limit(&limiter)));
            }
            if wanted("loop") {
                rows.push((
                    "redis, loop",
                    Arc::new(Loop {
                        connection,
                        sha: sha.clone(),
                    }),
                ));
            }
            limiters.push(limiter);
        }
        println!("store           keys  tasks     pairs/s  cpu us  x redis-benchmark");
        for keys in list("keys", "1,10000") {
            let count: usize = keys.parse().unwrap();
            let all: Arc<Vec<_>> =
                Arc::new((0..count).map(|n| format!("client-{n:012}")).collect());
            for tasks in list("tasks", "1,64") {
                let tasks: u64 = tasks.parse().unwrap();
                let mut measured = vec![Vec::new(); rows.len()];
                let mut floors = Vec::new();
                for _ in 0..rounds {
                    for (row, (_, slots)) in rows.iter().enumerate() {
                        measured[row].push(load(slots, &all, tasks, seconds).await);
                    }
                    if let Some(url) = url.as_ref().filter(|_| wanted("benchmark")) {
                        floors.push(benchmark(url, &sha, count, tasks, seconds));
                    }
                }
                let floor = (!floors.is_empty()).then(|| median(floors));
                for ((name, _), rounds) in rows.iter().zip(&measured) {
                    let rate = median(rounds.iter().map(|round| round.0).collect());
                    let cpu = median(rounds.iter().map(|round| round.1).collect());
                    let share = floor.filter(|_| name.starts_with("redis"));
                    let share = share.map_or(String::from("-"), |it| format!("{:.2}", rate / it));
                    println!("{name:<13} {keys:>6} {tasks:>6} {rate:>11.0} {cpu:>7.1} {share:>18}");
                }
                if let Some(floor) = floor {
                    println!("{:<13} {keys:>6} {tasks:>6} {floor:>11.0}", "benchmark");
                }
            }
        }
    });
}
