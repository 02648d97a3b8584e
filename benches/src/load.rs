//! Decisions a second over a store, from many tasks of one process: the table that the drivers of
//! stores share.

#![expect(
    clippy::future_not_send,
    reason = "a driver awaits it on its main thread"
)]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tollgate_core::{Cost, CounterBackend, Key, Policy, Subject};

use crate::{list, median, number};

/// Whether one charge was admitted.
pub type Check<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Somebody who decides.
pub trait Limiter: Send + Sync {
    /// One charge.
    fn check<'a>(&'a self, key: &'a str) -> Check<'a>;
}

/// A backend of ours, bare or wrapped.
#[derive(Debug)]
pub struct Ours<B>(pub B, pub Policy);

impl<B: CounterBackend> Limiter for Ours<B> {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            let key = Key::from(key);
            let decision = self.0.acquire(Subject::new(&self.1, &key), Cost::ONE).await;
            decision
                .unwrap_or_else(|error| panic!("{}: {error}", self.0))
                .allowed()
        })
    }
}

/// What is compared, and how.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// All that there are; `--only` leaves some out.
    pub names: &'a [&'a str],
    /// The one that is 1.
    pub floor: &'a str,
    /// What the figure is called.
    pub column: &'a str,
    /// Whether each key is charged once before it is measured, so that none is new.
    pub warm: bool,
}

impl Comparison<'_> {
    /// Measures each in turn, round by round, and prints the table. `figure` is read before and
    /// after: what it has grown by is told for each decision.
    pub async fn run(
        &self,
        make: impl AsyncFn(&str) -> Box<dyn Limiter>,
        figure: impl AsyncFn() -> f64,
    ) {
        let (seconds, rounds) = (number("seconds", 2), number("rounds", 3));
        let names = list("only", &self.names.join(","));
        for name in &names {
            assert!(
                self.names.contains(&name.as_str()),
                "--only: {name:?} is none of {:?}",
                self.names
            );
        }
        println!(
            "limiter          keys    tasks  decisions/s    x floor {:>14}  client cpu us  p50 us",
            self.column
        );
        for keys in list("keys", "1,100000") {
            let count: u64 = keys
                .parse()
                .unwrap_or_else(|_| panic!("--keys: {keys:?} is no number"));
            let all: Arc<Vec<_>> = Arc::new(
                (0..count)
                    .map(|n| format!("key_tenant_0123456789abcdef_{n:012}"))
                    .collect(),
            );
            let mut limiters = Vec::new();
            for name in &names {
                let limiter = Arc::new(make(name).await);
                if self.warm {
                    warm(&limiter, &all).await;
                }
                limiters.push((name, limiter));
            }
            for tasks in list("tasks", "1,64,256") {
                let mut measured: Vec<Vec<Round>> = limiters.iter().map(|_| Vec::new()).collect();
                for _ in 0..rounds {
                    for (i, (_, limiter)) in limiters.iter().enumerate() {
                        let tasks = tasks.parse().expect("--tasks are numbers");
                        measured[i].push(load(limiter, &all, tasks, seconds, &figure).await);
                    }
                }
                let middle = |rounds: &[Round], of: fn(&Round) -> f64| {
                    median(rounds.iter().map(of).collect())
                };
                let floor = names.iter().position(|name| name == self.floor);
                let floor = floor.map_or(f64::NAN, |i| middle(&measured[i], |round| round.rate));
                for ((name, _), rounds) in limiters.iter().zip(&measured) {
                    let rate = middle(rounds, |round| round.rate);
                    println!(
                        "{name:<14} {keys:>6} {tasks:>8} {rate:>12.0} {:>10.2} {:>14.2} {:>14.1} {:>7.0}",
                        rate / floor,
                        middle(rounds, |round| round.figure),
                        middle(rounds, |round| round.client_cpu),
                        middle(rounds, |round| round.p50),
                    );
                }
            }
        }
    }
}

/// What one round of one limiter measured.
struct Round {
    rate: f64,
    figure: f64,
    client_cpu: f64,
    p50: f64,
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
async fn load(
    limiter: &Arc<Box<dyn Limiter>>,
    keys: &Arc<Vec<String>>,
    tasks: u64,
    seconds: u64,
    figure: &impl AsyncFn() -> f64,
) -> Round {
    let count = Arc::new(AtomicU64::new(0));
    let before = figure().await;
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
        waits.extend(task.await.expect("no check panics"));
    }
    let took = began.elapsed().as_secs_f64();
    let client_cpu = cpu_seconds() - cpu;
    let count = count.load(Ordering::Relaxed) as f64;
    Round {
        rate: count / took,
        figure: (figure().await - before) / count,
        client_cpu: client_cpu * 1e6 / count,
        p50: median(waits),
    }
}

/// Each key once.
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
        task.await.expect("no check panics");
    }
}
