//! Keyed checks in one process: who is measured, and how.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use rustix::time::{ClockId, clock_gettime};
use tollgate_core::{Cost, CounterBackend, Key, Policy, Quota, Subject};
use tollgate_memory::MemoryBackend;

/// A keyed limiter under test.
pub trait Keyed: Send + Sync {
    /// One check of one permit; whether it was allowed.
    fn check(&self, key: &str) -> bool;
}

/// Who is measured, in the order of the tables.
pub const NAMES: [&str; 4] = ["floor", "governor", "tollgate", "tollgate-async"];

/// One of them. `deny`: a quota of one an hour, so that all checks but the first are refused; else
/// one that is never used up. Governor's is the same.
///
/// # Panics
/// When there is none of that name.
#[must_use]
pub fn make(name: &str, keys: usize, deny: bool) -> Box<dyn Keyed> {
    match name {
        "floor" => Box::new(Floor(foldhash::fast::FixedState::default())),
        "governor" => Box::new(Governor(governor::RateLimiter::dashmap(if deny {
            governor::Quota::per_hour(NonZeroU32::MIN)
        } else {
            governor::Quota::per_second(NonZeroU32::new(1_000_000_000).expect("is not 0"))
        }))),
        "tollgate" => Box::new(Tollgate::new(keys, deny)),
        "tollgate-async" => Box::new(TollgateAsync(Tollgate::new(keys, deny))),
        _ => panic!("no limiter is called {name:?}"),
    }
}

/// What the loop and one hash of the key cost: nobody can be faster.
struct Floor(foldhash::fast::FixedState);

impl Keyed for Floor {
    fn check(&self, key: &str) -> bool {
        self.0.hash_one(key) & 1 == 0
    }
}

/// `governor`, keyed by strings over a `DashMap`; its keyed stores take an owned key.
struct Governor(governor::RateLimiter<String, DashMapStateStore<String>, DefaultClock>);

impl Keyed for Governor {
    fn check(&self, key: &str) -> bool {
        self.0.check_key(&key.to_owned()).is_ok()
    }
}

/// The direct synchronous call.
struct Tollgate {
    backend: MemoryBackend,
    policy: Policy,
}

impl Tollgate {
    fn new(keys: usize, deny: bool) -> Self {
        let quota = if deny {
            Quota::token_bucket(1, Duration::from_secs(3_600))
        } else {
            Quota::token_bucket(1_000_000_000, Duration::from_secs(1))
        };
        let quota = quota.expect("both can be counted exactly");
        Self {
            backend: MemoryBackend::builder()
                .max_keys(keys.max(1_000_000) as u64)
                .build(),
            policy: Policy::new("bench", [quota]).expect("the name is short"),
        }
    }
}

impl Keyed for Tollgate {
    fn check(&self, key: &str) -> bool {
        self.backend
            .try_acquire(&self.policy, key, Cost::ONE)
            .allowed()
    }
}

/// Through the trait: a subject and a future a call, polled once.
struct TollgateAsync(Tollgate);

impl Keyed for TollgateAsync {
    fn check(&self, key: &str) -> bool {
        let key = Key::from(key);
        let subject = Subject::new(&self.0.policy, &key);
        let call = pin!(self.0.backend.acquire(subject, Cost::ONE));
        match call.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(decision)) => decision.allowed(),
            _ => unreachable!("the memory backend answers at once"),
        }
    }
}

/// Keys of 40 bytes that differ in the middle, as real ones do.
#[must_use]
pub fn key(i: usize) -> String {
    let scrambled = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("tenant:{scrambled:016x}:user:{i:011}")
}

/// A random order over `n` keys, the same for everybody.
#[must_use]
pub fn order(n: usize, len: usize, seed: u64) -> Vec<u32> {
    let mut x = seed | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            ((x >> 11) % n as u64) as u32
        })
        .collect()
}

/// Processor time of this thread so far.
#[must_use]
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Nanoseconds a check.
#[derive(Clone, Copy, Debug)]
pub struct Nanos {
    /// By the clock on the wall.
    pub wall: f64,
    /// Of processor time: not inflated by busy neighbours, but without time spent asleep.
    pub cpu: f64,
}

/// Checks random keys on some threads for about `time`; the mean of the threads.
///
/// # Panics
/// When a thread does.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "it measures")]
pub fn run(limiter: &dyn Keyed, keys: &[String], threads: usize, time: Duration) -> Nanos {
    let len = 1 << 16;
    let barrier = Barrier::new(threads);
    let one = |thread: u64| {
        let mut seed = 0x1234_5678 + thread * 7_919;
        let mut visit = order(keys.len(), len, seed);
        barrier.wait();
        let start = Instant::now();
        let (mut checks, mut busy, mut cpu) = (0, Duration::ZERO, Duration::ZERO);
        while start.elapsed() < time {
            let (began, began_cpu) = (Instant::now(), thread_cpu());
            let mut allowed = 0_u64;
            for &i in &visit {
                allowed += u64::from(limiter.check(&keys[i as usize]));
            }
            busy += began.elapsed();
            cpu += thread_cpu() - began_cpu;
            black_box(allowed);
            checks += len;
            if keys.len() > 4_096 {
                // Another order, outside what is timed, so that all keys are visited.
                seed = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9);
                visit = order(keys.len(), len, seed);
            }
        }
        let each = |spent: Duration| spent.as_nanos() as f64 / checks as f64;
        Nanos {
            wall: each(busy),
            cpu: each(cpu),
        }
    };
    let all: Vec<Nanos> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..threads as u64)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread of a driver does not panic"))
            .collect()
    });
    let mean = |of: fn(&Nanos) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    Nanos {
        wall: mean(|nanos| nanos.wall),
        cpu: mean(|nanos| nanos.cpu),
    }
}
