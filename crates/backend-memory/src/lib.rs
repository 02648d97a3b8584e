//! The in-process backend of [Tollgate](https://docs.rs/tollgate): exact, bounded, tens of
//! nanoseconds a check.
//!
//! Most people use it as `tollgate::memory`. Where a call goes:
//!
//! ```text
//! hash of policy and key (hash) ── time, once (clock)
//!   │
//!   ├─ a single token bucket ──> table: 24 bytes an entry, one atomic operation a charge,
//!   │                                   none a refusal (rate, table)
//!   ├─ everything else ────────> map: whole records behind small locks (map)
//!   └─ bound reached (room) ───> idle records make room (sweeper), else one record a policy
//!                                is shared (overflow)
//! ```
//!
//! Concurrency slots are apart from all this (lease).

mod backend;
mod call;
mod claim;
mod clock;
mod config;
mod document;
mod hash;
mod lease;
mod map;
mod overflow;
mod rate;
mod record;
mod room;
mod stats;
mod sweeper;
mod table;

pub use backend::MemoryBackend;
pub use config::MemoryBackendBuilder;
pub use stats::Stats;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;
