//! The program on stores that run no scripts.

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tollgate_testkit::{LocalDynamo, MemcachedServer};

use crate::client::get;
use crate::process::{Gateway, eventually, run, text};
use crate::service::send;

/// A store of the test's own, and the runtime that its helpers run in.
struct Store {
    /// Its name in `/health`.
    name: &'static str,
    url: String,
    _runtime: Runtime,
    _server: Server,
}

#[expect(dead_code, reason = "each ends with its value")]
enum Server {
    Memcached(MemcachedServer),
    Dynamo(LocalDynamo),
}

impl Store {
    fn memcached() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(MemcachedServer::start());
        Self {
            name: "memcached",
            url: server.url(),
            _runtime: runtime,
            _server: Server::Memcached(server),
        }
    }

    fn dynamodb() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(LocalDynamo::start());
        let url = format!("dynamodb://limits?endpoint={}", server.endpoint());
        let made = run(&["dynamodb", "create-table", &url]);
        assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
        Self {
            name: "dynamodb",
            url,
            _runtime: runtime,
            _server: Server::Dynamo(server),
        }
    }

    /// `tollgate check` of one client.
    fn check(&self, quota: &str, more: &[&str]) -> (i32, Value) {
        let mut all = vec!["check", "--quota", quota];
        all.extend(["--key", "127.0.0.1", "--backend", &self.url]);
        all.extend(["--timeout", "20s"]);
        all.extend(more);
        let output = run(&all);
        let answer = serde_json::from_str(text(&output.stdout));
        let answer = answer.unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        (output.status.code().unwrap(), answer)
    }
}

/// Every trace of a file, each step of which has a right answer.
fn replays(store: &Store, file: &str, steps: usize) {
    let path = format!(
        "{}/../testkit/vectors/{file}.jsonl",
        env!("CARGO_MANIFEST_DIR")
    );
    let mut all = vec!["replay", "--check", "--timeout", "20s"];
    all.extend(["--backend", &store.url, &path]);
    let output = run(&all);
    let told = format!("120 traces, {steps} steps, 0 differences\n");
    assert_eq!(text(&output.stdout), told, "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}

macro_rules! every_trace_replays {
    ($($file:ident: $steps:literal)*) => {
        mod every_trace_replays_on_memcached {
            $(#[test] fn $file() {
                super::replays(&super::Store::memcached(), stringify!($file), $steps);
            })*
        }
        mod every_trace_replays_on_dynamodb {
            $(#[test] fn $file() {
                super::replays(&super::Store::dynamodb(), stringify!($file), $steps);
            })*
        }
    };
}

every_trace_replays! {
    token_bucket: 4_720
    sliding_window: 4_860
    fixed_window: 4_800
    sliding_log: 4_720
    multi: 3_600
}

fn share_one_quota(store: &Store) {
    const QUOTA: &str = "3/h fixed_window";
    let arguments = [
        "--backend",
        &store.url,
        "--quota",
        QUOTA,
        "--timeout",
        "20s",
    ];
    let [a, b] = [Gateway::start(&arguments), Gateway::start(&arguments)];
    let status = |gateway: &Gateway| get(gateway.address, "/").status;
    assert_eq!(
        [status(&a), status(&b), status(&a), status(&b), status(&a)],
        [200, 200, 200, 429, 429]
    );
    for gateway in [&a, &b] {
        let health = get(gateway.address, "/health").json();
        assert_eq!(health["status"], "ok");
        assert_eq!(health[store.name], "ok", "{health}");
        let ready = get(gateway.address, "/ready").json();
        assert_eq!(ready["checks"]["ratelimit"]["detail"], "enforcing");
    }
}

/// Each is a process of its own.
fn checks_share_one_quota(store: &Store) {
    const QUOTA: &str = "3/h fixed_window";
    let (code, answer) = store.check(QUOTA, &["--cost", "2"]);
    assert_eq!(
        (code, &answer["remaining"], &answer["origin"]),
        (0, &json!(1), &json!("shared"))
    );
    let (code, answer) = store.check(QUOTA, &["--cost", "2"]);
    assert_eq!((code, &answer["remaining"]), (1, &json!(1)));
    assert_eq!(store.check(QUOTA, &["--peek"]).1["remaining"], 1);
    assert_eq!(store.check(QUOTA, &["--reset"]), (0, json!(null)));
    assert_eq!(store.check(QUOTA, &["--peek"]).1["remaining"], 3);
}

#[test]
fn s72_checks_share_one_quota_on_memcached() {
    checks_share_one_quota(&Store::memcached());
}

#[test]
fn s72_checks_share_one_quota_on_dynamodb() {
    checks_share_one_quota(&Store::dynamodb());
}

#[test]
fn s72_gateways_share_one_quota_on_memcached() {
    share_one_quota(&Store::memcached());
}

#[test]
fn s72_gateways_share_one_quota_on_dynamodb() {
    share_one_quota(&Store::dynamodb());
}

/// A store that is not there is refused at start, or waited for where that is said.
fn starts_without_its_store(url: &str, name: &str) {
    let arguments = [
        "--listen",
        "127.0.0.1:0",
        "--backend",
        url,
        "--quota",
        "2/h",
    ];
    let refused = run(&[&["serve"], &arguments[..]].concat());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stdout.is_empty(), "it never listened");
    let told = text(&refused.stderr);
    let named = url.split('?').next().unwrap();
    assert!(
        told.contains(named) && told.contains("--require-backend-at-start false"),
        "{told}"
    );

    let degraded = Gateway::start(&[
        "--backend",
        url,
        "--quota",
        "2/h",
        "--require-backend-at-start",
        "false",
    ]);
    for _ in 0..5 {
        assert_eq!(get(degraded.address, "/").status, 200);
    }
    let health = get(degraded.address, "/health").json();
    assert_eq!(
        (&health["status"], &health[name]),
        (&json!("degraded"), &json!("down"))
    );
}

#[test]
fn b70_without_memcached_it_starts_only_if_told_so() {
    let closed = closed_port();
    starts_without_its_store(&format!("memcached://127.0.0.1:{closed}"), "memcached");
}

#[test]
fn b70_without_dynamodb_it_starts_only_if_told_so() {
    let closed = closed_port();
    let url = format!("dynamodb://limits?endpoint=http://127.0.0.1:{closed}");
    starts_without_its_store(&url, "dynamodb");
}

#[test]
fn s72_gateways_share_rules_and_keys_on_dynamodb() {
    let store = Store::dynamodb();
    let mut arguments = vec!["--backend", &store.url, "--timeout", "20s"];
    arguments.extend(["--rules-cache-ttl-seconds", "1", "--quota", "1000/h"]);
    arguments.extend(["--identity-stored-keys", "--remember-refusals", "0"]);
    arguments.extend(["--identity-order", "api_key,ip_address"]);
    let [a, b] = [Gateway::start(&arguments), Gateway::start(&arguments)];
    let limit = |gateway: &Gateway, headers: &str| {
        let answer = send(gateway.address, "GET", "/", headers, "");
        let limit = answer.header("x-ratelimit-limit");
        (answer.status, limit.map(str::to_owned))
    };
    let is = |status, limit: &str| (status, Some(limit.to_owned()));
    let rule = |limit: u64| {
        json!({"id": "r", "identity_type": "ip_address", "config": {
            "algorithm": "fixed_window", "limit": limit, "window_seconds": 3600}})
        .to_string()
    };
    let call = |method: &str, gateway: &Gateway, target: &str, body: &str| {
        send(gateway.address, method, target, "", body)
    };
    assert_eq!(call("POST", &a, "/rules", &rule(3)).status, 201);
    assert_eq!(call("POST", &b, "/rules", &rule(3)).status, 409);
    assert_eq!(limit(&a, ""), is(200, "3"));
    eventually("the other has it", || limit(&b, "") != is(200, "1000"));
    assert_eq!(call("PUT", &b, "/rules/r", &rule(50)).status, 200);
    eventually("it is another", || limit(&a, "") == is(200, "50"));
    assert_eq!(call("DELETE", &a, "/rules/r", "").status, 204);
    eventually("it is gone", || limit(&b, "") == is(200, "1000"));

    let made = call("POST", &a, "/v1/keys", r#"{"owner": "acme"}"#).json();
    let key = format!("X-API-Key: {}\r\n", made["key"].as_str().unwrap());
    eventually("the other knows the key", || limit(&b, &key).0 == 200);
    let place = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(call("DELETE", &b, &place, "").status, 204);
    eventually("nobody knows it", || limit(&a, &key).0 == 401);
}

/// One on which nobody listens.
fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn wrong_settings_of_a_store_are_refused_with_the_fix() {
    for (url, told) in [
        ("memcached://user:pw@127.0.0.1", "login"),
        ("memcacheds://127.0.0.1", "TLS"),
        ("memcached://127.0.0.1?tls=true", "TLS"),
        ("memcached://127.0.0.1?pool=0", "pool"),
        ("dynamodb://", "table"),
        ("dynamodb://limits?endpoint=nowhere", "endpoint"),
    ] {
        for require in ["true", "false"] {
            let output = run(&[
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--backend",
                url,
                "--require-backend-at-start",
                require,
            ]);
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{url}: {message}");
            assert!(message.contains(told), "{url}: {message}");
            assert!(!message.contains("pw"), "{message}");
        }
    }
}
