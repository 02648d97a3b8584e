//! What a request pays for there being many rules: the choice of its rule among 1,000, and among 1,
//! in the same run. The rules differ by path, identity, header field and method, so that every part
//! of the index is in use, and the request looked at last is matched by the last of them.
//!
//! ```text
//! rules [--rules 1,1000] [--seconds 1] [--rounds 5]
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a driver, which measures and fails by panicking"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tollgate::{Limiter, Timestamp};
use tollgate_benches::{list, median, number};
use tollgate_http::HeaderStyle;
use tollgate_server::rules::{Compiler, Facts, IdentityType, Rule, Table};

/// The rule of this number; the last one says least, so that no request goes without.
fn rule(n: usize, of: usize) -> Value {
    let config =
        json!({"algorithm": "token_bucket", "capacity": 1_000_000_000, "refill_rate": 1_000_000});
    let mut rule = json!({"id": format!("r{n}"), "identity_type": "api_key", "config": config});
    if n + 1 < of {
        rule["match"] = match n % 5 {
            0 => json!({"path": format!("/v1/service{n}/items")}),
            1 => json!({"path": format!("/v1/service{n}/{{id}}/*"), "methods": ["POST"]}),
            2 => json!({"identity_values": [format!("client{n}")]}),
            3 => json!({"headers": {"x-tenant": format!("tenant{n}")}}),
            _ => json!({"path": format!("/{{any}}/service{n}"), "headers": {"x-tenant": "a"}}),
        };
    }
    rule
}

fn table(rules: usize) -> Table {
    let compiler = Compiler {
        limiter: Limiter::builder(tollgate::memory::MemoryBackend::new()).build(),
        headers: HeaderStyle::GATEWAY,
        default: vec!["100/60s".parse().unwrap()],
        normalise: Arc::new(|_, value| value.into()),
    };
    let all = (0..rules).map(|n| Rule::read(&rule(n, rules)).unwrap());
    let (table, failed) = Table::empty(&compiler)
        .unwrap()
        .with(&compiler, all.collect());
    assert!(failed.is_empty(), "{failed:?}");
    table
}

/// Nanoseconds a choice.
fn measure(table: &Table, path: &str, value: &str, tenant: &str, time: Duration) -> f64 {
    let mut headers = HeaderMap::new();
    for name in ["host", "user-agent", "accept", "accept-encoding", "cookie"] {
        headers.insert(name, "a value of common length".parse().unwrap());
    }
    headers.insert("x-tenant", tenant.parse().unwrap());
    let facts = Facts {
        method: &Method::GET,
        path,
        headers: &headers,
        client: None,
        plan: None,
        now: Timestamp::from_micros(1_800_000_000_000_000),
    };
    let (start, mut calls) = (Instant::now(), 0_u64);
    while start.elapsed() < time {
        for _ in 0..1_000 {
            black_box(table.choose(
                IdentityType::ApiKey,
                black_box(value.as_bytes()),
                black_box(&facts),
            ));
        }
        calls += 1_000;
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sizes: Vec<usize> = list("rules", "1,1000")
        .iter()
        .map(|it| it.parse().unwrap())
        .collect();
    let time = Duration::from_secs_f64(number("seconds", 1) as f64 / 3.0);
    let rounds = number("rounds", 5);
    let requests = [
        ("of the last rule", "/v1/orders/7", "somebody", "nobody"),
        ("of a path", "/v1/service500/items", "somebody", "nobody"),
        (
            "of an identity",
            "/v1/service500/items",
            "client502",
            "tenant503",
        ),
    ];
    let tables: Vec<_> = sizes.iter().map(|it| table(*it)).collect();
    let mut found = vec![vec![Vec::new(); sizes.len()]; requests.len()];
    for _ in 0..rounds {
        for (row, (_, path, value, tenant)) in requests.iter().enumerate() {
            for (column, table) in tables.iter().enumerate() {
                found[row][column].push(measure(table, path, value, tenant, time));
            }
        }
    }
    println!(
        "{:<20}{:>10}{:>14}{:>20}",
        "a request", "rules", "ns a choice", "more than with the first"
    );
    for (row, (name, ..)) in requests.iter().enumerate() {
        let first = median(found[row][0].clone());
        for (column, size) in sizes.iter().enumerate() {
            let time = median(found[row][column].clone());
            println!("{name:<20}{size:>10}{time:>14.0}{:>17.0} ns", time - first);
        }
    }
}
