//! The program as its users meet it: a process, its arguments, real HTTP on loopback.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait with deadlines of real time"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(feature = "redis")]
mod admin;
mod answers;
mod bodies;
mod check;
#[cfg(feature = "redis")]
mod checks;
#[cfg(feature = "redis")]
mod choosing;
mod client;
mod config;
mod connections;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod edges;
mod encrypted;
mod files;
#[cfg(feature = "redis")]
mod forward_auth;
mod gateway;
mod hostile;
#[cfg(feature = "redis")]
mod identities;
mod image;
#[cfg(feature = "redis")]
mod keys;
#[cfg(feature = "redis")]
mod names;
#[cfg(feature = "redis")]
mod outage;
mod pages;
#[cfg(feature = "redis")]
mod problems;
mod process;
mod proxy;
#[cfg(feature = "redis")]
mod redis;
mod refused;
mod replay;
#[cfg(feature = "redis")]
mod ruled;
mod rules;
#[cfg(feature = "redis")]
mod service;
mod settings;
mod shutdown;
mod slots;
#[cfg(all(feature = "dynamodb", feature = "memcached", feature = "redis"))]
mod stores;
#[cfg(feature = "otlp")]
mod traces;
mod upstream;
#[cfg(feature = "redis")]
mod usage;
