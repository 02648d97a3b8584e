//! `POST /v1/check`.

use serde_json::{Value, json};

use crate::rules::faults;
use crate::service::{Service, send};

fn named(kind: &str, value: &str, more: Value) -> Value {
    let mut body = json!({"identity": {"type": kind, "value": value}});
    let more = more.as_object().cloned().unwrap_or_default();
    body.as_object_mut().unwrap().extend(more);
    body
}

#[test]
fn s40_a_check_and_the_gateway_count_together_for_every_type_and_algorithm() {
    let environment = [("IDENTITY_RESOLUTION_ORDER", "user_id")];
    for quota in [
        "3/h sliding_log",
        "3/h sliding_window",
        "3/h fixed_window",
        "3/h token_bucket",
    ] {
        Service::each(&["--quota", quota], &environment, |service| {
            assert_eq!(service.status("/", "X-User-ID: u\r\n"), 200);
            let told = service.check(&named(
                "user_id",
                "u",
                json!({"path": "/a", "method": "POST"}),
            ));
            let mut names: Vec<_> = told.as_object().unwrap().keys().cloned().collect();
            names.sort_unstable();
            assert_eq!(
                names,
                [
                    "allowed",
                    "limit",
                    "origin",
                    "remaining",
                    "reset_after",
                    "retry_after",
                    "rule_id"
                ]
            );
            assert_eq!(told["allowed"], true);
            assert_eq!((&told["limit"], &told["remaining"]), (&json!(3), &json!(1)));
            assert_eq!(
                (&told["rule_id"], &told["origin"]),
                (&json!("default"), &json!("shared"))
            );
            assert!(told["retry_after"].is_null() && told["reset_after"].as_f64().unwrap() > 0.0);
            assert_eq!(service.status("/", "X-User-ID: u\r\n"), 200);
            assert_eq!(service.status("/", "X-User-ID: u\r\n"), 429);
            let refused = service.check(&named("user_id", "u", json!({})));
            assert_eq!(
                (&refused["allowed"], &refused["remaining"]),
                (&json!(false), &json!(0))
            );
            assert!(refused["retry_after"].as_f64().unwrap() > 1.0);
            for kind in [
                "api_key",
                "jwt_sub",
                "oauth_account",
                "custom",
                "global",
                "phone",
                "ip_address",
            ] {
                let value = match kind {
                    "phone" => "+4930123456",
                    "ip_address" => "192.0.2.1",
                    _ => "u",
                };
                let all = [(); 4]
                    .map(|()| service.check(&named(kind, value, json!({})))["allowed"] == true);
                assert_eq!(all, [true, true, true, false], "{kind} {quota}");
            }
        });
    }
}

#[test]
fn a_check_may_cost_more_or_only_look() {
    Service::each(&["--quota", "5/h"], &[], |service| {
        let check = |more: Value| service.check(&named("user_id", "u", more));
        for _ in 0..3 {
            assert_eq!(check(json!({"peek": true}))["remaining"], 5);
        }
        assert_eq!(check(json!({"cost": 3}))["remaining"], 2);
        let dear = check(json!({"cost": 3}));
        assert_eq!(
            (&dear["allowed"], &dear["remaining"]),
            (&json!(false), &json!(2))
        );
        // What can never fit is answered, and waiting does not help.
        let never = check(json!({"cost": 6}));
        assert_eq!(
            (&never["allowed"], &never["retry_after"]),
            (&json!(false), &json!(null))
        );
        assert_eq!(check(json!({"cost": 2, "peek": false}))["allowed"], true);
        assert_eq!(check(json!({"peek": true}))["allowed"], false);
    });
}

#[test]
fn a_check_that_cannot_be_understood_is_a_problem_and_a_stranger_is_turned_away() {
    Service::each(&[], &[], |service| {
        for wrong in [
            "",
            "[]",
            "{}",
            r#"{"identity": {"type": "user_id"}}"#,
            r#"{"identity": {"type": "shoe_size", "value": "u"}}"#,
            r#"{"identity": {"type": "phone", "value": "u"}}"#,
            r#"{"identity": {"type": "user_id", "value": "u"}, "cost": 0}"#,
            r#"{"identity": {"type": "user_id", "value": "u"}, "cost": -1}"#,
            r#"{"identity": {"type": "user_id", "value": "u"}, "cost": 1.5}"#,
            r#"{"identity": {"type": "user_id", "value": "u"}, "method": "a b"}"#,
            r#"{"identity": {"type": "user_id", "value": "u"}, "path": "orders"}"#,
            r#"{"identity": {"type": "user_id", "value": "u"}, "pek": true}"#,
        ] {
            let answer = service.admin("POST", "/v1/check", wrong);
            assert_eq!(answer.status, 400, "{wrong}");
            assert_eq!(
                answer.header("content-type"),
                Some("application/problem+json")
            );
            assert!(answer.json()["request_id"].is_string());
        }
        // All that is wrong is told at once, but for whom it is about.
        let all = json!({"identity": {"type": "phone", "value": "s3cr3t", "name": 1},
            "path": "orders", "method": "a b", "cost": 0, "peek": "yes", "pek": true});
        let told = service.admin("POST", "/v1/check", &all.to_string());
        let fields = [
            "identity.value",
            "identity.name",
            "path",
            "method",
            "cost",
            "peek",
            "pek",
        ];
        assert_eq!(faults(&told), fields);
        assert!(!told.text().contains("s3cr3t"), "{told:?}");
        let all = json!({"identity": {"type": "shoe_size"}, "cost": 1.5}).to_string();
        let told = service.admin("POST", "/v1/check", &all);
        assert_eq!(faults(&told), ["identity.type", "cost"]);
        let large = format!(r#"{{"path": "/{}"}}"#, "x".repeat(1 << 20));
        assert_eq!(service.admin("POST", "/v1/check", &large).status, 413);
        let body = named("user_id", "u", json!({})).to_string();
        for headers in [
            "",
            "Authorization: Bearer wrong\r\n",
            "Authorization: Basic eDp5\r\n",
        ] {
            let answer = send(service.address(), "POST", "/v1/check", headers, &body);
            assert_eq!(answer.status, 401, "{headers}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        assert_eq!(
            service.check(&named("user_id", "u", json!({"peek": true})))["remaining"],
            100
        );
    });
}
