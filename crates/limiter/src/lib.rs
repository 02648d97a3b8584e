//! Exact rate limits that all processes of a service share: the crate to depend on.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{FailurePolicy, Limiter, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder(tollgate::connect("memory://").await?)
//!     .timeout(Duration::from_millis(50))
//!     .on_failure(FailurePolicy::Open)
//!     .build();
//! let login = limiter.policy("login", [Quota::sliding_window(5, Duration::from_secs(900))?])?;
//!
//! let decision = login.acquire("alice").await?;
//! assert!(decision.allowed());
//! assert_eq!(decision.remaining(), Some(4));
//! # Ok(())
//! # }
//! ```
//!
//! - [`connect`] turns a URL into a store; the features of this crate decide which schemes are in.
//! - [`Limiter`] puts the protection around it, and [`RateLimit`] is one policy, ready to be asked.
//! - [`Limiter::concurrency`] limits how many run at the same time, and a [`Permit`] is a slot.
//! - [`Coalesced`], [`Timeout`], [`CircuitBreaker`], [`Fallback`] and [`Tiered`] are that
//!   protection, each a backend around a backend, for those who stack their own.
//! - [`Health`] says whether limits are being enforced, and [`Limiter::watch`] when that changes.
//!
//! Everything of `tollgate_core` is here too.

mod acquire;
mod breaker;
mod builder;
mod coalesced;
mod concurrency;
mod connect;
mod error;
mod failure_policy;
mod fallback;
mod health;
mod hit;
#[cfg(feature = "http")]
pub mod http;
mod identity;
mod limiter;
mod metering;
mod monitor;
#[cfg(feature = "http")]
mod probe;
mod rate_limit;
pub mod testing;
mod tiered;
mod time;
mod timeout;
mod wait;

pub use tollgate_core::*;

pub use acquire::{Acquire, AcquireFuture, Peek};
pub use breaker::{Breaker, BreakerState, CircuitBreaker};
pub use builder::Builder;
pub use coalesced::Coalesced;
pub use concurrency::{Concurrency, ConcurrencyBuilder, ConcurrencyError, Permit, RunError};
pub use connect::{Connect, ConnectError, connect};
pub use error::Error;
pub use failure_policy::{FailurePolicy, UnknownFailurePolicy};
pub use fallback::Fallback;
pub use health::{Health, Watch};
pub use hit::{Hit, HitFuture};
pub use limiter::Limiter;
#[cfg(feature = "http")]
pub use probe::Probe;
pub use rate_limit::RateLimit;
pub use tiered::Tiered;
pub use timeout::Timeout;

/// Counting in DynamoDB: [`DynamoBackend`](dynamodb::DynamoBackend).
#[cfg(feature = "dynamodb")]
pub use tollgate_dynamodb as dynamodb;
/// Counting in memcached: [`MemcachedBackend`](memcached::MemcachedBackend).
#[cfg(feature = "memcached")]
pub use tollgate_memcached as memcached;
/// Counting in this process: [`MemoryBackend`](memory::MemoryBackend).
#[cfg(feature = "memory")]
pub use tollgate_memory as memory;
/// Counting in Redis or Valkey: [`RedisBackend`](redis::RedisBackend).
#[cfg(feature = "redis")]
pub use tollgate_redis as redis;
