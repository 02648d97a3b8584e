//! Which rule holds for a request, and for how much, over HTTP.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{get, read_head, request};
use crate::process::{Gateway, LONG, eventually};
use crate::service::{Service, TOKEN, send};
use crate::upstream::{OK, nowhere, serving};

const ORDER: [(&str, &str); 1] = [("IDENTITY_RESOLUTION_ORDER", "user_id,ip_address")];

fn window(limit: u64) -> Value {
    json!({"algorithm": "fixed_window", "limit": limit, "window_seconds": 3600})
}

/// Makes rules for users, and waits until every process has them.
fn make(service: &Service, rules: &Value) {
    for (id, more) in rules.as_object().unwrap() {
        let mut rule = json!({"id": id, "identity_type": "user_id"});
        let fields = rule.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let answer = service.admin("POST", "/rules", &rule.to_string());
        assert_eq!(answer.status, 201, "{answer:?}");
        let target = format!("/usage/nobody?rule_id={id}");
        let headers = format!("Authorization: Bearer {TOKEN}\r\n");
        for process in &service.processes {
            eventually("the rule is known", || {
                send(process.address, "GET", &target, &headers, "").status == 200
            });
        }
    }
}

/// The limit that an answer tells.
fn limit(service: &Service, path: &str, headers: &str) -> String {
    let answer = service.get(path, headers);
    let told = answer.header("x-ratelimit-limit");
    told.unwrap_or("none").to_owned()
}

#[test]
fn s52_header_fields_identities_and_times_choose_the_rule() {
    Service::each(&["--quota", "1000/h"], &ORDER, |service| {
        let (past, future) = ("2001-01-01T00:00:00Z", "2999-01-01T00:00:00+01:00");
        make(
            service,
            &json!({
                "all": {"config": window(100)},
                "gold": {"match": {"headers": {"x-tenant": "gold"}}, "config": window(101)},
                "alice": {"match": {"identity_values": ["alice", "bob"]}, "config": window(102)},
                "over": {"match": {"path": "/over"}, "expires": past, "config": window(103)},
                "later": {"match": {"path": "/later"}, "not_before": future, "config": window(104)},
                "now": {"match": {"path": "/now"}, "not_before": past, "expires": future,
                    "config": window(105)},
            }),
        );
        for (path, headers, expected) in [
            ("/", "X-User-ID: u\r\n", "100"),
            ("/", "X-User-ID: u\r\nX-Tenant: gold\r\n", "101"),
            ("/", "X-User-ID: u\r\nX-Tenant: Gold\r\n", "100"),
            (
                "/",
                "X-User-ID: u\r\nX-Tenant: tin\r\nX-Tenant: gold\r\n",
                "101",
            ),
            ("/", "X-User-ID: alice\r\nX-Tenant: gold\r\n", "102"),
            ("/", "X-User-ID: bob\r\n", "102"),
            ("/over", "X-User-ID: u\r\n", "100"),
            ("/later", "X-User-ID: u\r\n", "100"),
            ("/now", "X-User-ID: u\r\n", "105"),
            ("/now", "", "1000"),
        ] {
            assert_eq!(limit(service, path, headers), expected, "{path} {headers}");
        }
    });
}

#[test]
fn plans_have_limits_of_their_own_and_the_exempt_are_not_counted() {
    Service::each(&["--quota", "1000/h"], &ORDER, |service| {
        make(
            service,
            &json!({
                "plans": {"match": {"path": "/plans"}, "config": window(1),
                    "limit_from": {"header": "X-Plan", "plans": {
                        "pro": window(3), "none": window(0)}}},
                "exempt": {"match": {"path": "/exempt/*"}, "config": window(1),
                    "exempt": {"methods": ["OPTIONS"], "paths": ["/exempt/free"]}},
                "near": {"match": {"path": "/near"}, "config": window(1),
                    "exempt": {"networks": ["127.0.0.0/8"]}},
                "far": {"match": {"path": "/far"}, "config": window(1),
                    "exempt": {"networks": ["192.0.2.0/24"]}},
            }),
        );
        let ask = |path: &str, plan: &str| {
            let headers = format!("X-User-ID: u\r\nX-Plan: {plan}\r\n");
            [(); 4].map(|()| service.status(path, &headers))
        };
        assert_eq!(ask("/plans", "pro"), [200, 200, 200, 429]);
        assert_eq!(
            ask("/plans", "other"),
            [200, 429, 429, 429],
            "a budget of its own"
        );
        assert_eq!(ask("/plans", "none"), [429; 4]);
        assert_eq!(ask("/exempt/free", "-"), [200; 4]);
        assert_eq!(ask("/exempt/dear", "-"), [200, 429, 429, 429]);
        let options = send(
            service.address(),
            "OPTIONS",
            "/exempt/dear",
            "X-User-ID: u\r\n",
            "",
        );
        assert_eq!(
            (options.status, options.header("ratelimit-policy")),
            (200, None)
        );
        assert_eq!(ask("/near", "-"), [200; 4]);
        assert_eq!(ask("/far", "-"), [200, 429, 429, 429]);
    });
}

#[test]
fn what_a_shadow_would_refuse_is_counted_in_metrics() {
    let gateway = Gateway::start(&["--quota", "1000/h"]);
    let rule = json!({"id": "dark", "identity_type": "ip_address", "mode": "shadow",
        "config": window(1)});
    let made = send(gateway.address, "POST", "/rules", "", &rule.to_string());
    assert_eq!(made.status, 201);
    for _ in 0..3 {
        assert_eq!(get(gateway.address, "/").status, 200);
    }
    let line = "tollgate_shadow_refusals_total{rule=\"dark\"} 2\n";
    // It is there at every scrape, not only at the next.
    for _ in 0..2 {
        let metrics = get(gateway.address, "/metrics");
        assert!(metrics.text().contains(line), "{}", metrics.text());
    }
}

#[test]
fn s37_the_sample_of_rules_by_path_does_what_it_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rules/paths.yaml");
    let gateway = Gateway::start_with(&["--quota", "1000/h"], &[("RULES_FILE", file)]);
    let of = |method: &str, path: &str| request(gateway.address, method, path, "");
    let attempts = [(); 6].map(|()| of("POST", "/login").status);
    assert_eq!(attempts, [200, 200, 200, 200, 200, 429]);
    assert_eq!(
        of("GET", "/login").header("x-ratelimit-limit"),
        Some("1000")
    );
    // Ten each, of a hundred: the eleventh would be refused.
    for _ in 0..12 {
        let report = of("GET", "/reports/2026/q1");
        assert_eq!(report.status, 200);
        assert!(report.header("ratelimit-policy").is_some());
        assert_eq!(report.header("ratelimit"), None, "it only watches");
    }
    let metrics = get(gateway.address, "/metrics");
    let line = "tollgate_shadow_refusals_total{rule=\"reports\"}";
    assert!(metrics.text().contains(line), "{}", metrics.text());
}

#[test]
fn b141_a_hanging_upstream_pins_no_slot_and_a_request_is_charged_once() {
    let healthy = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&healthy);
    let upstream = serving(move |mut stream| {
        while read_head(&mut stream).is_some() {
            if well.load(Ordering::SeqCst) && stream.get_mut().write_all(OK.as_bytes()).is_err() {
                break;
            }
        }
    });
    let upstream = format!("http://{upstream}");
    let gateway = Gateway::start(&[
        "--upstream",
        &upstream,
        "--upstream-timeout",
        "1s",
        "--identity-order",
        "global",
    ]);
    let slots = json!({"algorithm": "concurrency", "slots": 2, "ttl_seconds": 60});
    let rule = json!({"id": "both", "identity_type": "global", "quotas": [window(100), slots]});
    let made = send(gateway.address, "POST", "/rules", "", &rule.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    let (answers, received) = channel();
    let start = Instant::now();
    for _ in 0..4 {
        let (address, answers) = (gateway.address, answers.clone());
        std::thread::spawn(move || answers.send(get(address, "/hangs")));
    }
    let mut all = (0..4).map(|_| received.recv_timeout(LONG).unwrap());
    // Two are refused at once, in the time of the other two.
    for expected in [503, 503, 504, 504] {
        let answer = all.next().unwrap();
        assert_eq!(answer.status, expected, "{answer:?}");
        let kind = answer.header("content-type");
        assert_eq!(kind, Some("application/problem+json"));
        assert!(expected == 503 || start.elapsed() >= Duration::from_secs(1));
    }
    healthy.store(true, Ordering::SeqCst);
    assert_eq!(get(gateway.address, "/answers").status, 200);
    let usage = get(gateway.address, "/usage/all?rule_id=both").json();
    // What was refused for its slot is not charged; what the upstream did not answer is, once.
    assert_eq!(usage["quotas"][0]["used"], 3, "{usage}");
    eventually("no slot is held", || {
        let usage = get(gateway.address, "/usage/all?rule_id=both").json();
        usage["quotas"][1]["used"] == 0
    });
    let upstream = format!("http://{}", nowhere());
    let refused = get(Gateway::start(&["--upstream", &upstream]).address, "/");
    assert_eq!(refused.status, 502);
}

#[test]
fn an_upstream_that_takes_too_long_to_be_connected_to_is_502() {
    let (held, kept) = channel();
    let held = Mutex::new(held);
    // It accepts, and never says a word of TLS.
    let held = Arc::new(held);
    let upstream = serving(move |stream| {
        let _ = held.lock().unwrap().send(stream);
    });
    let upstream = format!("https://{upstream}");
    let gateway = Gateway::start(&["--upstream", &upstream, "--connect-timeout", "200ms"]);
    let answer = get(gateway.address, "/");
    assert_eq!(answer.status, 502, "{answer:?}");
    eventually("the log says why", || {
        gateway
            .log()
            .contains("did not accept a connection in time")
    });
    drop(kept.recv_timeout(Duration::from_secs(1)));
}
