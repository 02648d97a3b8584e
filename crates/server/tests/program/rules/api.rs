//! The REST interface of rules.

use serde_json::{Value, json};

use super::{call, create, faults, on_each_store, rule, send, status, with};
use crate::client::get;
#[cfg(feature = "memcached")]
use crate::process::Gateway;

#[test]
fn s42_s43_s44_s45_rules_are_created_read_listed_and_deleted() {
    on_each_store(|gateway| {
        let at = gateway.address;
        assert_eq!(get(at, "/rules").text(), "[]");
        let window = rule("a", 100);
        let mut bucket = rule("b", 0);
        bucket["config"] = json!({"algorithm": "token_bucket", "capacity": 50, "refill_rate": 5});
        for (rule, place) in [(&window, "/rules/a"), (&bucket, "/rules/b")] {
            let created = create(at, rule);
            assert_eq!(created.status, 201, "{created:?}");
            assert_eq!(created.header("location"), Some(place));
            assert_eq!(created.header("content-type"), Some("application/json"));
            assert_eq!(&created.json(), rule, "field for field");
            let read = get(at, place);
            assert_eq!((read.status, &read.json()), (200, rule));
            assert_eq!(read.header("etag"), created.header("etag"));
        }
        let listed = get(at, "/rules");
        assert_eq!(listed.json(), json!([window, bucket]));
        assert_eq!(listed.header("link"), None);

        assert_eq!(create(at, &window).status, 409, "the id is taken");
        assert_eq!(
            create(at, &rule("c", 1)).status,
            409,
            "so is what it is for"
        );
        let gone = call(at, "DELETE", "/rules/a", &Value::Null);
        assert_eq!((gone.status, gone.body.len()), (204, 0));
        for (method, body) in [
            ("GET", Value::Null),
            ("DELETE", Value::Null),
            ("PUT", window.clone()),
            ("PATCH", json!({})),
        ] {
            let answer = call(at, method, "/rules/a", &body);
            assert_eq!(answer.status, 404, "{method}");
            assert_eq!(answer.json()["instance"], "/rules/a");
        }
        assert_eq!(get(at, "/rules/no%20id").status, 404);
        assert_eq!(create(at, &window).status, 201);
        let wrong = call(at, "PUT", "/rules", &window);
        assert_eq!(
            (wrong.status, wrong.header("allow")),
            (405, Some("GET, HEAD, POST"))
        );
        assert_eq!(call(at, "POST", "/rules/a", &window).status, 405);
    });
}

#[test]
fn rules_without_an_id_get_one() {
    let gateway = super::gateway("memory://");
    let mut rule = rule("a", 5);
    rule.as_object_mut().unwrap().remove("id");
    let created = create(gateway.address, &rule);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(created.header("location").unwrap(), format!("/rules/{id}"));
    assert_eq!(get(gateway.address, &format!("/rules/{id}")).status, 200);
}

#[test]
fn s46_patch_takes_name_priority_and_enabled_only() {
    on_each_store(|gateway| {
        let at = gateway.address;
        create(at, &rule("a", 1));
        assert_eq!([status(gateway, "x"), status(gateway, "x")], [200, 429]);
        let patch = |body: Value| call(at, "PATCH", "/rules/a", &body);
        let off = patch(json!({"enabled": false, "priority": -5, "name": "A b"}));
        assert_eq!(off.status, 200);
        let mut expected = rule("a", 1);
        expected["enabled"] = json!(false);
        expected["priority"] = json!(-5);
        expected["name"] = json!("A b");
        assert_eq!(off.json(), expected);
        assert_eq!(status(gateway, "x"), 200, "the default rule");
        assert_eq!(patch(json!({"enabled": true})).status, 200);
        assert_eq!(status(gateway, "x"), 429, "what was used still is");

        let all = json!({"identity_type": "phone", "config": {}, "id": "b", "name": "", "cost": 1});
        let mut named = faults(&patch(all));
        named.sort();
        assert_eq!(named, ["config", "cost", "id", "identity_type", "name"]);
        assert_eq!(faults(&patch(json!([]))), [""]);
        assert_eq!(get(at, "/rules/a").json()["name"], "A b");
    });
}

#[test]
fn a_change_of_what_was_not_read_is_412() {
    on_each_store(|gateway| {
        let at = gateway.address;
        let first = create(at, &rule("a", 5)).header("etag").unwrap().to_owned();
        let conditional = |method: &str, tag: &str, body: &str| {
            send(
                at,
                method,
                "/rules/a",
                &format!("If-Match: {tag}\r\n"),
                body,
            )
        };
        let changed = conditional("PATCH", &first, r#"{"priority": 7}"#);
        assert_eq!(changed.status, 200);
        let second = changed.header("etag").unwrap().to_owned();
        assert_ne!(first, second);
        for (method, body) in [
            ("PATCH", r#"{"priority": 8}"#.to_owned()),
            ("PUT", rule("a", 9).to_string()),
            ("DELETE", String::new()),
        ] {
            assert_eq!(conditional(method, &first, &body).status, 412, "{method}");
        }
        assert_eq!(get(at, "/rules/a").json()["priority"], 7);
        assert_eq!(
            conditional(
                "PUT",
                &format!("\"x\", {second}"),
                &rule("a", 9).to_string()
            )
            .status,
            200
        );
        assert_eq!(conditional("DELETE", "*", "").status, 204);
        assert_eq!(conditional("DELETE", "*", "").status, 404);
    });
}

#[test]
fn an_invalid_body_is_400_with_every_fault() {
    let gateway = super::gateway("memory://");
    let at = gateway.address;
    for body in [
        "",
        "{",
        "nonsense",
        "\"a\": 1",
        "{\"id\": \"a\"",
        "\u{feff}{}",
    ] {
        assert_eq!(
            faults(&send(at, "POST", "/rules", "", body)),
            [""],
            "{body:?}"
        );
    }
    let wrong = json!({
        "id": "no id", "identity_type": "cookie", "priority": 1.5, "enabled": "yes", "burst": 3,
        "config": {"algorithm": "token_bucket", "capacity": -1, "refill_rate": 0.1234567},
        "match": {"path": "x", "methods": "GET"},
    });
    let answer = create(at, &wrong);
    let mut named = faults(&answer);
    named.sort();
    assert_eq!(
        named,
        [
            "burst",
            "config.capacity",
            "config.refill_rate",
            "enabled",
            "id",
            "identity_type",
            "match.methods",
            "match.path",
            "priority",
        ]
    );
    let document = answer.json();
    assert_eq!(
        (&document["status"], &document["instance"]),
        (&json!(400), &json!("/rules"))
    );
    assert_eq!(
        document["request_id"],
        answer.header("x-request-id").unwrap()
    );
    let rate = document["errors"].as_array().unwrap();
    let rate = rate
        .iter()
        .find(|it| it["field"] == "config.refill_rate")
        .unwrap();
    assert_eq!(rate["value"], "0.1234567");
    assert!(
        rate["problem"].as_str().unwrap().contains("0.123457"),
        "{rate}"
    );

    // What nobody should read again is not repeated.
    let secret = with(
        rule("a", 5),
        "match",
        json!({"identity_values": [5, ""], "headers": {"authorization": "s3cr3t\n"}}),
    );
    let answer = create(at, &secret);
    assert_eq!(faults(&answer).len(), 3);
    assert!(!answer.text().contains("s3cr3t"));

    assert_eq!(create(at, &rule("a", 5)).status, 201);
    for (method, target) in [("PUT", "/rules/a"), ("PATCH", "/rules/a")] {
        faults(&send(at, method, target, "", "[1"));
    }
    assert_eq!(faults(&call(at, "PUT", "/rules/a", &rule("b", 5))), ["id"]);
    let large = with(rule("b", 5), "name", json!("x".repeat(300_000)));
    assert_eq!(create(at, &large).status, 413);
}

#[test]
fn put_changes_numbers_and_says_what_became_of_the_counters() {
    on_each_store(|gateway| {
        let at = gateway.address;
        create(at, &rule("a", 3));
        for _ in 0..3 {
            assert_eq!(status(gateway, "x"), 200);
        }
        assert_eq!(status(gateway, "x"), 429);
        let put = |rule: &Value| call(at, "PUT", "/rules/a", rule);
        let more = put(&rule("a", 5));
        assert_eq!(
            (more.status, &more.json()["counters"]),
            (200, &json!("kept"))
        );
        assert_eq!(
            [
                status(gateway, "x"),
                status(gateway, "x"),
                status(gateway, "x")
            ],
            [200, 200, 429],
            "3 of the 5 were used"
        );
        assert_eq!(get(at, "/rules/a").json(), rule("a", 5));

        let mut other = rule("a", 5);
        other["config"]["window_seconds"] = json!(7200);
        other.as_object_mut().unwrap().remove("id");
        let answer = put(&other);
        assert_eq!(
            (answer.status, &answer.json()["counters"]),
            (200, &json!("fresh"))
        );
        assert_eq!(status(gateway, "x"), 200);

        let algorithm = json!({"algorithm": "fixed_window", "limit": 5, "window_seconds": 7200});
        let refused = put(&with(rule("a", 5), "config", algorithm));
        assert_eq!(refused.status, 409);
        assert!(
            refused.json()["detail"]
                .as_str()
                .unwrap()
                .contains("algorithm")
        );
        assert_eq!(
            put(&with(rule("a", 5), "identity_type", json!("phone"))).status,
            409
        );
        let synonym = json!({"algorithm": "sliding_log", "limit": 5, "window_seconds": 7200});
        let same = put(&with(rule("a", 5), "config", synonym.clone()));
        assert_eq!(
            (same.status, &same.json()["counters"]),
            (200, &json!("kept"))
        );
        assert_eq!(
            get(at, "/rules/a").json()["config"],
            synonym,
            "as it was written"
        );

        // What it is for may change, to what no other rule is for.
        create(at, &with(rule("b", 5), "match", json!({"path": "/b"})));
        let moved = put(&with(rule("a", 5), "match", json!({"path": "/b"})));
        assert_eq!(moved.status, 409);
        assert!(moved.json()["detail"].as_str().unwrap().contains("rule b"));
        assert_eq!(
            put(&with(rule("a", 5), "match", json!({"path": "/a"}))).status,
            200
        );
        assert_eq!(create(at, &rule("c", 5)).status, 201, "the place is free");
    });
}

#[test]
fn lists_have_pages() {
    on_each_store(|gateway| {
        let at = gateway.address;
        for n in 0..5 {
            let path = json!({"path": format!("/p{n}")});
            create(at, &with(rule(&format!("r{n}"), 5), "match", path));
        }
        let mut target = "/rules?limit=2".to_owned();
        let mut pages = Vec::new();
        loop {
            let answer = get(at, &target);
            let ids: Vec<_> = answer
                .json()
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it["id"].clone())
                .collect();
            pages.push(ids);
            let Some(link) = answer.header("link") else {
                break;
            };
            let next = link
                .strip_prefix('<')
                .unwrap()
                .strip_suffix(">; rel=\"next\"")
                .unwrap();
            target = next.to_owned();
        }
        assert_eq!(pages, [vec!["r0", "r1"], vec!["r2", "r3"], vec!["r4"]]);
        assert_eq!(get(at, "/rules?limit=5").header("link"), None);
        let wrong = get(at, "/rules?limit=0&cursor=a%20b&page=2");
        assert_eq!(faults(&wrong), ["limit", "cursor", "page"]);
    });
}

#[test]
fn s47_s48_s52_rules_are_chosen_by_type_priority_and_identity() {
    on_each_store(|gateway| {
        let at = gateway.address;
        let limit = |key: &str| {
            let headers = if key.is_empty() {
                String::new()
            } else {
                format!("X-API-Key: {key}\r\n")
            };
            let answer = send(at, "GET", "/orders", &headers, "");
            answer.header("x-ratelimit-limit").unwrap().to_owned()
        };
        assert_eq!(
            [limit("alice"), limit("")],
            ["100", "100"],
            "no rule is needed"
        );
        create(at, &rule("low", 7));
        assert_eq!(
            [limit("alice"), limit("")],
            ["7", "100"],
            "only those of the type"
        );
        let high = with(rule("high", 9), "priority", json!(2));
        create(at, &with(high, "match", json!({"path": "/orders"})));
        assert_eq!(limit("alice"), "9");
        let one = with(rule("one", 11), "priority", json!(3));
        create(
            at,
            &with(one, "match", json!({"identity_values": ["alice", "carol"]})),
        );
        assert_eq!(
            [limit("alice"), limit("bob"), limit("carol")],
            ["11", "9", "11"]
        );
        call(at, "PATCH", "/rules/one", &json!({"enabled": false}));
        assert_eq!(limit("alice"), "9");
    });
}

#[test]
fn s49_of_many_that_create_the_same_one_does() {
    on_each_store(|gateway| {
        let at = gateway.address;
        let race = |rules: Vec<Value>| {
            let tries: Vec<_> = rules
                .into_iter()
                .map(|rule| std::thread::spawn(move || create(at, &rule).status))
                .collect();
            let mut statuses: Vec<_> = tries.into_iter().map(|it| it.join().unwrap()).collect();
            statuses.sort_unstable();
            statuses
        };
        let one_of = |many: usize| {
            let mut expected = vec![409; many];
            expected[0] = 201;
            expected
        };
        let ids = (0..24).map(|n| rule(&format!("r{n}"), 5)).collect();
        assert_eq!(race(ids), one_of(24));
        let paths =
            (0..24).map(|n| with(rule("same", 5), "match", json!({"path": format!("/{n}")})));
        assert_eq!(race(paths.collect()), one_of(24));
        assert_eq!(get(at, "/rules").json().as_array().unwrap().len(), 2);
    });
}

#[test]
fn s54_every_algorithm_is_a_rule_like_any_other() {
    on_each_store(|gateway| {
        let at = gateway.address;
        for (config, statuses) in [
            (
                json!({"algorithm": "sliding_window", "limit": 2, "window_seconds": 3600}),
                [200, 200, 429],
            ),
            (
                json!({"algorithm": "sliding_log", "limit": 2, "window_seconds": 3600}),
                [200, 200, 429],
            ),
            (
                json!({"algorithm": "sliding_counter", "limit": 2, "window_seconds": 3600}),
                [200, 200, 429],
            ),
            (
                json!({"algorithm": "fixed_window", "limit": 2, "window_seconds": 86400}),
                [200, 200, 429],
            ),
            (
                json!({"algorithm": "token_bucket", "capacity": 2, "refill_rate": 0.0001}),
                [200, 200, 429],
            ),
            (
                json!({"algorithm": "concurrency", "slots": 1}),
                [200, 200, 200],
            ),
            (
                json!({"algorithm": "fixed_window", "limit": 0, "window_seconds": 60}),
                [429, 429, 429],
            ),
        ] {
            let created = create(at, &with(rule("a", 0), "config", config.clone()));
            assert_eq!(created.status, 201, "{created:?}");
            let key = format!("{}{}", config["algorithm"], statuses[0]);
            let got = [(); 3].map(|()| status(gateway, &key));
            assert_eq!(got, statuses, "{config}");
            call(at, "DELETE", "/rules/a", &Value::Null);
        }
        let several = json!([
            {"algorithm": "fixed_window", "limit": 5, "window_seconds": 86400},
            {"algorithm": "token_bucket", "capacity": 1, "refill_rate": 0.0001},
        ]);
        let mut rule = with(rule("a", 0), "quotas", several);
        rule.as_object_mut().unwrap().remove("config");
        assert_eq!(create(at, &rule).status, 201);
        assert_eq!([status(gateway, "m"), status(gateway, "m")], [200, 429]);
    });
}

#[test]
fn mode_cost_and_times_of_a_rule() {
    let gateway = super::gateway("memory://");
    let at = gateway.address;
    let costs = with(rule("a", 5), "cost", json!(3));
    create(at, &costs);
    assert_eq!([status(&gateway, "x"), status(&gateway, "x")], [200, 429]);
    let shadow = with(costs.clone(), "mode", json!("shadow"));
    assert_eq!(
        call(at, "PUT", "/rules/a", &shadow).json()["counters"],
        "kept"
    );
    assert_eq!([status(&gateway, "x"), status(&gateway, "x")], [200, 200]);
    call(
        at,
        "PUT",
        "/rules/a",
        &with(costs.clone(), "mode", json!("off")),
    );
    assert_eq!([status(&gateway, "x"), status(&gateway, "x")], [200, 200]);
    call(at, "PUT", "/rules/a", &costs);
    assert_eq!(status(&gateway, "x"), 429);
    call(
        at,
        "PUT",
        "/rules/a",
        &with(costs.clone(), "expires", json!("2020-01-01T00:00:00Z")),
    );
    assert_eq!(status(&gateway, "x"), 200, "the default rule");
    call(
        at,
        "PUT",
        "/rules/a",
        &with(costs, "not_before", json!("2999-01-01T00:00:00Z")),
    );
    assert_eq!(status(&gateway, "x"), 200, "the default rule");
}

/// The memcached backend keeps no rules.
#[cfg(feature = "memcached")]
#[test]
fn a_store_that_keeps_no_rules_says_so() {
    let gateway = Gateway::start_with(
        &[
            "--backend",
            "memcached://127.0.0.1:1",
            "--require-backend-at-start",
            "false",
        ],
        &[super::KEYS],
    );
    assert_eq!(get(gateway.address, "/rules").text(), "[]");
    let refused = create(gateway.address, &rule("a", 5));
    assert_eq!(refused.status, 409);
    assert!(
        refused.json()["detail"]
            .as_str()
            .unwrap()
            .contains("rule file")
    );
}
