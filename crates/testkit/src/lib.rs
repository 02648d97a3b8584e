//! What proves a Tollgate backend: a conformance suite for any of them, yours included, and the
//! servers and faults to test it against.
//!
//! - [`conformance!`] gives one named test for each rule that a backend must keep: the traces with
//!   the right answer to every step, laws under random calls, races, odd keys, expiry.
//! - [`lease_conformance!`] does the same for stores of leases.
//! - [`RedisServer`], [`RedisCluster`] and [`Sentinel`] are real servers that a test may kill, freeze
//!   and restart; [`shared_redis`] is one for all tests that only need keys of their own.
//!   [`MemcachedServer`] and [`shared_memcached`] are the same for memcached.
//! - `LocalDynamo` is a DynamoDB in this process, `DynamoServer` one of its own, and `DynamoProxy`
//!   counts and spoils the calls to either (feature `dynamodb`).
//! - [`FaultProxy`] stands before a server and cuts, delays, loses or falsifies what passes, command
//!   by command.
//! - [`MapStore`] and [`MapLeases`] are stores to test wrappers on, [`Rng`] a generator that can be run again.
//! - [`wait_until`] waits for a condition, with a deadline; nothing here sleeps to synchronise.
//!
//! The rest of this page is the crate's README.
//!
#![doc = include_str!("../README.md")]

pub mod conformance;
#[cfg(feature = "dynamodb")]
mod dynamo_proxy;
mod map_leases;
mod map_store;
mod memcached;
mod port;
mod proxy;
mod resp;
mod rng;
pub mod server;
mod wait;

#[cfg(feature = "dynamodb")]
pub use dynamo_proxy::{DynamoProxy, Mischief, Units};
pub use map_leases::MapLeases;
pub use map_store::MapStore;
pub use memcached::MemcachedClient;
pub use proxy::{FaultProxy, Rule};
pub use resp::Reply;
pub use rng::Rng;
#[cfg(all(feature = "containers", feature = "dynamodb"))]
pub use server::DynamoContainer;
#[cfg(feature = "dynamodb")]
pub use server::{DynamoFlavor, DynamoServer, LocalDynamo};
pub use server::{
    Flavor, MemcachedServer, RedisClient, RedisCluster, RedisServer, Sentinel, shared_memcached,
    shared_redis,
};
#[cfg(feature = "containers")]
pub use server::{MemcachedContainer, RedisContainer};
pub use wait::{wait_until, within};
