use serde_json::{Value, json};
use tollgate::{Limiter, MAX_EXACT, Timestamp};
use tollgate_http::HeaderStyle;

use super::*;

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

fn table(rules: &[Value]) -> Table {
    let compiler = compiler();
    let rules = rules.iter().map(|it| Rule::read(it).unwrap()).collect();
    let (table, failed) = Table::empty(&compiler).unwrap().with(&compiler, rules);
    assert_eq!(failed, []);
    table
}

struct Asked {
    method: http::Method,
    path: &'static str,
    headers: http::HeaderMap,
    value: &'static str,
    at: u64,
}

impl Asked {
    fn new(method: &str, path: &'static str, value: &'static str) -> Self {
        Self {
            method: method.parse().unwrap(),
            path,
            headers: http::HeaderMap::new(),
            value,
            at: 1_800_000_000_000_000,
        }
    }

    fn of(&self, table: &Table) -> String {
        let facts = Facts {
            method: &self.method,
            path: self.path,
            headers: &self.headers,
            client: None,
            plan: None,
            now: Timestamp::from_micros(self.at),
        };
        table
            .choose(IdentityType::ApiKey, self.value.as_bytes(), &facts)
            .id()
            .into()
    }
}

fn matching(id: &str, priority: i32, matching: Value) -> Value {
    let mut rule = with("match", matching);
    rule["id"] = json!(id);
    rule["priority"] = json!(priority);
    rule
}

#[test]
fn s47_s48_s52_the_highest_priority_wins_and_none_is_the_default() {
    let mut off = matching("off", 9, json!({}));
    off["enabled"] = json!(false);
    let mut other = matching("other", 9, json!({}));
    other["identity_type"] = json!("user_id");
    let rules = [
        off,
        other,
        matching("low", 1, json!({})),
        matching("high", 2, json!({"path": "/a"})),
        matching(
            "alice",
            0,
            json!({"identity_values": ["alice"], "path": "/only"}),
        ),
    ];
    let all = table(&rules);
    assert_eq!(Asked::new("GET", "/a", "bob").of(&all), "high");
    assert_eq!(Asked::new("GET", "/b", "bob").of(&all), "low");
    assert_eq!(Asked::new("GET", "/only", "alice").of(&all), "low");
    assert_eq!(Asked::new("GET", "/", "bob").of(&table(&[])), DEFAULT_ID);
    assert_eq!(
        Asked::new("GET", "/", "bob").of(&table(&rules[..2])),
        DEFAULT_ID
    );
}

#[test]
fn b129_ties_are_decided_by_what_says_more_and_then_by_the_id() {
    // Each goes before all that follow.
    let mut order = vec![
        matching(
            "z0",
            0,
            json!({"identity_values": ["alice"], "headers": {"x-a": "1"}}),
        ),
        matching(
            "z1",
            0,
            json!({"identity_values": ["alice"], "path": "/a/b/c"}),
        ),
        matching("z2", 0, json!({"identity_values": ["alice"]})),
        matching("y", 0, json!({"headers": {"x-a": "1"}, "path": "/*"})),
        matching("x", 0, json!({"headers": {"x-a": "1"}})),
        matching("w0", 0, json!({"path": "/a/b/c", "methods": ["GET"]})),
        matching("w1", 0, json!({"path": "/a/b/c"})),
        matching("v", 0, json!({"path": "/a/{longer}/c"})),
        matching("u", 0, json!({"path": "/a/{x}/c"})),
        matching("t", 0, json!({"path": "/a/b/*"})),
        matching("s", 0, json!({"path": "/a/*"})),
        matching("r", 0, json!({"path": "/*"})),
        matching("q", 0, json!({"methods": ["GET"]})),
        matching("b", 0, json!({})),
    ];
    let mut later = matching("c", 0, json!({}));
    later["config"] = json!({"algorithm": "fixed_window", "limit": 3, "window_seconds": 60});
    order.push(later);
    let mut asked = Asked::new("GET", "/a/b/c", "alice");
    asked.headers.insert("x-a", "1".parse().unwrap());
    for from in 0..order.len() {
        for turn in 0..3 {
            let mut rules = order[from..].to_vec();
            let length = rules.len();
            rules.rotate_left(turn * 5 % length);
            assert_eq!(
                asked.of(&table(&rules)),
                order[from]["id"].as_str().unwrap()
            );
        }
    }
}

#[test]
fn the_index_finds_what_looking_at_each_rule_finds() {
    // Few words, so that much matches and much is equal.
    let mut seed = 7_u64;
    let mut pick = |of: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % of
    };
    let parts = ["a", "b", "{x}"];
    for round in 0..60 {
        let mut rules = Vec::new();
        for n in 0..1 + round % 40 {
            let mut it = json!({});
            if pick(3) > 0 {
                let mut path = String::new();
                for _ in 0..1 + pick(3) {
                    path.push('/');
                    path.push_str(parts[pick(3)]);
                }
                if pick(3) == 0 {
                    path.push_str("/*");
                }
                it["path"] = json!(path);
            }
            if pick(3) == 0 {
                it["methods"] = json!([(["GET", "POST"][pick(2)])]);
            }
            if pick(3) == 0 {
                it["identity_values"] = json!([(["alice", "bob"][pick(2)]), "carol"]);
            }
            if pick(3) == 0 {
                it["headers"] = json!({(["x-a", "x-b"][pick(2)]): (["1", "2"][pick(2)])});
            }
            let mut rule = matching(&format!("r{n}"), pick(2) as i32, it);
            if pick(5) == 0 {
                rule["expires"] = json!("2026-01-01T00:00:00Z");
            }
            rules.push(rule);
        }
        let table = table(&rules);
        for _ in 0..40 {
            let path: &'static str = ["/a", "/a/b", "/a/b/a", "/b/a/", "/", "/c", "*"][pick(7)];
            let mut asked = Asked::new(
                ["GET", "HEAD", "POST"][pick(3)],
                path,
                ["alice", "bob", "carol", "dave"][pick(4)],
            );
            asked.at = [1_700_000_000_000_000, 1_800_000_000_000_000][pick(2)];
            for name in ["x-a", "x-b"] {
                if pick(2) == 0 {
                    asked
                        .headers
                        .insert(name, ["1", "2"][pick(2)].parse().unwrap());
                }
            }
            assert_eq!(
                asked.of(&table),
                slowly(&table, &asked),
                "{rules:#?} {path}"
            );
        }
    }
}

/// The first of all rules that match, by reading each.
fn slowly(table: &Table, asked: &Asked) -> String {
    let mut found: Vec<&Rule> = table
        .all()
        .map(|it| it.rule())
        .filter(|rule| {
            let it = rule.matching.clone().unwrap_or_default();
            let method = if asked.method == "HEAD" {
                "GET"
            } else {
                asked.method.as_str()
            };
            rule.expires
                .as_ref()
                .is_none_or(|end| asked.at < end.as_micros())
                && it
                    .path
                    .is_none_or(|path| Pattern::parse(&path).unwrap().matches(asked.path))
                && (it.methods.is_empty() || it.methods.iter().any(|one| one == method))
                && (it.identity_values.is_empty()
                    || it.identity_values.iter().any(|one| one == asked.value))
                && it.headers.iter().all(|(name, value)| {
                    asked
                        .headers
                        .get(name)
                        .is_some_and(|one| one == value.as_str())
                })
        })
        .collect();
    let says = |rule: &Rule| {
        let it = rule.matching.clone().unwrap_or_default();
        let path = it.path.as_deref().map_or(3, |path| {
            if path.ends_with('*') {
                2
            } else {
                usize::from(path.contains('{'))
            }
        });
        let length = if path == 1 || path == 2 {
            it.path.as_ref().unwrap().len()
        } else {
            0
        };
        (
            -rule.priority,
            it.identity_values.is_empty(),
            it.headers.is_empty(),
            path,
            -(length as isize),
            it.methods.is_empty(),
            rule.id.clone(),
        )
    };
    found.sort_by_key(|rule| says(rule));
    found.first().map_or(DEFAULT_ID, |rule| &rule.id).into()
}

#[test]
fn b126_a_rule_that_did_not_change_is_the_same_object_in_the_next_table() {
    let compiler = compiler();
    let read = |value: &Value| Rule::read(value).unwrap();
    let rules = || {
        vec![
            read(&minimal()),
            read(&matching("b", 1, json!({"path": "/b"}))),
        ]
    };
    let (first, _) = Table::empty(&compiler).unwrap().with(&compiler, rules());
    let mut changed = rules();
    changed[1].priority = 7;
    let (second, _) = first.with(&compiler, changed);
    let same = |id: &str| std::sync::Arc::ptr_eq(first.get(id).unwrap(), second.get(id).unwrap());
    assert!(same("a") && !same("b"));
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

/// In an unoptimised build, too. (`benches/src/bin/rules.rs` has the figures of an optimised one.)
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the time it takes is what is tested"
)]
fn a_thousand_rules_cost_no_more_than_2_us_over_one() {
    let rules = |many: usize| -> Vec<Value> {
        let matching_of = |n: usize| match n % 4 {
            0 => json!({"path": format!("/v1/service{n}/items")}),
            1 => json!({"path": format!("/v1/service{n}/{{id}}/*"), "methods": ["POST"]}),
            2 => json!({"identity_values": [format!("client{n}")]}),
            _ => json!({"headers": {"x-tenant": format!("tenant{n}")}}),
        };
        let rule = |n| matching(&format!("r{n}"), 1, matching_of(n));
        let last = matching("last", 0, json!({}));
        (1..many).map(rule).chain([last]).collect()
    };
    let time_of = |table: &Table| {
        let mut asked = Asked::new("GET", "/v1/service/items", "somebody");
        asked.headers.insert("x-tenant", "nobody".parse().unwrap());
        let batch = |_| {
            let start = std::time::Instant::now();
            for _ in 0..100 {
                assert_eq!(std::hint::black_box(&asked).of(table), "last");
            }
            start.elapsed() / 100
        };
        // The fastest is the one that nobody disturbed.
        (0..200).map(batch).min().unwrap()
    };
    let (one, thousand) = (table(&rules(1)), table(&rules(1_000)));
    let (few, many) = (time_of(&one), time_of(&thousand));
    let more = many.saturating_sub(few);
    assert!(
        more <= std::time::Duration::from_micros(2),
        "{few:?} and {many:?}"
    );
}
