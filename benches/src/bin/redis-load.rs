//! Decisions a second over Redis from one process: ours (also with concurrent charges coalesced), the least that any
//! correct limiter does (one hand-written `EVALSHA` of the smallest exact script), and another
//! library. `limitador` is left out: its Redis storage builds only together with RocksDB.
//!
//! ```text
//! redis-load --url redis://127.0.0.1:6379 [--tasks 1,64,256] [--keys 1,100000] [--seconds 2]
//!            [--rounds 3] [--threads 1] [--only ours,floor]
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a driver, which measures and fails by panicking"
)]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use rustix::time::{ClockId, clock_gettime};
use tollgate::Coalesced;
use tollgate_benches::{arg, list, median, number};
use tollgate_core::{Cost, CounterBackend, Key, Policy, Quota, SharedBackend, Subject};
use tollgate_redis::RedisBackend;

type Check<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Somebody who decides.
trait Limiter: Send + Sync {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a>;
}

/// A hand-written loop: the script, its two numbers, a key.
struct Floor {
    connection: MultiplexedConnection,
    sha: String,
}

impl Limiter for Floor {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            let mut connection = self.connection.clone();
            let mut command = redis::cmd("EVALSHA");
            command
                .arg(&self.sha)
                .arg(1)
                .arg(key)
                .arg(10_000_000)
                .arg(3_000_000_000_000_000_u64);
            let room: i64 = command.query_async(&mut connection).await.unwrap();
            room >= 0
        })
    }
}

struct Increment(MultiplexedConnection);

impl Limiter for Increment {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            let mut connection = self.0.clone();
            let _: i64 = redis::cmd("INCR")
                .arg(key)
                .query_async(&mut connection)
                .await
                .unwrap();
            true
        })
    }
}

struct Ours<B>(B, Policy);

impl<B: CounterBackend> Limiter for Ours<B> {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            let key = Key::from(key);
            let decision = self.0.acquire(Subject::new(&self.1, &key), Cost::ONE).await;
            decision.unwrap().allowed()
        })
    }
}

struct Trypema(
    Arc<trypema::redis::RedisRateLimiterProvider>,
    trypema::RateLimit,
);

impl Limiter for Trypema {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            let key = trypema::redis::RedisKey::try_from(key.to_owned()).unwrap();
            let decision = self.0.absolute().inc(&key, &self.1, 1).await.unwrap();
            matches!(decision, trypema::RateLimitDecision::Allowed)
        })
    }
}

const NAMES: [&str; 7] = [
    "increment",
    "floor",
    "ours",
    "ours-coalesced",
    "ours-window",
    "ours-log",
    "trypema",
];

async fn make(name: &str, url: &str) -> Box<dyn Limiter> {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    // Each charge takes ten seconds to come back, so that keys do not come and go meanwhile.
    let bucket = || {
        "1/10s token_bucket burst=300000000"
            .parse::<Quota>()
            .unwrap()
    };
    let connect = async || {
        let builder = RedisBackend::builder(url).timeout(Duration::from_secs(10));
        builder.connect().await.unwrap()
    };
    let ours = async |quota: Quota| {
        let policy = Policy::new(name, [quota]).unwrap();
        Box::new(Ours(connect().await, policy))
    };
    match name {
        "increment" => Box::new(Increment(connection)),
        "floor" => {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD")
                .arg(include_str!("../../redis/peers/gcra_str_min.lua"));
            let sha = load.query_async(&mut connection).await.unwrap();
            Box::new(Floor { connection, sha })
        }
        "ours" => ours(bucket()).await,
        "ours-coalesced" => {
            let policy = Policy::new(name, [bucket()]).unwrap();
            // As a limiter has it: who waits for another's trip does not carry a call of its own.
            let store = SharedBackend::new(connect().await);
            Box::new(Ours(Coalesced::new(store), policy))
        }
        "ours-window" => ours("1000000000/h sliding_window".parse().unwrap()).await,
        "ours-log" => ours("1000000000/s sliding_log".parse().unwrap()).await,
        "trypema" => {
            let manager = client.get_connection_manager().await.unwrap();
            use trypema::RateLimiterBuilder as _;
            let provider = trypema::redis::RedisRateLimiterProvider::builder(manager)
                .window_size(trypema::WindowSize::minutes_or_panic(1))
                .bucket_size(trypema::BucketSize::milliseconds_or_panic(100))
                .disable_cleanup()
                .build()
                .unwrap();
            Box::new(Trypema(
                provider,
                trypema::RateLimit::per_second_or_panic(1e9),
            ))
        }
        _ => panic!("--only: {name:?} is none of {NAMES:?}"),
    }
}

/// What one round of one limiter measured.
struct Round {
    rate: f64,
    client_cpu: f64,
    server_cpu: f64,
    p50: f64,
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// What the server has used, in seconds.
async fn server_seconds(watch: &mut MultiplexedConnection) -> f64 {
    let mut info = redis::cmd("INFO");
    let text: String = info.arg("cpu").query_async(watch).await.unwrap();
    let used = |line: &str| {
        line.strip_prefix("used_cpu_")?
            .split_once(':')?
            .1
            .parse::<f64>()
            .ok()
    };
    // The system's and the user's come first; those of children and threads are part of neither.
    text.lines().filter_map(used).take(2).sum()
}

async fn load(
    watch: &mut MultiplexedConnection,
    limiter: &Arc<Box<dyn Limiter>>,
    keys: &Arc<Vec<String>>,
    tasks: u64,
    seconds: u64,
) -> Round {
    let count = Arc::new(AtomicU64::new(0));
    let server = server_seconds(watch).await;
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (limiter, keys, count) =
                (Arc::clone(limiter), Arc::clone(keys), Arc::clone(&count));
            tokio::spawn(async move {
                let mut random = task * 7_919 + 1;
                let mut waits = Vec::new();
                let mut asked = began;
                while asked - began < Duration::from_secs(seconds) {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let key = &keys[(random >> 33) as usize % keys.len()];
                    std::hint::black_box(limiter.check(key).await);
                    // The clock is read once a check: two reads are a tenth of a shared one.
                    let answered = Instant::now();
                    waits.push((answered - asked).as_secs_f64() * 1e6);
                    asked = answered;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                waits
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in running {
        waits.extend(task.await.unwrap());
    }
    let count = count.load(Ordering::Relaxed) as f64;
    let server = server_seconds(watch).await - server;
    Round {
        server_cpu: server * 1e6 / count,
        rate: count / began.elapsed().as_secs_f64(),
        client_cpu: (cpu_seconds() - cpu) * 1e6 / count,
        p50: median(waits),
    }
}

fn main() {
    let url = arg("url").unwrap_or_else(|| panic!("--url redis://.. is needed"));
    let (seconds, rounds) = (number("seconds", 2), number("rounds", 3));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(number("threads", 1) as usize)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut watch = client.get_multiplexed_async_connection().await.unwrap();
        let names = list("only", &NAMES.join(","));
        let mut limiters = Vec::new();
        for name in &names {
            limiters.push((name, Arc::new(make(name, &url).await)));
        }
        println!("limiter       keys    tasks  decisions/s    x floor  client cpu us  server cpu us  p50 us");
        for keys in list("keys", "1,100000") {
            // A new quota each time, so that no key is left over; 40 bytes each.
            let count: u64 = keys.parse().unwrap();
            let all: Arc<Vec<_>> = Arc::new(
                (0..count)
                    .map(|n| format!("key_tenant_0123456789abcdef_{n:012}"))
                    .collect(),
            );
            for tasks in list("tasks", "1,64,256") {
                let mut measured: Vec<Vec<Round>> = limiters.iter().map(|_| Vec::new()).collect();
                for _ in 0..rounds {
                    for (i, (_, limiter)) in limiters.iter().enumerate() {
                        measured[i]
                            .push(load(&mut watch, limiter, &all, tasks.parse().unwrap(), seconds).await);
                    }
                }
                let middle = |rounds: &[Round], of: fn(&Round) -> f64| {
                    median(rounds.iter().map(of).collect())
                };
                let floor = names.iter().position(|name| name == "floor");
                let floor = floor.map_or(f64::NAN, |i| middle(&measured[i], |round| round.rate));
                for ((name, _), rounds) in limiters.iter().zip(&measured) {
                    let rate = middle(rounds, |round| round.rate);
                    println!(
                        "{name:<12} {keys:>7} {tasks:>6} {rate:>12.0} {:>10.2} {:>14.1} {:>14.1} {:>7.0}",
                        rate / floor,
                        middle(rounds, |round| round.client_cpu),
                        middle(rounds, |round| round.server_cpu),
                        middle(rounds, |round| round.p50),
                    );
                }
            }
        }
    });
}
