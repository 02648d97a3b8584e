//! The backend against real servers, and against servers and networks that misbehave.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod conformance;
mod executor;
mod expiry;
mod leases;
mod lost;
mod numbers;
mod scripts;
mod start;
mod stub;
mod together;
mod topologies;

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{
    BackendError, Cost, CounterBackend, Decision, Key, Policy, Quota, Subject, Timestamp,
};
use tollgate_redis::RedisBackend;

/// An edge of every window that the tests use.
const T0: Timestamp = Timestamp::from_micros(1_700_006_400_000_000);

fn at(millis: u64) -> Timestamp {
    T0 + Duration::from_millis(millis)
}

/// Nobody waits this long on purpose.
const PATIENCE: Duration = Duration::from_secs(20);

fn quotas(text: &str) -> Vec<Quota> {
    Quota::parse_list(text).expect("the quota of a test is good")
}

/// A name that nobody else uses, in this run or another on the same server.
fn name() -> String {
    static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
    static NAMES: AtomicU64 = AtomicU64::new(0);
    format!("p{:x}.{}", *RUN, NAMES.fetch_add(1, Ordering::Relaxed))
}

/// A policy with a name of its own.
fn policy(text: &str) -> Policy {
    Policy::new(&name(), quotas(text)).expect("the policy of a test is good")
}

/// The name in the store of what `backend` counts for "k" by default.
fn key_of(policy: &Policy) -> String {
    tollgate_core::storage_key("tollgate", policy, &Key::from("k"))
}

async fn backend(url: impl Into<String>) -> RedisBackend {
    RedisBackend::builder(url)
        .timeout(PATIENCE)
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
    backend
        .acquire(subject, Cost::new(cost).expect("not 0"))
        .await
}

/// Whether it was admitted, what remains, and the wait in milliseconds.
fn facts(decision: &Decision) -> (bool, u64, Option<u64>) {
    let remaining = decision.remaining().expect("a store answered");
    let wait = decision.retry_after().map(|wait| {
        assert_eq!(wait.subsec_micros() % 1_000, 0, "{wait:?}");
        wait.as_millis() as u64
    });
    (decision.allowed(), remaining, wait)
}
