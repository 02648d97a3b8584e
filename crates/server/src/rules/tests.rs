use serde_json::{Value, json};
use tollgate::{Limiter, MAX_EXACT, Timestamp};
use tollgate_http::HeaderStyle;

use super::*;

mod choice;

fn compiler() -> Compiler {
    let limiter = Limiter::builder(tollgate::memory::MemoryBackend::new()).build();
    Compiler {
        limiter,
        headers: HeaderStyle::GATEWAY,
        default: vec!["100/60s sliding_log".parse().unwrap()],
        normalise: std::sync::Arc::new(|_, value| value.into()),
    }
}

fn minimal() -> Value {
    json!({
        "id": "a", "name": "A", "identity_type": "api_key", "priority": 3, "enabled": true,
        "config": {"algorithm": "sliding_window", "limit": 100, "window_seconds": 60},
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut rule = minimal();
    rule[field] = value;
    rule
}

fn fields(value: &Value) -> Vec<String> {
    match Rule::read(value) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.all().iter().map(|it| it.field.clone()).collect(),
    }
}

#[test]
fn s42_s43_s44_rules_come_back_as_they_were_written() {
    for config in [
        json!({"algorithm": "sliding_window", "limit": 100, "window_seconds": 60}),
        json!({"algorithm": "sliding_log", "limit": 100, "window_seconds": 0.5}),
        json!({"algorithm": "sliding_counter", "limit": 100, "window_seconds": 60}),
        json!({"algorithm": "fixed_window", "limit": 0, "window_seconds": 60}),
        json!({"algorithm": "token_bucket", "capacity": 50, "refill_rate": 5}),
        json!({"algorithm": "token_bucket", "capacity": 50, "refill_rate": 0.25}),
        json!({"algorithm": "concurrency", "slots": 3, "ttl_seconds": 30, "wait_seconds": 0.5}),
    ] {
        let rule = with("config", config);
        let read = Rule::read(&rule).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), rule);
        let stored: Value = serde_json::from_slice(&read.to_json()).unwrap();
        assert_eq!(stored, rule);
    }
    let mut rule = minimal();
    rule.as_object_mut().unwrap().remove("config");
    for (field, value) in [
        (
            "quotas",
            json!([
                {"algorithm": "fixed_window", "limit": 10, "window_seconds": 1},
                {"algorithm": "concurrency", "slots": 3, "ttl_seconds": 60, "wait_seconds": 0},
            ]),
        ),
        (
            "match",
            json!({"path": "/a/{x}", "methods": ["GET", "PUT"], "identity_values": ["x"], "headers": {"x-a": "1"}}),
        ),
        ("cost", json!(2)),
        ("mode", json!("shadow")),
        ("not_before", json!("2026-01-01T00:00:00Z")),
        ("expires", json!("2026-01-01T01:00:00+00:30")),
        (
            "limit_from",
            json!({"header": "x-plan", "plans": {"pro": {"algorithm": "token_bucket", "capacity": 5, "refill_rate": 1}}}),
        ),
        (
            "exempt",
            json!({"networks": ["10.0.0.0/8"], "paths": ["/live"], "methods": ["OPTIONS"]}),
        ),
    ] {
        rule[field] = value;
    }
    let read = Rule::read(&rule).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), rule);
    assert_eq!(read.algorithm(), "multi");
}

#[test]
fn what_may_be_left_out_has_defaults() {
    let rule = Rule::read(&json!({
        "identity_type": "global",
        "config": {"algorithm": "concurrency", "slots": 1},
    }))
    .unwrap();
    assert_eq!(rule.id.len(), 26);
    assert_eq!((rule.priority, rule.enabled, rule.cost), (0, true, 1));
    assert_eq!(rule.name, rule.id);
}

#[test]
fn every_fault_is_named_by_its_field() {
    for (value, expected) in [
        (json!([]), vec![""]),
        (json!({}), vec!["identity_type", "config"]),
        (with("id", json!("a b")), vec!["id"]),
        (with("id", json!("x".repeat(65))), vec!["id"]),
        (with("id", json!("default")), vec!["id"]),
        (with("id", json!(5)), vec!["id"]),
        (with("name", json!("")), vec!["name"]),
        (with("priority", json!(1.5)), vec!["priority"]),
        (with("priority", json!(1_u64 << 40)), vec!["priority"]),
        (with("enabled", json!("yes")), vec!["enabled"]),
        (
            with("identity_type", json!("cookie")),
            vec!["identity_type"],
        ),
        (with("flavour", json!(1)), vec!["flavour"]),
        (with("managed_by", json!("file")), vec!["managed_by"]),
        (with("cost", json!(0)), vec!["cost"]),
        (with("cost", json!(-1)), vec!["cost"]),
        (with("cost", json!(101)), vec!["cost"]),
        (with("mode", json!("dry")), vec!["mode"]),
        (with("not_before", json!("tomorrow")), vec!["not_before"]),
        (with("quotas", json!([])), vec!["quotas"]),
        (
            with("config", json!({"algorithm": "leaky"})),
            vec!["config.algorithm"],
        ),
        (
            // Whichever was meant, these are wrong.
            with(
                "config",
                json!({"algorithm": "sliding_windw", "limit": -1, "window_seconds": 0, "lmit": 1}),
            ),
            vec![
                "config.algorithm",
                "config.limit",
                "config.window_seconds",
                "config.lmit",
            ],
        ),
        (
            with(
                "config",
                json!({"capacity": 5, "refill_rate": 0, "slots": 0}),
            ),
            vec!["config.algorithm", "config.refill_rate", "config.slots"],
        ),
        (
            with(
                "config",
                json!({"algorithm": "sliding_window", "limit": -1, "window_seconds": 0, "burst": 3}),
            ),
            vec!["config.limit", "config.window_seconds", "config.burst"],
        ),
        (
            with(
                "config",
                json!({"algorithm": "token_bucket", "capacity": 1.5, "refill_rate": 0.3333333}),
            ),
            vec!["config.capacity", "config.refill_rate"],
        ),
        (
            with(
                "config",
                json!({"algorithm": "fixed_window", "limit": MAX_EXACT + 1, "window_seconds": 1}),
            ),
            vec!["config.limit"],
        ),
        (
            with(
                "config",
                json!({"algorithm": "fixed_window", "limit": 1, "window_seconds": 0.0001}),
            ),
            vec!["config.window_seconds"],
        ),
        (
            with(
                "config",
                json!({"algorithm": "concurrency", "slots": 0, "ttl_seconds": 0.01, "wait_seconds": 301}),
            ),
            vec!["config.slots", "config.ttl_seconds", "config.wait_seconds"],
        ),
        (
            with(
                "match",
                json!({"path": "a", "methods": ["G T", 5], "identity_values": [""], "headers": {"a b": "x"}, "host": 1}),
            ),
            vec![
                "match.path",
                "match.methods[0]",
                "match.methods[1]",
                "match.identity_values[0]",
                "match.headers.a b",
                "match.host",
            ],
        ),
        (
            with("limit_from", json!({"plans": {}})),
            vec!["limit_from.plans"],
        ),
        (
            with(
                "limit_from",
                json!({"plans": {"p": {"algorithm": "fixed_window"}}}),
            ),
            vec![
                "limit_from.plans.p.limit",
                "limit_from.plans.p.window_seconds",
            ],
        ),
        (
            with("exempt", json!({"networks": ["10.0.0.0/99"]})),
            vec!["exempt.networks[0]"],
        ),
    ] {
        assert_eq!(fields(&value), expected, "{value}");
    }
    let mut both = with("not_before", json!("2026-01-01T00:00:00Z"));
    both["expires"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(fields(&both), ["expires"]);
}

#[test]
fn a_fault_names_value_and_fix() {
    let faults = Rule::read(&with(
        "config",
        json!({
            "algorithm": "token_bucket", "capacity": 5, "refill_rate": 0.12345678,
        }),
    ))
    .unwrap_err();
    let text = faults.to_string();
    assert!(
        text.starts_with("config.refill_rate: 0.12345678 "),
        "{text}"
    );
    assert!(text.contains("0.123457"), "{text}");
}

#[test]
fn s49_rules_are_unique_by_type_algorithm_and_match() {
    let key = |value: &Value| Rule::read(value).unwrap().uniqueness();
    assert_eq!(key(&minimal()), "api_key:sliding_window");
    let log = with(
        "config",
        json!({"algorithm": "sliding_log", "limit": 1, "window_seconds": 1}),
    );
    assert_eq!(key(&log), "api_key:sliding_window");
    let a = key(&with(
        "match",
        json!({"methods": ["post", "GET", "get"], "headers": {"X-A": "1"}}),
    ));
    let b = key(&with(
        "match",
        json!({"headers": {"x-a": "1"}, "methods": ["GET", "POST"]}),
    ));
    assert_eq!(a, b);
    let digest = a.strip_prefix("api_key:sliding_window:").unwrap();
    assert_eq!(digest.len(), 64);
    assert_eq!(key(&with("match", json!({}))), "api_key:sliding_window");
}

#[test]
fn plans_exemptions_and_blocks() {
    let mut rule = minimal();
    rule["limit_from"] = json!({"plans": {
        "pro": {"algorithm": "fixed_window", "limit": 7, "window_seconds": 1},
        "none": {"algorithm": "fixed_window", "limit": 0, "window_seconds": 1},
    }});
    rule["exempt"] = json!({"networks": ["10.0.0.0/8"], "identity_values": ["sha256:".to_owned()
        + "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90"]});
    let live = compiler().live(Rule::read(&rule).unwrap()).unwrap();
    let (method, headers) = (http::Method::GET, http::HeaderMap::new());
    let facts = |plan, client: &str| Facts {
        method: &method,
        path: "/",
        headers: &headers,
        client: Some(client.parse().unwrap()),
        plan,
        now: Timestamp::default(),
    };
    let name = |ruling: Ruling<'_>| match ruling {
        Ruling::Free => "free".to_owned(),
        Ruling::Blocked => "blocked".into(),
        Ruling::Counted(it) => it.limit.as_ref().unwrap().name().into(),
    };
    let ruling =
        |value: &str, plan, client| name(live.ruling(value.as_bytes(), &facts(plan, client)));
    assert_eq!(ruling("bob", None, "8.8.8.8"), "sliding_window:a:api_key");
    assert_eq!(
        ruling("bob", Some("gold"), "8.8.8.8"),
        "sliding_window:a:api_key"
    );
    assert_eq!(
        ruling("bob", Some("pro"), "8.8.8.8"),
        "fixed_window:a.pro:api_key"
    );
    assert_eq!(ruling("bob", Some("none"), "8.8.8.8"), "blocked");
    assert_eq!(ruling("bob", None, "10.1.1.1"), "free");
    // The digest of alice.
    assert_eq!(ruling("alice", None, "8.8.8.8"), "free");
}

#[cfg(feature = "dynamodb")]
#[tokio::test]
async fn more_slots_than_the_store_can_hold_are_no_rule() {
    let store = tollgate::connect("dynamodb://limits?endpoint=http://127.0.0.1:1").await;
    let compiler = Compiler {
        limiter: Limiter::builder(store.unwrap()).build(),
        ..compiler()
    };
    let rule = |slots: u32| {
        let config = json!({"algorithm": "concurrency", "slots": slots});
        Rule::read(&with("config", config)).unwrap()
    };
    compiler.check(&rule(8_000)).unwrap();
    let error = compiler.check(&rule(8_001)).unwrap_err();
    assert!(error.to_string().contains("at most 8000"), "{error}");
}

#[test]
fn counters_are_kept_while_algorithm_and_period_stay() {
    let rule = |config: Value| Rule::read(&with("config", config)).unwrap();
    let window = |limit: u64, seconds: u64| {
        rule(json!({"algorithm": "fixed_window", "limit": limit, "window_seconds": seconds}))
    };
    assert!(window(5, 60).keeps_counters_of(&window(9, 60)));
    assert!(!window(5, 60).keeps_counters_of(&window(5, 61)));
    let bucket = |capacity: u64, rate: f64| {
        rule(json!({"algorithm": "token_bucket", "capacity": capacity, "refill_rate": rate}))
    };
    assert!(bucket(5, 1.0).keeps_counters_of(&bucket(9, 2.5)));
}
