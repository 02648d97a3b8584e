//! The layers over real HTTP on loopback, counting in memory and in Redis.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod answers;
mod fields;
mod grpc;
mod lines;
#[path = "../../../crates/limiter/tests/common/log.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is shared")]
mod log;
mod middleware;
mod outbound;
mod proxies;
mod routes;
mod sending;
mod settling;
mod slots;
mod sockets;
mod support;
mod who;
