//! The conformance suite through every wrapper, over a store in memory.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{Mode, Scripted};
#[cfg(feature = "memory")]
use tollgate::SharedBackend;
use tollgate::{
    Breaker, CasBackend, CircuitBreaker, Coalesced, FailurePolicy, Fallback, Tiered, Timeout,
};
use tollgate_testkit::conformance::Options;
use tollgate_testkit::{MapStore, conformance};

const LIMIT: Duration = Duration::from_secs(60);

fn store() -> CasBackend<MapStore> {
    // Many tasks on one key: each may lose often.
    CasBackend::new(MapStore::default()).attempts(100_000)
}

#[cfg(feature = "memory")]
async fn memory() -> SharedBackend {
    tollgate::connect("memory://").await.unwrap()
}

const REMEMBERS: Options = Options {
    remembers_refusals: true,
    largest_log: None,
};

conformance!(coalesced, Coalesced::new(store()));
conformance!(
    coalesced_over_a_store_that_waits,
    Coalesced::new(Scripted::new(Mode::Yields(3)))
);
conformance!(
    coalesced_over_a_store_that_merges,
    Coalesced::new(Scripted::new(Mode::Yields(3)).merging())
);
conformance!(
    coalesced_that_is_too_small,
    Coalesced::new(Scripted::new(Mode::Yields(3))).queue(2)
);
#[cfg(feature = "memory")]
conformance!(coalesced_over_memory, Coalesced::new(memory().await));
conformance!(timeout, Timeout::new(store(), LIMIT));
conformance!(breaker, CircuitBreaker::new(store(), Breaker::default()));
conformance!(fallback, Fallback::new(store(), FailurePolicy::Closed));
conformance!(tiered, Tiered::new(store(), 100_000), REMEMBERS);
conformance!(tiered_that_is_too_small, Tiered::new(store(), 3), REMEMBERS);
conformance!(tiered_that_is_off, Tiered::new(store(), 0));
#[cfg(feature = "memory")]
conformance!(
    whole_stack_over_memory,
    Tiered::new(
        Fallback::new(
            CircuitBreaker::new(
                Timeout::new(Coalesced::new(memory().await), LIMIT),
                Breaker::default(),
            ),
            FailurePolicy::Closed,
        ),
        100_000,
    ),
    REMEMBERS
);
#[cfg(feature = "memory")]
conformance!(connected, memory().await);
