//! Redis and Valkey as a store of counters for Tollgate: one script call a decision, exact to the
//! microsecond, by the server's clock.
//!
//! [`RedisBackend`] is a [`CounterBackend`](tollgate_core::CounterBackend). A [`Builder`] connects
//! it to a server, a cluster or what sentinels watch; or it runs on the application's own client
//! through [`RedisExecutor`]. The scripts are in `tollgate-lua`.
//!
//! | URL | what it is |
//! |---|---|
//! | `redis://[user[:password]@]host[:6379][/db]` | one server |
//! | `redis+unix:///path/to/socket[?db=1]` | one server, over a unix socket |
//! | `redis+cluster://a:6379,b:6379` | a cluster, found through any of its nodes |
//! | `redis+sentinel://a:26379,b:26379/mymaster[/db]` | the master of that name |
//! | `rediss://`, `rediss+cluster://`, `rediss+sentinel://` | the same over TLS (feature `tls`) |
//!
//! `valkey` may be written for `redis`, and `valkeys` for `rediss`. Options follow a `?`:
//! `protocol=resp3`; `db=N`; over TLS `ca=/path/to/ca.pem` (instead of the system's roots),
//! `cert=..&key=..` (a client certificate) and `insecure=true` (accepts any certificate: for tests);
//! for sentinels with credentials of their own `sentinel_user=..&sentinel_password=..`.

mod backend;
mod client;
mod cluster;
mod config;
mod connection;
mod dial;
mod document;
mod error;
mod executor;
mod flight;
mod handshake;
mod lease;
mod record;
mod script;
mod sentinel;
mod slot;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub use backend::RedisBackend;
pub use client::Client;
pub use config::Builder;
pub use error::error_kind;
pub use executor::{Args, Merging, RedisExecutor, Script, ScriptCall};
pub use slot::key_slot;
