//! memcached as a store of counters for Tollgate: compare and swap, one trip a decision on a key that
//! only one process uses.
//!
//! [`MemcachedBackend`] is a [`CounterBackend`](tollgate_core::CounterBackend), over
//! [`CasBackend`](tollgate_core::CasBackend). A [`Builder`] connects it by a URL:
//!
//! ```text
//! memcached://host[:11211][,host[:port]..][?option=value&..]
//! ```
//!
//! | option | is | default |
//! |---|---|---|
//! | `pool` | connections to each server, at most | 16 |
//! | `connect_timeout` | how long connecting may take (`500ms`, `1s`) | `1s` |
//! | `memory` | bytes for remembering what was written last; `0` turns it off | 33554432 |
//! | `item_limit` | bytes that a record may have | 1000000 |
//!
//! IPv6 addresses are in brackets. Several servers are a ketama ring, the same for every order of the
//! list. The client speaks plain TCP: TLS and logins are refused when the backend is built.
//!
//! # Trips
//! | call | trips |
//! |---|---|
//! | admitted, and this process was the last to write the key | 1 |
//! | admitted, no record yet, or not remembered | 2 |
//! | admitted, and another process wrote since | 3 once, then 2 for eight writes |
//! | refused; peek; reset | 1 |
//!
//! # No leases
//! memcached cannot hold them, so the backend is no `LeaseBackend`, and asking for leases on it does
//! not build:
//!
//! ```compile_fail
//! fn leases(backend: tollgate_memcached::MemcachedBackend) -> impl tollgate_core::LeaseBackend {
//!     backend
//! }
//! ```

mod backend;
mod config;
mod connection;
mod error;
mod memory;
mod pool;
mod record;
mod ring;
mod store;
mod turns;
mod url;

pub use backend::MemcachedBackend;
pub use config::Builder;
