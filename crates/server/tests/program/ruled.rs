//! What rules do to requests, over HTTP.

use serde_json::{Value, json};

use crate::client::read_head;
use crate::process::{LONG, eventually};
use crate::service::Service;
use crate::upstream::serving;

const ORDER: [(&str, &str); 1] = [("IDENTITY_RESOLUTION_ORDER", "user_id,ip_address")];

fn window(limit: u64) -> Value {
    json!({"algorithm": "fixed_window", "limit": limit, "window_seconds": 3600})
}

/// Makes a rule for users below a path, and waits until every process has it.
fn make(service: &Service, id: &str, more: &Value) {
    let mut rule = json!({"id": id, "name": id, "identity_type": "user_id",
        "match": {"path": format!("/{id}")}});
    rule.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let answer = service.admin("POST", "/rules", &rule.to_string());
    assert_eq!(answer.status, 201, "{answer:?}");
    let path = rule["match"]["path"].as_str().unwrap_or("/").to_owned();
    for process in &service.processes {
        eventually("the rule is known", || {
            let target = format!("/usage/nobody?identity_type=user_id&path={path}");
            let headers = format!("Authorization: Bearer {}\r\n", crate::service::TOKEN);
            let usage = crate::service::send(process.address, "GET", &target, &headers, "");
            usage.json()["rule_id"] == id
        });
    }
}

#[test]
fn s47_s48_the_highest_priority_of_the_type_decides_and_else_the_default() {
    Service::each(&["--quota", "3/h"], &ORDER, |service| {
        make(
            service,
            "low",
            &json!({"match": {}, "priority": 1, "config": window(1)}),
        );
        make(
            service,
            "high",
            &json!({"match": {"path": "/high"}, "priority": 5, "config": window(2)}),
        );
        let of = |user: &str, path: &str| {
            let told = service.get(path, &format!("X-User-ID: {user}\r\n"));
            (
                told.status,
                told.header("x-ratelimit-limit")
                    .unwrap_or_default()
                    .to_owned(),
            )
        };
        assert_eq!(of("u", "/high"), (200, "2".into()));
        assert_eq!(of("u", "/other"), (200, "1".into()));
        assert_eq!(of("u", "/other"), (429, "1".into()));
        assert_eq!(of("u", "/high"), (200, "2".into()));
        assert_eq!(of("u", "/high"), (429, "2".into()));
        // Never a rule of another type.
        assert_eq!(
            service.get("/high", "").header("x-ratelimit-limit"),
            Some("3")
        );
    });
}

#[test]
fn costs_modes_exemptions_and_limit_0_hold_on_requests() {
    Service::each(&["--quota", "1000/h"], &ORDER, |service| {
        make(service, "cost", &json!({"cost": 3, "config": window(7)}));
        make(service, "none", &json!({"config": window(0)}));
        make(
            service,
            "shadow",
            &json!({"mode": "shadow", "config": window(1)}),
        );
        make(service, "off", &json!({"mode": "off", "config": window(1)}));
        make(
            service,
            "exempt",
            &json!({"exempt": {"identity_values": ["friend"]}, "config": window(1)}),
        );
        make(
            service,
            "both",
            &json!({"quotas": [window(2), {"algorithm": "token_bucket", "capacity": 5, "refill_rate": 0.001}]}),
        );
        let ask = |user: &str, path: &str| service.get(path, &format!("X-User-ID: {user}\r\n"));
        let three = |user: &str, path: &str| [(); 3].map(|()| ask(user, path).status);
        assert_eq!(three("u", "/cost"), [200, 200, 429]);
        assert_eq!(three("u", "/shadow"), [200; 3]);
        assert_eq!(three("u", "/off"), [200; 3]);
        assert_eq!(three("u", "/exempt"), [200, 429, 429]);
        assert_eq!(three("friend", "/exempt"), [200; 3]);
        assert_eq!(three("u", "/both"), [200, 200, 429]);
        let none = ask("u", "/none");
        assert_eq!(none.status, 429);
        assert_eq!(
            (none.header("retry-after"), none.header("cache-control")),
            (None, Some("no-store"))
        );
        assert_eq!(
            (&none.json()["limit"], &none.json()["retry_after"]),
            (&json!(0), &json!(null))
        );
        // What watches only tells no numbers, and usage does.
        let shadow = ask("u", "/shadow");
        assert!(
            shadow.header("ratelimit-policy").is_some() && shadow.header("ratelimit").is_none()
        );
        let usage = service.admin("GET", "/usage/u?rule_id=shadow", "").json();
        assert_eq!(
            (&usage["used"], &usage["remaining"]),
            (&json!(1), &json!(0))
        );
        let both = service.admin("GET", "/usage/u?rule_id=both", "").json();
        assert_eq!(both["quotas"].as_array().unwrap().len(), 2, "{both}");
        assert_eq!((&both["limit"], &both["used"]), (&json!(2), &json!(2)));
        // A reset of the type is one of all its rules.
        let reset = service
            .admin("POST", "/usage/u/reset?identity_type=user_id", "")
            .json();
        assert_eq!(reset, json!({"reset": 6}));
        assert_eq!(three("u", "/cost"), [200, 200, 429]);
        assert_eq!(three("u", "/both"), [200, 200, 429]);
        // Checks go by the same rules.
        let check = |path: &str| {
            service.check(&json!({"identity": {"type": "user_id", "value": "w"}, "path": path}))
        };
        assert_eq!(check("/cost?x=1")["remaining"], 4);
        assert_eq!(check("//none")["origin"], "blocked");
        let off = check("/off");
        assert_eq!(
            (&off["allowed"], &off["limit"], &off["origin"]),
            (&json!(true), &json!(null), &json!("exempt"))
        );
    });
}

#[test]
fn b106_another_spelling_of_a_path_is_no_way_round_its_rule() {
    Service::each(&["--quota", "1000/h"], &ORDER, |service| {
        make(
            service,
            "login",
            &json!({"match": {"path": "/api/login"}, "config": window(2)}),
        );
        let spellings = [
            "/api/login",
            "//api/login",
            "/api//login",
            "/api/login?x=1",
            "/api/login#f",
            "/api/./%6Cogin",
        ];
        let answers = spellings.map(|path| service.status(path, "X-User-ID: u\r\n"));
        assert_eq!(answers, [200, 200, 429, 429, 429, 429]);
        // Each finds the rule, also where it is the first.
        for (n, path) in spellings.into_iter().enumerate() {
            let told = service.get(path, &format!("X-User-ID: {n}\r\n"));
            assert_eq!(told.header("x-ratelimit-limit"), Some("2"), "{path}");
        }
    });
}

#[test]
fn b102_values_with_separators_do_not_meet_in_the_store() {
    Service::each(&["--quota", "1/h"], &ORDER, |service| {
        for user in [
            "a:b",
            "a",
            "b",
            ":a",
            "a:",
            "user_id:a",
            "*",
            "{a}",
            "a%3Ab",
        ] {
            let headers = format!("X-User-ID: {user}\r\n");
            let both = [(); 2].map(|()| service.status("/", &headers));
            assert_eq!(both, [200, 429], "{user}");
        }
    });
}

/// An upstream that answers when it is told to.
#[test]
fn a_rule_on_requests_in_flight_holds_its_slot_to_the_last_byte() {
    use std::io::Write as _;
    let (go, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Arc::new(std::sync::Mutex::new(told));
    let upstream = serving(move |mut stream| {
        while read_head(&mut stream).is_some() {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no";
            let sent = stream.get_mut().write_all(head.as_bytes());
            if sent.is_err() || told.lock().unwrap().recv_timeout(LONG).is_err() {
                break;
            }
            let _ = stream.get_mut().write_all(b"k");
        }
    });
    let upstream = format!("http://{upstream}");
    Service::each(
        &["--quota", "1000/h", "--upstream", &upstream],
        &ORDER,
        |service| {
            make(
                service,
                "slow",
                &json!({"config":
            {"algorithm": "concurrency", "slots": 1, "ttl_seconds": 60, "wait_seconds": 0}}),
            );
            let mut first = crate::client::Connection::new(service.address());
            first.send("GET /slow HTTP/1.1\r\nHost: h\r\nX-User-ID: u\r\n\r\n");
            let (status, headers) = first.head();
            assert_eq!(status, 200, "{headers:?}");
            // The head is here, the body is not: every process knows that the slot is held.
            for _ in 0..4 {
                let full = service.get("/slow", "X-User-ID: u\r\n");
                assert_eq!(full.status, 429, "{full:?}");
                assert!(full.header("retry-after").is_some());
            }
            let usage = || service.admin("GET", "/usage/u?rule_id=slow", "").json();
            assert_eq!(
                (&usage()["algorithm"], &usage()["used"]),
                (&json!("concurrency"), &json!(1))
            );
            let check = json!({"identity": {"type": "user_id", "value": "u"}, "path": "/slow"});
            assert_eq!(service.check(&check)["allowed"], false);
            go.send(()).unwrap();
            assert_eq!(crate::client::read_body(&mut first.stream, &headers), b"ok");
            eventually("the slot is free", || usage()["used"] == 0);
            assert_eq!(service.check(&check)["allowed"], true);
            go.send(()).unwrap();
            assert_eq!(service.status("/slow", "X-User-ID: u\r\n"), 200);
        },
    );
}
