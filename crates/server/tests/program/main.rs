//! The program as its users meet it: a process, its arguments, real HTTP on loopback.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait with deadlines of real time"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod check;
mod client;
mod config;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod gateway;
mod hostile;
#[cfg(feature = "redis")]
mod outage;
mod process;
mod proxy;
#[cfg(feature = "redis")]
mod redis;
mod replay;
mod settings;
mod shutdown;
mod slots;
mod upstream;
