//! Concurrent charges that share trips to the store.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod failing;
mod lab;
mod leaving;
mod load;
mod merging;
mod order;
mod runtimes;
mod stack;
