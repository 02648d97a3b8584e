//! Everything together: the limiter over real stores, and what happens when those fail.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod atomicity;
mod breaker;
mod clocks;
mod coalesced;
#[cfg(feature = "containers")]
mod containers;
mod contracts;
mod coverage;
mod documents;
mod dynamodb;
mod failopen;
mod failover;
mod input;
mod keys;
mod kill_storm;
mod memcached;
mod numbers;
mod outage;
mod processes;
mod races;
mod refunds;
mod storms;
mod support;
