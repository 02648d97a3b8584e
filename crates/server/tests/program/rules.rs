//! Rules over HTTP, with the stores that keep them, and two processes on one store.

mod api;
mod cli;
mod file;
mod shared;

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tollgate_testkit::{RedisServer, Reply};

use crate::client::{Answer, Connection};
use crate::process::Gateway;

/// Sends a request with a body.
fn send(address: SocketAddr, method: &str, target: &str, headers: &str, body: &str) -> Answer {
    let mut connection = Connection::new(address);
    connection.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: gate.example\r\nConnection: close\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    connection.answer(method != "HEAD")
}

fn call(address: SocketAddr, method: &str, target: &str, body: &Value) -> Answer {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    send(address, method, target, "", &body)
}

fn create(address: SocketAddr, rule: &Value) -> Answer {
    call(address, "POST", "/rules", rule)
}

/// What a client with this API key is answered.
fn status(gateway: &Gateway, key: &str) -> u16 {
    send(
        gateway.address,
        "GET",
        "/orders",
        &format!("X-API-Key: {key}\r\n"),
        "",
    )
    .status
}

/// A rule for API keys.
fn rule(id: &str, limit: u64) -> Value {
    json!({
        "id": id, "name": id, "identity_type": "api_key", "priority": 1, "enabled": true,
        "config": {"algorithm": "sliding_window", "limit": limit, "window_seconds": 3600},
    })
}

fn with(mut rule: Value, field: &str, value: Value) -> Value {
    rule[field] = value;
    rule
}

/// The fields that a 400 names.
pub(crate) fn faults(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let document = answer.json();
    let errors = document["errors"].as_array().unwrap();
    let field = |it: &Value| it["field"].as_str().unwrap().to_owned();
    errors.iter().map(field).collect()
}

/// Settings that every gateway here has.
const KEYS: (&str, &str) = ("IDENTITY_RESOLUTION_ORDER", "api_key,ip_address");

fn gateway(backend: &str) -> Gateway {
    Gateway::start_with(&["--backend", backend], &[KEYS])
}

struct Redis {
    server: RedisServer,
    runtime: Runtime,
}

impl Redis {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(RedisServer::builder().start());
        Self { server, runtime }
    }

    fn url(&self) -> String {
        self.server.url()
    }

    fn command(&self, words: &[&str]) -> Reply {
        self.runtime.block_on(self.server.command(words))
    }
}

/// A gateway on memory and one on Redis, each fresh.
fn on_each_store(test: impl Fn(&Gateway)) {
    test(&gateway("memory://"));
    #[cfg(feature = "redis")]
    {
        let redis = Redis::start();
        test(&gateway(&redis.url()));
    }
}
