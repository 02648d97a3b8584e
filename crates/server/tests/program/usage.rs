//! What operators see and do about usage.

use serde_json::{Value, json};

use crate::process::eventually;
use crate::service::Service;

/// The names of the members of an object.
fn members(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn s60_usage_is_told_by_type_or_by_rule_and_charges_nothing() {
    let environment = [("IDENTITY_RESOLUTION_ORDER", "api_key,ip_address")];
    for (quota, algorithm) in [
        ("5/h sliding_log", "sliding_window"),
        ("5/h sliding_window", "sliding_counter"),
        ("5/h fixed_window", "fixed_window"),
        ("5/h token_bucket", "token_bucket"),
    ] {
        Service::each(&["--quota", quota], &environment, |service| {
            let usage = |target: &str| service.admin("GET", target, "");
            let target = "/usage/s3cr3t%2Fkey%C3%A9?identity_type=api_key";
            let fresh = usage(target).json();
            assert_eq!(
                (&fresh["used"], &fresh["remaining"]),
                (&json!(0), &json!(5)),
                "{fresh}"
            );
            for _ in 0..3 {
                assert_eq!(service.status("/", "X-API-Key: s3cr3t/key\u{e9}\r\n"), 200);
            }
            for _ in 0..2 {
                let answer = usage(target);
                assert_eq!(answer.status, 200, "{answer:?}");
                assert_eq!(answer.header("cache-control"), Some("no-store"));
                let told = answer.json();
                let mut names = members(&told);
                names.sort_unstable();
                assert_eq!(
                    names,
                    [
                        "algorithm",
                        "identity_type",
                        "limit",
                        "quotas",
                        "remaining",
                        "reset_at",
                        "retry_after",
                        "rule_id",
                        "used",
                    ]
                );
                assert_eq!(told["identity_type"], "api_key");
                assert_eq!(told["rule_id"], "default");
                assert_eq!(told["algorithm"], algorithm);
                assert_eq!(
                    (&told["limit"], &told["used"], &told["remaining"]),
                    (&json!(5), &json!(3), &json!(2))
                );
                assert!(
                    told["reset_at"].as_f64().unwrap() > 1.7e9 && told["retry_after"].is_null()
                );
                assert_eq!(told["quotas"].as_array().unwrap().len(), 1);
                assert_eq!(told["quotas"][0]["used"], 3);
            }
            let by_rule = "/usage/s3cr3t%2Fkey%C3%A9?rule_id=default&identity_type=api_key";
            assert_eq!(usage(by_rule).json()["used"], 3);
            // Another type of the same text.
            assert_eq!(
                usage("/usage/127.0.0.1?identity_type=ip_address").json()["used"],
                0
            );
            for (target, status) in [
                ("/usage/x", 400),
                ("/usage/x?identity_type=shoe_size", 400),
                ("/usage/x?identity_type=ip_address", 400),
                ("/usage/x?identity_type=api_key&identity_type=api_key", 400),
                ("/usage/x?rule_id=none-such", 404),
                ("/usage/x?rule_id=default", 400),
                ("/usage/x?identity_type=api_key&path=x", 400),
                ("/usage/x/y?identity_type=api_key", 404),
            ] {
                let answer = usage(target);
                assert_eq!(answer.status, status, "{target}");
                assert_eq!(
                    answer.header("content-type"),
                    Some("application/problem+json")
                );
                assert_eq!(answer.json()["status"], status);
            }
            let log = service.log();
            assert!(
                log.contains("/usage/***") && !log.contains("s3cr3t"),
                "{log}"
            );
        });
    }
}

#[test]
fn s60_addresses_are_written_as_they_are_on_requests() {
    Service::each(&["--quota", "5/h"], &[], |service| {
        assert_eq!(service.status("/", ""), 200);
        for same in ["127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1"] {
            let target = format!("/usage/{same}?identity_type=ip_address");
            assert_eq!(
                service.admin("GET", &target, "").json()["used"],
                1,
                "{same}"
            );
        }
        service.check(&json!({"identity": {"type": "ip_address", "value": "2001:DB8:1:2::9"}}));
        for same in ["2001:db8:1:2::1", "2001:db8:1:2::%2F64"] {
            let target = format!("/usage/{same}?identity_type=ip_address");
            assert_eq!(
                service.admin("GET", &target, "").json()["used"],
                1,
                "{same}"
            );
        }
    });
}

#[test]
fn s61_a_reset_forgets_what_was_used() {
    let environment = [("IDENTITY_RESOLUTION_ORDER", "user_id")];
    Service::each(&["--quota", "1/h sliding_log"], &environment, |service| {
        let ask = |user: &str| service.status("/", &format!("X-User-ID: {user}\r\n"));
        assert_eq!(
            [ask("u"), ask("u"), ask("v"), ask("v")],
            [200, 429, 200, 429]
        );
        let reset = service.admin("POST", "/usage/u/reset?identity_type=user_id", "");
        assert_eq!((reset.status, reset.json()), (200, json!({"reset": 1})));
        assert_eq!([ask("u"), ask("u"), ask("v")], [200, 429, 429]);
        let named = "/usage/v/reset?identity_type=user_id&rule_id=default";
        assert_eq!(service.admin("POST", named, "").json(), json!({"reset": 1}));
        assert_eq!([ask("v"), ask("v")], [200, 429]);
        assert_eq!(service.admin("POST", "/usage/u/reset", "").status, 400);
        let get = service.admin("GET", "/usage/u/reset?identity_type=user_id", "");
        assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
        // What was done is told, of whom it is not.
        let log = service.log();
        let line = log
            .lines()
            .find(|line| line.contains("tollgate::audit"))
            .unwrap();
        for part in [
            "/usage/***/reset",
            "status=200",
            "user_id",
            "reset=1",
            "request_id",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    });
}

#[test]
fn a_refund_gives_back_what_was_charged_whatever_the_algorithm() {
    let environment = [("IDENTITY_RESOLUTION_ORDER", "user_id")];
    for quota in [
        "4/h sliding_log",
        "4/h sliding_window",
        "4/h fixed_window",
        "4/h token_bucket",
        "4/h sliding_log, 9/h token_bucket",
    ] {
        Service::each(&["--quota", quota], &environment, |service| {
            let ask = || service.status("/", "X-User-ID: u\r\n");
            assert_eq!(
                [(); 5].map(|()| ask()),
                [200, 200, 200, 200, 429],
                "{quota}"
            );
            let refund =
                |body: &str| service.admin("POST", "/usage/u/refund?identity_type=user_id", body);
            let one = refund("").json();
            assert_eq!(
                (&one["refunded"], &one["used"]),
                (&json!(1), &json!(3)),
                "{quota}: {one}"
            );
            let two = refund(r#"{"cost": 2}"#).json();
            assert_eq!(
                (&two["refunded"], &two["used"]),
                (&json!(2), &json!(1)),
                "{quota}: {two}"
            );
            assert_eq!([(); 4].map(|()| ask()), [200, 200, 200, 429], "{quota}");
            // Never more than was used.
            let all = refund(r#"{"cost": 1000}"#).json();
            assert_eq!(
                (&all["refunded"], &all["used"]),
                (&json!(4), &json!(0)),
                "{quota}: {all}"
            );
            for wrong in [
                r#"{"cost": 0}"#,
                r#"{"cost": -1}"#,
                r#"{"costs": 1}"#,
                "{",
                "[]",
            ] {
                assert_eq!(refund(wrong).status, 400, "{wrong}");
            }
        });
    }
}

#[test]
fn a_block_holds_for_a_time_in_every_process() {
    let environment = [("IDENTITY_RESOLUTION_ORDER", "user_id")];
    Service::each(&["--quota", "1000000/h"], &environment, |service| {
        let all = |user: &str| {
            let headers = format!("X-User-ID: {user}\r\n");
            let processes = service.processes.iter();
            let answers =
                processes.map(|it| crate::client::request(it.address, "GET", "/", &headers));
            answers.map(|answer| answer.status).collect::<Vec<_>>()
        };
        let block = |method: &str, body: &str| {
            service.admin(method, "/usage/u/block?identity_type=user_id", body)
        };
        let blocked = block("POST", r#"{"seconds": 600}"#);
        assert_eq!(blocked.status, 200, "{blocked:?}");
        assert!(blocked.json()["blocked_until"].as_f64().unwrap() > 1.7e9);
        eventually("every process refuses", || {
            all("u").iter().all(|it| *it == 429)
        });
        assert!(all("v").iter().all(|it| *it == 200));
        let refused = service.get("/", "X-User-ID: u\r\n");
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((500..=600).contains(&wait), "{wait}");
        assert_eq!(refused.header("cache-control"), Some("no-store"));
        let check = json!({"identity": {"type": "user_id", "value": "u"}});
        let told = service.check(&check);
        assert_eq!(
            (&told["allowed"], &told["origin"]),
            (&json!(false), &json!("blocked"))
        );
        let usage = service
            .admin("GET", "/usage/u?identity_type=user_id", "")
            .json();
        assert!(usage["blocked_until"].is_f64(), "{usage}");
        assert_eq!(block("DELETE", "").status, 200);
        eventually("every process admits", || {
            all("u").iter().all(|it| *it == 200)
        });
        for wrong in ["", "{}", r#"{"seconds": 0}"#, r#"{"seconds": 1e12}"#] {
            assert_eq!(block("POST", wrong).status, 400, "{wrong}");
        }
        // It ends by itself.
        assert_eq!(block("POST", r#"{"seconds": 1}"#).status, 200);
        eventually("the block ends", || all("u").iter().all(|it| *it == 200));
    });
}
