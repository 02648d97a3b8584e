//! What the wrappers cost over a bare backend, and what a remembered refusal costs; and `moka`
//! beside the table that remembers.
//!
//! `--keys 1000 --calls 200000 --rounds 15 --only RateLimit`
#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::collections::BTreeMap;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tollgate::memory::MemoryBackend;
use tollgate::{
    Breaker, CircuitBreaker, Cost, CounterBackend, FailurePolicy, Fallback, Key, Limiter, Policy,
    Quota, SharedBackend, Subject, Tiered, Timeout,
};
use tollgate_benches::{median, number};

/// Runs a future that is ready at once, as a runtime polls it the first time.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("memory answers at once"),
    }
}

type Stack<B> = Tiered<Fallback<CircuitBreaker<Timeout<B>>>>;

fn stack<B: CounterBackend>(backend: B) -> Stack<B> {
    let timeout = Timeout::new(backend, Duration::from_millis(50));
    let breaker = CircuitBreaker::new(timeout, Breaker::default());
    Tiered::new(Fallback::new(breaker, FailurePolicy::Open), 100_000)
}

fn charge(backend: &impl CounterBackend, policy: &Policy, key: &str) -> bool {
    let key = Key::from(key);
    now(backend.acquire(Subject::new(policy, &key), Cost::ONE)).is_ok_and(|d| d.allowed())
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Row<'a> {
    name: &'static str,
    call: Box<dyn FnMut(&str) -> bool + 'a>,
    expect: bool,
}

fn row<'a>(name: &'static str, expect: bool, call: impl FnMut(&str) -> bool + 'a) -> Row<'a> {
    let call = Box::new(call);
    Row { name, call, expect }
}

fn main() {
    let keys: Vec<String> = (0..number("keys", 1_000))
        .map(|i| {
            format!(
                "tenant:{:016x}:user:{i:011}",
                i.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            )
        })
        .collect();
    let (calls, rounds) = (number("calls", 200_000), number("rounds", 15));
    let wide = Quota::token_bucket(1_000_000_000, Duration::from_secs(1)).expect("it can");
    let narrow = Quota::token_bucket(1, Duration::from_secs(86_400)).expect("it can");
    let wide = Policy::new("wide", [wide]).expect("the name is short");
    let narrow = Policy::new("narrow", [narrow]).expect("the name is short");

    let bare = MemoryBackend::new();
    let erased = SharedBackend::new(MemoryBackend::new());
    let by_type = stack(MemoryBackend::new());
    let quiet_stack = stack(MemoryBackend::new());
    let timeout = Timeout::new(MemoryBackend::new(), Duration::from_millis(50));
    let breaker = CircuitBreaker::new(MemoryBackend::new(), Breaker::default());
    let fallback = Fallback::new(MemoryBackend::new(), FailurePolicy::Open);
    let tiered = Tiered::new(MemoryBackend::new(), 100_000);
    let limiter = Limiter::builder(MemoryBackend::new()).build();
    let limit = limiter
        .policy("wide", wide.quotas().iter().copied())
        .expect("it is free");
    let limit_narrow = limiter
        .policy("narrow", narrow.quotas().iter().copied())
        .expect("it is free");
    let quiet = Limiter::builder(MemoryBackend::new()).build();
    let quiet = quiet
        .policy("wide", wide.quotas().iter().copied())
        .expect("it is free");

    let moka = moka::sync::Cache::builder()
        .max_capacity(100_000)
        .time_to_live(Duration::from_secs(3_600))
        .build_with_hasher(foldhash::fast::RandomState::default());
    let hash = foldhash::quality::FixedState::default();
    let hashed = |key: &str| {
        use std::hash::BuildHasher;
        u128::from(hash.hash_one(key))
    };
    for key in &keys {
        moka.insert(hashed(key), (Instant::now(), 1_u64));
        for _ in 0..2 {
            charge(&by_type, &narrow, key);
            charge(&tiered, &narrow, key);
            let _ = now(std::future::IntoFuture::into_future(
                limit_narrow.acquire(key),
            ));
        }
        charge(&bare, &narrow, key);
    }
    moka.run_pending_tasks();

    let mut rows = vec![
        row("bare memory, admitted", true, |key| {
            charge(&bare, &wide, key)
        }),
        row("SharedBackend", true, |key| charge(&erased, &wide, key)),
        row("Timeout(memory)", true, |key| charge(&timeout, &wide, key)),
        row("CircuitBreaker(memory)", true, |key| {
            charge(&breaker, &wide, key)
        }),
        row("Fallback(memory)", true, |key| {
            charge(&fallback, &wide, key)
        }),
        row("whole stack", true, |key| charge(&quiet_stack, &wide, key)),
        row("whole stack, refusals remembered", true, |key| {
            charge(&by_type, &wide, key)
        }),
        row("RateLimit::acquire", true, |key| {
            now(std::future::IntoFuture::into_future(quiet.acquire(key))).is_ok_and(|d| d.allowed())
        }),
        row("RateLimit::acquire, refusals remembered", true, |key| {
            now(std::future::IntoFuture::into_future(limit.acquire(key))).is_ok_and(|d| d.allowed())
        }),
        row("bare memory, refused", false, |key| {
            charge(&bare, &narrow, key)
        }),
        row("whole stack, refused by Tiered", false, |key| {
            charge(&by_type, &narrow, key)
        }),
        row("RateLimit::acquire, refused by Tiered", false, |key| {
            now(std::future::IntoFuture::into_future(
                limit_narrow.acquire(key),
            ))
            .is_ok_and(|d| d.allowed())
        }),
        row("moka, hit", true, |key| {
            moka.get(&hashed(key))
                .is_some_and(|(at, _)| at.elapsed() < Duration::from_secs(3_600))
        }),
        row("moka, miss", false, |key| moka.get(&!hashed(key)).is_some()),
    ];
    if let Some(only) = tollgate_benches::arg("only") {
        rows.retain(|row| row.name.contains(&only));
    }
    let mut taken: BTreeMap<usize, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for round in 0..=rounds {
        for (i, row) in rows.iter_mut().enumerate() {
            let mut x = 0x2545_F491_4F6C_DD1D_u64 ^ round;
            let (wall, used) = (Instant::now(), cpu());
            for _ in 0..calls {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let key = &keys[(x % keys.len() as u64) as usize];
                assert_eq!((row.call)(black_box(key)), row.expect, "{}", row.name);
            }
            let per_call = |time: Duration| time.as_nanos() as f64 / calls as f64;
            // The first round warms up.
            if round > 0 {
                let (walls, cpus) = taken.entry(i).or_default();
                walls.push(per_call(wall.elapsed()));
                cpus.push(per_call(cpu() - used));
            }
        }
    }
    println!(
        "{:<42} {:>9} {:>9} {:>9}",
        "ns a call", "cpu", "least cpu", "wall"
    );
    for (i, (walls, cpus)) in taken {
        let least = cpus.iter().copied().fold(f64::INFINITY, f64::min);
        let name = rows[i].name;
        println!(
            "{name:<42} {:>9.1} {least:>9.1} {:>9.1}",
            median(cpus),
            median(walls)
        );
    }
}
