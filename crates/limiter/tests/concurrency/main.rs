//! Concurrency limits: permits, waiting, renewal, loss, failure, shutdown.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod failure;
mod leaving;
mod renewal;
mod slots;
mod support;
mod waiting;
