//! Decisions a second over memcached from one process on one worker thread: ours, and the loop that
//! everybody writes (gets, decide, cas, again if another was first) over the same client. And several
//! processes on one hot key.
//!
//! ```text
//! memcached-load --address 127.0.0.1:11211 [--tasks 1,64,256] [--keys 1,100000] [--seconds 2]
//!                [--rounds 3] [--only ours,floor]
//! memcached-load --address 127.0.0.1:11211 --processes 4 [--limit 5000] [--charges 5000]
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a driver, which measures and fails by panicking"
)]

use std::future::Future;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memcache::exp::{AsyncMetaClient, Meta, Ttl};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tollgate_benches::{arg, list, median, number};
use tollgate_core::{Cost, CounterBackend, ErrorKind, Key, Policy, Quota, Subject};
use tollgate_memcached::MemcachedBackend;

type Check<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Somebody who decides.
trait Limiter: Send + Sync {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a>;
}

/// The hand-written loop: one number a key, the moment at which its bucket is full again.
struct Floor(AsyncMetaClient);

impl Limiter for Floor {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            const TOKEN: u64 = 1_000_000;
            const BURST: u64 = 1_000_000_000 * TOKEN;
            loop {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                let now = now.as_micros() as u64;
                let found = self.0.get(key).meta(Meta::default().cas()).send();
                let found = found.await.unwrap();
                let tat = found.value.as_deref().map_or(0, |text| {
                    std::str::from_utf8(text).unwrap().parse::<u64>().unwrap()
                });
                let next = tat.max(now) + TOKEN;
                if next - now > BURST {
                    return false;
                }
                let set = self.0.set(key, next.to_string()).ttl(Ttl::secs(3_600));
                let set = match found.item.cas {
                    Some(cas) => set.compare_cas(cas),
                    None => set.add(),
                };
                if set.send().await.unwrap().applied() {
                    return true;
                }
            }
        })
    }
}

struct Ours(MemcachedBackend, Policy);

impl Limiter for Ours {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            let key = Key::from(key);
            let decision = self.0.acquire(Subject::new(&self.1, &key), Cost::ONE).await;
            decision.unwrap().allowed()
        })
    }
}

const NAMES: [&str; 3] = ["floor", "ours-reading", "ours"];
const PATIENCE: Duration = Duration::from_secs(10);

async fn backend(address: &str, query: &str) -> MemcachedBackend {
    MemcachedBackend::builder(format!("memcached://{address}{query}"))
        .timeout(PATIENCE)
        .connect()
        .await
        .unwrap()
}

async fn make(name: &str, address: &str) -> Box<dyn Limiter> {
    let quota: Quota = "1/s token_bucket burst=1000000000".parse().unwrap();
    let ours = async |query| {
        let backend = backend(address, query).await;
        Box::new(Ours(backend, Policy::new(name, [quota]).unwrap()))
    };
    match name {
        "floor" => {
            let client = AsyncMetaClient::builder()
                .max_idle(16)
                .max_connections(Some(16))
                .connect_timeout(Some(PATIENCE))
                .io_timeout(Some(PATIENCE));
            Box::new(Floor(client.connect_async(address).await.unwrap()))
        }
        // Without memory: two trips a decision, like the loop.
        "ours-reading" => ours("?memory=0").await,
        "ours" => ours("").await,
        _ => panic!("--only: {name:?} is none of {NAMES:?}"),
    }
}

/// What one round of one limiter measured.
struct Round {
    rate: f64,
    trips: f64,
    client_cpu: f64,
    p50: f64,
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// How many gets and sets the server has seen.
async fn trips(address: &str) -> u64 {
    let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
    stream.write_all(b"stats\r\n").await.unwrap();
    let (mut trips, mut lines) = (0, stream.lines());
    while let Some(line) = lines.next_line().await.unwrap() {
        let mut words = line.split_ascii_whitespace().skip(1);
        match (words.next(), words.next()) {
            (Some("cmd_get" | "cmd_set"), Some(count)) => trips += count.parse::<u64>().unwrap(),
            (None, _) => break,
            _ => {}
        }
    }
    trips
}

async fn load(
    address: &str,
    limiter: &Arc<Box<dyn Limiter>>,
    keys: &Arc<Vec<String>>,
    tasks: u64,
    seconds: u64,
) -> Round {
    let count = Arc::new(AtomicU64::new(0));
    let before = trips(address).await;
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (limiter, keys, count) =
                (Arc::clone(limiter), Arc::clone(keys), Arc::clone(&count));
            tokio::spawn(async move {
                let mut random = task * 7_919 + 1;
                let mut waits = Vec::new();
                while began.elapsed() < Duration::from_secs(seconds) {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let key = &keys[(random >> 33) as usize % keys.len()];
                    let asked = Instant::now();
                    std::hint::black_box(limiter.check(key).await);
                    waits.push(asked.elapsed().as_secs_f64() * 1e6);
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
    let took = began.elapsed().as_secs_f64();
    let client_cpu = cpu_seconds() - cpu;
    let count = count.load(Ordering::Relaxed) as f64;
    Round {
        rate: count / took,
        trips: (trips(address).await - before) as f64 / count,
        client_cpu: client_cpu * 1e6 / count,
        p50: median(waits),
    }
}

/// Each key once, so that none is new when it is measured.
async fn warm(limiter: &Arc<Box<dyn Limiter>>, keys: &Arc<Vec<String>>) {
    let running: Vec<_> = (0..16)
        .map(|task| {
            let (limiter, keys) = (Arc::clone(limiter), Arc::clone(keys));
            tokio::spawn(async move {
                for key in keys.iter().skip(task).step_by(16) {
                    limiter.check(key).await;
                }
            })
        })
        .collect();
    for task in running {
        task.await.unwrap();
    }
}

async fn one_process(address: &str) {
    let (seconds, rounds) = (number("seconds", 2), number("rounds", 3));
    let names = list("only", &NAMES.join(","));
    println!(
        "limiter          keys    tasks  decisions/s    x floor  trips  client cpu us  p50 us"
    );
    for keys in list("keys", "1,100000") {
        let count: u64 = keys.parse().unwrap();
        let all: Arc<Vec<_>> = Arc::new(
            (0..count)
                .map(|n| format!("key_tenant_0123456789abcdef_{count:06}_{n:012}"))
                .collect(),
        );
        let mut limiters = Vec::new();
        for name in &names {
            let limiter = Arc::new(make(name, address).await);
            warm(&limiter, &all).await;
            limiters.push((name, limiter));
        }
        for tasks in list("tasks", "1,64,256") {
            let mut measured: Vec<Vec<Round>> = limiters.iter().map(|_| Vec::new()).collect();
            for _ in 0..rounds {
                for (i, (_, limiter)) in limiters.iter().enumerate() {
                    let tasks = tasks.parse().unwrap();
                    measured[i].push(load(address, limiter, &all, tasks, seconds).await);
                }
            }
            let middle =
                |rounds: &[Round], of: fn(&Round) -> f64| median(rounds.iter().map(of).collect());
            let floor = names.iter().position(|name| name == "floor");
            let floor = floor.map_or(f64::NAN, |i| middle(&measured[i], |round| round.rate));
            for ((name, _), rounds) in limiters.iter().zip(&measured) {
                let rate = middle(rounds, |round| round.rate);
                println!(
                    "{name:<13} {keys:>7} {tasks:>8} {rate:>12.0} {:>10.2} {:>6.2} {:>14.1} {:>7.0}",
                    rate / floor,
                    middle(rounds, |round| round.trips),
                    middle(rounds, |round| round.client_cpu),
                    middle(rounds, |round| round.p50),
                );
            }
        }
    }
}

/// One of several processes: so many charges on one key by 16 callers. Prints how many were
/// admitted, how many met an error, and how long it took.
async fn child(address: &str, policy: &str) {
    let (limit, charges) = (number("limit", 5_000), number("charges", 5_000));
    let quota: Quota = format!("{limit}/30d").parse().unwrap();
    let ours = Arc::new(backend(address, "").await);
    let policy = Policy::new(policy, [quota]).unwrap();
    // All begin at once.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let began = Instant::now();
    let (left, errors) = (AtomicU64::new(charges), AtomicU64::new(0));
    let shared = Arc::new((ours, policy, left, errors, AtomicU64::new(0)));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let (ours, policy, left, errors, admitted) = &*shared;
                let another = |left: u64| left.checked_sub(1);
                while left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, another)
                    .is_ok()
                {
                    let key = Key::from("hot");
                    match ours.acquire(Subject::new(policy, &key), Cost::ONE).await {
                        Ok(decision) => {
                            admitted.fetch_add(u64::from(decision.allowed()), Ordering::SeqCst)
                        }
                        Err(error) => {
                            let kind: ErrorKind = error.kind();
                            eprintln!("{kind}");
                            errors.fetch_add(1, Ordering::SeqCst)
                        }
                    };
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (_, _, _, errors, admitted) = &*shared;
    println!(
        "{} {} {}",
        admitted.load(Ordering::SeqCst),
        errors.load(Ordering::SeqCst),
        began.elapsed().as_secs_f64()
    );
}

fn several_processes(address: &str, processes: u64) {
    use std::io::Write as _;
    let (limit, charges) = (number("limit", 5_000), number("charges", 5_000));
    let name = format!("hot-{}", std::process::id());
    let children: Vec<_> = (0..processes)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--address", address, "--child", &name])
                .args([
                    "--limit",
                    &limit.to_string(),
                    "--charges",
                    &charges.to_string(),
                ])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut totals = [0.0_f64; 3];
    let children: Vec<_> = children
        .into_iter()
        .map(|mut child| {
            child.stdin.take().unwrap().write_all(b"go\n").unwrap();
            child
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let figures: Vec<f64> = text
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        totals[0] += figures[0];
        totals[1] += figures[1];
        totals[2] = totals[2].max(figures[2]);
    }
    let asked = processes * charges;
    println!(
        "{processes} processes of 16 callers, one key, limit {limit}: {asked} charges, {} admitted, {} errors, {:.0} a second",
        totals[0],
        totals[1],
        asked as f64 / totals[2],
    );
    let right = limit.min(asked) as f64;
    assert!(
        totals[0] == right && totals[1] == 0.0,
        "not exactly {right}, or errors"
    );
}

fn main() {
    let address = arg("address").unwrap_or_else(|| panic!("--address host:port is needed"));
    if let Some(processes) = arg("processes") {
        return several_processes(&address, processes.parse().unwrap());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    match arg("child") {
        Some(policy) => runtime.block_on(child(&address, &policy)),
        None => runtime.block_on(one_process(&address)),
    }
}
