//! The service as others use it: one process that counts in memory, or two on one Redis.

use std::cell::Cell;
use std::net::SocketAddr;

use serde_json::Value;

use crate::client::{Answer, Connection};
use crate::process::Gateway;
use crate::redis::Redis;

/// What operators show.
pub(crate) const TOKEN: &str = "a-token-of-the-operators";

/// Processes that share a store.
pub(crate) struct Service {
    pub(crate) processes: Vec<Gateway>,
    turn: Cell<usize>,
    _redis: Option<Redis>,
}

impl Service {
    /// Runs a test on memory, by one process, and on Redis, by two.
    pub(crate) fn each(arguments: &[&str], environment: &[(&str, &str)], test: impl Fn(&Self)) {
        let mut environment = environment.to_vec();
        if !environment.iter().any(|(name, _)| *name == "ADMIN_TOKEN") {
            environment.push(("ADMIN_TOKEN", TOKEN));
        }
        let start = |more: &[&str]| {
            let all = [arguments, &["--remember-refusals", "0"], more].concat();
            Gateway::start_with(&all, &environment)
        };
        test(&Self::of(vec![start(&[])], None));
        let redis = Redis::start();
        let url = redis.url();
        let shared = ["--backend", &*url, "--timeout", "5s"];
        test(&Self::of(vec![start(&shared), start(&shared)], Some(redis)));
    }

    fn of(processes: Vec<Gateway>, redis: Option<Redis>) -> Self {
        Self {
            processes,
            turn: Cell::new(0),
            _redis: redis,
        }
    }

    /// Each process in turn.
    pub(crate) fn address(&self) -> SocketAddr {
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        self.processes[turn % self.processes.len()].address
    }

    /// A client's request: `headers` are whole lines.
    pub(crate) fn get(&self, target: &str, headers: &str) -> Answer {
        send(self.address(), "GET", target, headers, "")
    }

    /// Its status.
    pub(crate) fn status(&self, target: &str, headers: &str) -> u16 {
        self.get(target, headers).status
    }

    /// An operator's request.
    pub(crate) fn admin(&self, method: &str, target: &str, body: &str) -> Answer {
        let headers = format!("Authorization: Bearer {TOKEN}\r\n");
        send(self.address(), method, target, &headers, body)
    }

    /// A check, which must be answered with 200.
    pub(crate) fn check(&self, body: &Value) -> Value {
        let answer = self.admin("POST", "/v1/check", &body.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// What all processes have logged.
    pub(crate) fn log(&self) -> String {
        self.processes.iter().map(Gateway::log).collect()
    }
}

/// Sends one request with a body; the answer to it.
pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &str,
    body: &str,
) -> Answer {
    let mut connection = Connection::new(address);
    let length = match body.len() {
        0 => String::new(),
        length => format!("Content-Length: {length}\r\n"),
    };
    connection.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: gate.example\r\nConnection: close\r\n{headers}{length}\r\n{body}"
    ));
    connection.answer(method != "HEAD")
}
