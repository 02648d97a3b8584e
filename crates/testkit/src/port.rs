//! Ports for servers that stop and come back.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::TcpListener;

/// Below the range from which the system takes ports for outgoing connections: a server that is
/// down must find its port free again, and a client that tries it meanwhile must not connect to
/// itself. And so low that the bus port of a cluster node, 10,000 above, is one too.
const FIRST: u64 = 10_000;
const PORTS: u64 = 12_000;

/// A port of 127.0.0.1 that is free, and whose bus port is.
pub(crate) fn free() -> u16 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    for _ in 0..1_000 {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Processes of a parallel test run start at different places.
        let random = RandomState::new().hash_one((std::process::id(), number));
        let port = FIRST + random % PORTS;
        let free = |port: u64| {
            u16::try_from(port).is_ok_and(|p| StdListener::bind((Ipv4Addr::LOCALHOST, p)).is_ok())
        };
        if free(port) && free(port + 10_000) {
            return u16::try_from(port).expect("it was bound");
        }
    }
    panic!("no port between {FIRST} and {} is free", FIRST + PORTS);
}

/// Listens on such a port.
pub(crate) async fn listen() -> TcpListener {
    for _ in 0..100 {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, free())).await {
            return listener;
        }
    }
    panic!("every free port was taken before it could be used");
}
