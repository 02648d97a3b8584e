//! API keys that are kept in the store.

use serde_json::{Value, json};

use crate::process::{eventually, program, text};
use crate::rules::faults;
use crate::service::Service;

const STORED: [(&str, &str); 2] = [
    ("IDENTITY_RESOLUTION_ORDER", "api_key"),
    ("TOLLGATE_IDENTITY_STORED_KEYS", "true"),
];

fn make(service: &Service, body: &Value) -> Value {
    let made = service.admin("POST", "/v1/keys", &body.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    let place = made.header("location").unwrap().to_owned();
    let made = made.json();
    assert_eq!(place, format!("/v1/keys/{}", made["id"].as_str().unwrap()));
    made
}

fn header(made: &Value) -> String {
    format!("X-API-Key: {}\r\n", made["key"].as_str().unwrap())
}

/// Every process says the same within a second, of requests that are not counted: each has the
/// rule that exempts them, too.
fn everywhere(service: &Service, what: &str, headers: &str, status: u16) {
    eventually(what, || {
        let all = service.processes.iter();
        all.map(|_| service.get("/exempt", headers))
            .all(|it| it.status == status && it.header("ratelimit-policy").is_none())
    });
}

#[test]
fn s41_keys_of_the_store_are_told_once_and_hold_in_every_process_until_they_do_not() {
    Service::each(&["--quota", "2/h"], &STORED, |service| {
        let exempt = json!({"id": "all", "identity_type": "api_key",
            "config": {"algorithm": "sliding_window", "limit": 2, "window_seconds": 3600},
            "exempt": {"paths": ["/exempt"]}, "limit_from": {"plans": {
                "pro": {"algorithm": "sliding_window", "limit": 3, "window_seconds": 3600}}}});
        assert_eq!(
            service.admin("POST", "/rules", &exempt.to_string()).status,
            201
        );
        let first = make(service, &json!({"owner": "acme"}));
        let second = make(
            service,
            &json!({"owner": "acme", "expires": "2999-01-01T00:00:00Z"}),
        );
        let other = make(service, &json!({"owner": "beta", "plan": "pro"}));
        let past = make(
            service,
            &json!({"owner": "late", "expires": "2999-01-01T00:00:00Z"}),
        );
        let [one, two, pro, late] = [&first, &second, &other, &past].map(header);
        for headers in [&one, &two, &pro, &late] {
            everywhere(service, "the key holds", headers, 200);
        }
        let at = |made: &Value| format!("/v1/keys/{}", made["id"].as_str().unwrap());
        let change = |made: &Value, body: Value| {
            let changed = service.admin("PATCH", &at(made), &body.to_string());
            assert_eq!(changed.status, 200, "{changed:?}");
            changed.json()
        };
        change(&past, json!({"expires": "2001-01-01T00:00:00Z"}));
        everywhere(service, "its time is over", &late, 401);
        assert_eq!(service.status("/exempt", "X-API-Key: tg_nobody\r\n"), 401);

        // The owner is who is counted, by the rule of the plan.
        let spent = [&one, &two, &one].map(|headers| service.status("/", headers));
        assert_eq!(spent, [200, 200, 429]);
        assert_eq!(
            [(); 4].map(|()| service.status("/", &pro)),
            [200, 200, 200, 429]
        );
        let usage = format!(
            "/usage/{}?identity_type=api_key",
            first["key"].as_str().unwrap()
        );
        assert_eq!(service.admin("GET", &usage, "").json()["used"], 2);

        // Nothing that is shown, kept or logged tells a key.
        let listed = service.admin("GET", "/v1/keys", "");
        let all = listed.json();
        assert_eq!(all.as_array().unwrap().len(), 4);
        assert_eq!(all[0]["owner"], "acme");
        assert_eq!(
            all[2],
            json!({"id": other["id"], "owner": "beta", "plan": "pro",
            "created": other["created"], "disabled": false})
        );
        let told = listed.text().to_owned() + &service.log();
        for made in [&first, &second, &other] {
            assert!(!told.contains(made["key"].as_str().unwrap()), "{told}");
        }
        assert!(!listed.text().contains("digest"));

        // Off and on again, to another plan, and gone.
        assert_eq!(change(&second, json!({"disabled": true}))["disabled"], true);
        everywhere(service, "it is off", &two, 401);
        assert_eq!(
            service.status("/exempt", &one),
            200,
            "another of the same owner"
        );
        change(&second, json!({"disabled": false, "expires": null}));
        everywhere(service, "it is on", &two, 200);
        assert_eq!(
            service.admin("GET", &at(&second), "").json().get("expires"),
            None
        );
        assert_eq!(change(&other, json!({"plan": null})).get("plan"), None);
        assert_eq!(service.admin("DELETE", &at(&first), "").status, 204);
        everywhere(service, "it is gone", &one, 401);
        assert_eq!(service.admin("DELETE", &at(&first), "").status, 404);
        assert!(
            service.log().contains("tollgate::audit"),
            "{}",
            service.log()
        );

        for body in [
            "",
            "{}",
            "[]",
            r#"["acme", null, null]"#,
            r#"{"owner": ""}"#,
            r#"{"owner": "a\u0000"}"#,
            r#"{"owner": "a", "key": "mine"}"#,
            r#"{"owner": "a", "expires": "soon"}"#,
        ] {
            let refused = service.admin("POST", "/v1/keys", body);
            assert_eq!(refused.status, 400, "{body}");
        }
        // All that is wrong is told at once, with what to write.
        let wrong = json!({"plan": "", "expires": "2001-01-01T00:00:00Z", "key": "mine"});
        let refused = service.admin("POST", "/v1/keys", &wrong.to_string());
        assert_eq!(faults(&refused), ["owner", "plan", "expires", "key"]);
        let told = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(told.contains("is over; write a later one"), "{told}");
        let wrong = json!({"disabled": 1, "plan": 7, "expires": "soon", "owner": "b"});
        let refused = service.admin("PATCH", &at(&other), &wrong.to_string());
        assert_eq!(faults(&refused), ["disabled", "plan", "expires", "owner"]);
        let open = crate::service::send(service.address(), "GET", "/v1/keys", "", "");
        assert_eq!(open.status, 401);
    });
}

#[test]
fn s41_keys_of_the_store_are_off_unless_asked_for() {
    Service::each(&[], &[], |service| {
        let refused = service.admin("GET", "/v1/keys", "");
        assert_eq!(refused.status, 404);
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("identity.stored_keys"), "{detail}");
    });
}

#[test]
#[cfg(feature = "memcached")]
fn s41_a_store_that_keeps_no_documents_keeps_no_keys() {
    let output = program()
        .args(["serve", "--listen", "127.0.0.1:0", "--identity-stored-keys"])
        .args(["--backend", "memcached://127.0.0.1:9"])
        .args(["--require-backend-at-start", "false"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(told.contains("identity.stored_keys"), "{told}");
    assert!(told.contains("identity.api_keys"), "{told}");
}
