//! The process's own monotonic time, for what is no decision: how long a breaker stays open, how
//! long a refusal is remembered.
//!
//! It is tokio's, so that a test with a paused clock moves it.

pub(crate) use tokio::time::Instant;

use std::time::Duration;

use tollgate_core::{Clock, SystemClock, Timestamp};

/// As good as never, and still a moment that can be named: a longer wait could overflow.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// What time an answer bears that no store made.
pub(crate) fn wall_clock() -> Timestamp {
    SystemClock.now()
}
