//! memcached as a store of counters for Tollgate.

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
