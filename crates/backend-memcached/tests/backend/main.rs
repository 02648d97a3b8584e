//! The backend against real servers, and against servers and networks that misbehave.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod expiry;
mod keys;
mod lost;
mod pool;
mod races;
mod servers;
mod start;
mod trips;

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{
    BackendError, Cost, CounterBackend, Decision, Key, Policy, Quota, Subject, Timestamp,
};
use tollgate_memcached::MemcachedBackend;

/// An edge of every window that the tests use.
const T0: Timestamp = Timestamp::from_micros(1_700_006_400_000_000);

fn at(millis: u64) -> Timestamp {
    T0 + Duration::from_millis(millis)
}

/// Nobody waits this long on purpose.
const PATIENCE: Duration = Duration::from_secs(20);

/// A name that nobody else uses, in this run or another on the same server.
fn name() -> String {
    static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
    static NAMES: AtomicU64 = AtomicU64::new(0);
    format!("p{:x}.{}", *RUN, NAMES.fetch_add(1, Ordering::Relaxed))
}

/// A policy with a name of its own.
fn policy(text: &str) -> Policy {
    let quotas = Quota::parse_list(text).expect("the quota of a test is good");
    Policy::new(&name(), quotas).expect("the policy of a test is good")
}

/// The name in the store of what a backend counts for "k" by default.
fn key_of(policy: &Policy) -> String {
    tollgate_core::storage_key("tollgate", policy, &Key::from("k"))
}

async fn backend(url: impl Into<String>) -> MemcachedBackend {
    MemcachedBackend::builder(url)
        .timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("the server is up")
}

/// One charge for "k", at a time or now.
async fn charge(
    backend: &impl CounterBackend,
    policy: &Policy,
    at: Option<Timestamp>,
    cost: u64,
) -> Result<Decision, BackendError> {
    let key = Key::from("k");
    let subject = Subject {
        policy,
        key: &key,
        at,
    };
    let cost = Cost::new(cost).expect("not 0");
    backend.acquire(subject, cost).await
}

/// Whether it was admitted, and what remains.
fn facts(decision: &Decision) -> (bool, u64) {
    let remaining = decision.remaining().expect("a store answered");
    (decision.allowed(), remaining)
}
