//! The Lua scripts that count for Tollgate on Redis and Valkey, and nothing else.
//!
//! A crate of its own, so that scripts are files with their own highlighting and history, and any
//! client of any store can have them. `tollgate-redis` runs them and documents what they promise.
//!
//! Each decision is one script call on one key, or part of one on several:
//! [`TOKEN_BUCKET_US_MANY`]. [`POLICY`] and [`POLICY_WITH_LOG`] run any operation
//! on any quotas. They are put together from parts: what reads a record, the algorithms (each the
//! twin of the Rust module of the same name in `tollgate-core`: same names, same order of lines), the
//! step that decides, and what writes the record. `load.lua` describes their arguments.
//!
//! A charge on a single quota, which is what nearly every call is, has a script of its own for each
//! algorithm: the same lines without the machinery, at half the cost to the server. Where a value is
//! not what such a script expects it does nothing and says so. [`TOKEN_BUCKET_US`] is the smallest:
//! a bucket whose whole record is one moment.
//!
//! ```
//! // Every script declares its keys, and writes nothing it has not read in the same call.
//! assert!(tollgate_lua::POLICY.contains("KEYS[1]"));
//! ```

/// One token bucket counted in microseconds, `n` = 1, a fixed cost.
pub const TOKEN_BUCKET_US: &str = include_str!("token_bucket_us.lua");

/// Several records of that shape, each charged several times.
pub const TOKEN_BUCKET_US_MANY: &str = include_str!("token_bucket_us_many.lua");

/// A charge on one token bucket.
pub const TOKEN_BUCKET: &str = include_str!("token_bucket_one.lua");

/// A charge on one sliding window.
pub const SLIDING_WINDOW: &str = include_str!("sliding_window_one.lua");

/// A charge on one fixed window.
pub const FIXED_WINDOW: &str = include_str!("fixed_window_one.lua");

/// A charge on one sliding log.
pub const SLIDING_LOG: &str = include_str!("sliding_log_one.lua");

/// Any operation on any quotas without a sliding log among them.
pub const POLICY: &str = concat!(
    include_str!("load.lua"),
    include_str!("read.lua"),
    include_str!("token_bucket.lua"),
    include_str!("sliding_window.lua"),
    include_str!("fixed_window.lua"),
    include_str!("step.lua"),
    include_str!("write.lua"),
);

/// Any operation on any quotas.
pub const POLICY_WITH_LOG: &str = concat!(
    include_str!("load.lua"),
    include_str!("read_log.lua"),
    include_str!("token_bucket.lua"),
    include_str!("sliding_window.lua"),
    include_str!("fixed_window.lua"),
    include_str!("sliding_log.lua"),
    include_str!("step.lua"),
    include_str!("write_log.lua"),
);

/// Forgets a key.
pub const RESET: &str = include_str!("reset.lua");

/// Any step on concurrency slots.
pub const LEASE: &str = include_str!("lease.lua");

/// A change to one of a set of documents.
pub const DOCUMENT: &str = include_str!("document.lua");

/// Asks whether the server can count: it runs scripts, takes writes and has memory for one.
pub const PING: &str = include_str!("ping.lua");
