//! Problem documents: of which type and status, whatever a client accepts.

use serde_json::{Value, json};

use crate::client::{Connection, request};
use crate::process::Gateway;
use crate::service::send;
use crate::upstream::{nowhere, serving};

const RULE: &str = r#"{"id": "a", "identity_type": "api_key", "match": {"path": "/none"},
    "config": {"algorithm": "sliding_window", "limit": 1, "window_seconds": 3600}}"#;

/// Whatever a client accepts, it is answered with the same problem, and HEAD with its fields.
fn is_one_problem(gateway: &Gateway, path: &str, headers: &str, status: u16) {
    for accept in [
        "",
        "Accept: */*\r\n",
        "Accept: text/html\r\n",
        "Accept: application/problem+json\r\n",
    ] {
        let headers = format!("{headers}{accept}");
        let told = request(gateway.address, "GET", path, &headers);
        is_problem(&told.json(), status);
        assert_eq!(told.status, status, "{path} {accept}");
        let kind = told.header("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{path} {accept}");
        if matches!(status, 429 | 503) {
            let wait = told.json()["retry_after"].as_f64().unwrap();
            let seconds: f64 = told.header("retry-after").unwrap().parse().unwrap();
            assert!(seconds >= 1.0, "{told:?}");
            assert_eq!(seconds, wait.ceil().max(1.0), "{told:?}");
            assert_eq!(told.header("cache-control"), Some("no-store"));
        }
        let mut connection = Connection::new(gateway.address);
        connection.send(format!("HEAD {path} HTTP/1.1\r\nHost: gate.example\r\n"));
        connection.send(format!("Connection: close\r\n{headers}\r\n"));
        let head = connection.answer(false);
        assert_eq!(head.status, status);
        let names = |of: &crate::client::Answer| -> Vec<String> {
            of.headers.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&head), names(&told));
        for name in ["content-type", "cache-control", "ratelimit-policy"] {
            assert_eq!(head.header(name), told.header(name), "{name}");
        }
        connection.closed();
    }
}

fn is_problem(document: &Value, status: u16) {
    assert_eq!(document["status"], status, "{document}");
    assert_eq!(document["type"], "about:blank");
    assert!(document["title"].is_string() && document["detail"].is_string());
    let text = document.to_string();
    for internal in ["redis", "127.0.0.1", "k-1"] {
        assert!(!text.contains(internal), "{text}");
    }
}

#[test]
fn b55_refusals_and_failures_are_one_problem_whatever_is_accepted() {
    let key = "X-API-Key: k-1\r\n";
    let rated = Gateway::start(&["--quota", "1/60s", "--identity-order", "api_key"]);
    assert_eq!(request(rated.address, "GET", "/", key).status, 200);
    is_one_problem(&rated, "/", key, 429);
    is_one_problem(&rated, "/", "", 401);

    let store = format!("redis://{}", nowhere());
    let closed = ["--backend", &store, "--on-failure", "closed"];
    let closed = Gateway::start(&[&closed[..], &["--require-backend-at-start", "false"]].concat());
    is_one_problem(&closed, "/", "", 503);
}

#[test]
fn b55_no_slot_is_one_problem_whatever_is_accepted() {
    let (arrived, held) = std::sync::mpsc::channel();
    let upstream = serving(move |stream| drop(arrived.send(stream)));
    let upstream = format!("http://{upstream}");
    for (kind, status) in [("api_key", 429), ("global", 503)] {
        let gateway = Gateway::start(&["--upstream", &upstream, "--identity-order", kind]);
        let rule = json!({"id": "slots", "identity_type": kind,
            "config": {"algorithm": "concurrency", "slots": 1, "ttl_seconds": 60}});
        let made = send(gateway.address, "POST", "/rules", "", &rule.to_string());
        assert_eq!(made.status, 201, "{made:?}");
        let mut holder = Connection::new(gateway.address);
        holder.send("GET / HTTP/1.1\r\nHost: h\r\nX-API-Key: k-1\r\n\r\n");
        // The upstream has it, and does not answer.
        let _held = held.recv_timeout(crate::process::LONG).unwrap();
        is_one_problem(&gateway, "/", "X-API-Key: k-1\r\n", status);
    }
}

#[test]
fn b55_faults_and_conflicts_of_rules_are_problems_whatever_is_accepted() {
    let gateway = Gateway::start(&[]);
    is_one_problem(&gateway, "/rules?limit=0", "", 400);
    is_one_problem(&gateway, "/rules/none", "", 404);
    assert_eq!(
        send(gateway.address, "POST", "/rules", "", RULE).status,
        201
    );
    let wrong = RULE.replace("\"limit\": 1", "\"limit\": -1");
    for accept in ["", "*/*", "text/html", "application/problem+json"] {
        let headers = format!("Accept: {accept}\r\n");
        for (body, status) in [(RULE, 409), (&*wrong, 400)] {
            let told = send(gateway.address, "POST", "/rules", &headers, body);
            assert_eq!(told.status, status);
            is_problem(&told.json(), status);
            let kind = told.header("content-type");
            assert_eq!(kind, Some("application/problem+json"), "{accept}");
        }
    }
}
