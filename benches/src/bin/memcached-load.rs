//! Decisions a second over memcached from one process on one worker thread: ours (also without memory,
//! and with concurrent charges coalesced), and the loop that everybody writes (gets, decide, cas, again
//! if another was first) over the same client. And several processes on one hot key.
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

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memcache::exp::{AsyncMetaClient, Meta, Ttl};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tollgate::Coalesced;
use tollgate_benches::load::{Check, Comparison, Limiter, Ours};
use tollgate_benches::{arg, number};
use tollgate_core::{Cost, CounterBackend, ErrorKind, Key, Policy, Quota, SharedBackend, Subject};
use tollgate_memcached::MemcachedBackend;

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

const NAMES: [&str; 4] = ["floor", "ours-reading", "ours", "ours-coalesced"];
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
        // As a limiter has it: who waits for another's trip does not carry a call of its own.
        "ours-coalesced" => {
            let store = SharedBackend::new(backend(address, "").await);
            let policy = Policy::new(name, [quota]).unwrap();
            Box::new(Ours(Coalesced::new(store), policy))
        }
        // Without memory: two trips a decision, like the loop.
        "ours-reading" => ours("?memory=0").await,
        "ours" => ours("").await,
        _ => panic!("--only: {name:?} is none of {NAMES:?}"),
    }
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

async fn one_process(address: &str) {
    let comparison = Comparison {
        names: &NAMES,
        floor: "floor",
        column: "trips",
        warm: true,
    };
    let make = async |name: &str| make(name, address).await;
    let trips = async || trips(address).await as f64;
    comparison.run(make, trips).await;
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
