//! Which rule a request is counted by.

use super::*;

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

    fn facts(&self) -> Facts<'_> {
        Facts {
            method: &self.method,
            path: self.path,
            headers: &self.headers,
            client: None,
            plan: None,
            now: Timestamp::from_micros(self.at),
        }
    }

    fn of(&self, table: &Table) -> String {
        let value = self.value.as_bytes();
        let chosen = table.choose(IdentityType::ApiKey, value, &self.facts());
        chosen.id().into()
    }

    fn looked_at(&self, table: &Table) -> usize {
        table.looked_at(IdentityType::ApiKey, self.value.as_bytes(), &self.facts())
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

/// What that takes is measured by `benches/src/bin/rules.rs`.
#[test]
fn a_choice_among_a_thousand_rules_looks_at_as_many_as_one_among_a_few() {
    let rules = |many: usize| -> Vec<Value> {
        let matching_of = |n: usize| match n % 4 {
            0 => json!({"path": format!("/v1/service{n}/items")}),
            1 => json!({"path": format!("/v1/service{n}/{{id}}/*"), "methods": ["POST"]}),
            2 => json!({"identity_values": [format!("client{n}")]}),
            _ => json!({"headers": {"x-tenant": format!("tenant{n}")}}),
        };
        let rule = |n| matching(&format!("r{n}"), 1, matching_of(n));
        let last = matching("last", 0, json!({}));
        (0..many - 1).map(rule).chain([last]).collect()
    };
    let (few, many) = (table(&rules(9)), table(&rules(1_000)));
    for (method, path, value, tenant, chosen) in [
        ("GET", "/v1/service/items", "somebody", "nobody", "last"),
        ("GET", "/v1/service4/items", "somebody", "nobody", "r4"),
        ("POST", "/v1/service5/7/items", "somebody", "nobody", "r5"),
        ("GET", "/v1/service5/7/items", "somebody", "nobody", "last"),
        ("GET", "/", "client6", "nobody", "r6"),
        ("GET", "/", "somebody", "tenant7", "r7"),
    ] {
        let mut asked = Asked::new(method, path, value);
        asked.headers.insert("x-tenant", tenant.parse().unwrap());
        assert_eq!(asked.of(&few), chosen);
        assert_eq!(asked.of(&many), chosen);
        let looked = asked.looked_at(&many);
        assert_eq!(looked, asked.looked_at(&few), "{path} {value} {tenant}");
        assert!(
            (1..=8).contains(&looked),
            "{looked}: {path} {value} {tenant}"
        );
    }
}
