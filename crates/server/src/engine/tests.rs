//! What rules do to a request, on a store in memory.

use http::Request;
use serde_json::json;
use tollgate::{Connect, Limiter};
use tollgate_http::{BodyStyle, HeaderStyle};

use super::*;
use crate::identity::{IdentityType, Options};
use crate::rules::{Compiler, Rule, Table};

async fn engine(default: &str, rules: serde_json::Value) -> Engine {
    let backend = Connect::new("memory://").connect().await.unwrap();
    let blocks = Blocks::of(&backend, "rate-limit");
    let compiler = Compiler {
        limiter: Limiter::builder(backend).build(),
        headers: HeaderStyle::GATEWAY,
        default: tollgate::Quota::parse_list(default).unwrap(),
        normalise: Arc::new(|_, text| text.as_bytes().to_vec()),
    };
    let rules = rules.as_array().unwrap().iter();
    let rules = rules.map(|rule| Rule::read(rule).unwrap()).collect();
    let (table, failed) = Table::empty(&compiler).unwrap().with(&compiler, rules);
    assert!(failed.is_empty(), "{failed:?}");
    let resolver = Resolver::new(Options {
        order: vec![IdentityType::UserId, IdentityType::IpAddress],
        ..Options::default()
    });
    Engine::new(
        Arc::new(resolver.unwrap()),
        Digester::new(None),
        Arc::new(ArcSwap::from_pointee(table)),
        blocks,
    )
}

async fn ask(engine: &Engine, user: &str, path: &str) -> Verdict {
    let request = Request::get(path)
        .header("x-user-id", user)
        .body(())
        .unwrap();
    let client = [203, 0, 113, 9].into();
    engine
        .decide(&request.into_parts().0, client)
        .await
        .unwrap()
}

fn fields(verdict: &Verdict) -> Vec<String> {
    let mut headers = HeaderMap::new();
    verdict.write_headers(&mut headers);
    headers.keys().map(ToString::to_string).collect()
}

fn body(verdict: &Verdict) -> serde_json::Value {
    serde_json::from_slice(&verdict.problem().to_json(BodyStyle::Plain)).unwrap()
}

#[tokio::test]
async fn s47_s48_a_rule_of_the_type_decides_and_else_the_default_for_this_identity() {
    let rule = json!({"id": "r", "identity_type": "user_id",
        "match": {"path": "/a"}, "config": {"algorithm": "token_bucket", "capacity": 1, "refill_rate": 0.001}});
    let engine = engine("2/h", json!([rule])).await;
    let [first, second] = [ask(&engine, "u", "/a").await, ask(&engine, "u", "/a").await];
    assert_eq!((first.allowed(), first.rule_id()), (true, "r"));
    assert_eq!((second.allowed(), second.rule_id()), (false, "r"));
    // Another spelling is no way round it.
    assert!(!ask(&engine, "u", "//a").await.allowed());
    let mut allowed = Vec::new();
    for user in ["u", "u", "u", "v", ""] {
        let verdict = ask(&engine, user, "/b").await;
        assert_eq!(verdict.rule_id(), "default");
        allowed.push(verdict.allowed());
    }
    assert_eq!(allowed, [true, true, false, true, true]);
}

#[tokio::test]
async fn cost_exemptions_and_modes_do_what_they_say() {
    let window =
        |limit: u64| json!({"algorithm": "fixed_window", "limit": limit, "window_seconds": 3600});
    let rule = |id: &str, more: serde_json::Value| {
        let mut rule =
            json!({"id": id, "identity_type": "user_id", "match": {"path": format!("/{id}")}});
        rule.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        rule
    };
    let engine = engine("1000/h", json!([
        rule("cost", json!({"cost": 3, "config": window(7)})),
        rule("none", json!({"config": window(0)})),
        rule("shadow", json!({"mode": "shadow", "config": window(1)})),
        rule("off", json!({"mode": "off", "config": window(1)})),
        rule("exempt", json!({"exempt": {"identity_values": ["friend"]}, "config": window(1)})),
        rule("both", json!({"quotas": [window(2), {"algorithm": "sliding_window", "limit": 5, "window_seconds": 60}]})),
    ])).await;
    let allowed = async |user: &str, path: &str| ask(&engine, user, path).await.allowed();

    assert_eq!(
        [
            allowed("u", "/cost").await,
            allowed("u", "/cost").await,
            allowed("u", "/cost").await
        ],
        [true, true, false]
    );
    let none = ask(&engine, "u", "/none").await;
    assert!(!none.allowed());
    assert_eq!(none.problem().status(), 429);
    assert_eq!(
        body(&none),
        json!({"detail": "Rate limit exceeded", "limit": 0, "remaining": 0, "retry_after": null})
    );
    assert_eq!(fields(&none), ["cache-control"]);

    for _ in 0..3 {
        let shadow = ask(&engine, "u", "/shadow").await;
        assert!(shadow.allowed());
        assert_eq!(fields(&shadow), ["ratelimit-policy"]);
        let off = ask(&engine, "u", "/off").await;
        assert!(off.allowed() && fields(&off).is_empty() && off.origin() == "exempt");
        assert!(allowed("friend", "/exempt").await);
    }
    assert_eq!(
        [allowed("u", "/exempt").await, allowed("u", "/exempt").await],
        [true, false]
    );

    let both = [
        ask(&engine, "u", "/both").await,
        ask(&engine, "u", "/both").await,
        ask(&engine, "u", "/both").await,
    ];
    assert_eq!(
        [both[0].allowed(), both[1].allowed(), both[2].allowed()],
        [true, true, false]
    );
    assert_eq!(both[2].numbers().limit, Some(2));
    assert_eq!(both[1].numbers().limit, Some(2), "the tightest");
}

#[tokio::test]
async fn slots_are_held_by_the_verdict_and_a_full_rule_gives_the_charge_back() {
    let engine = engine(
        "1000/h",
        json!([{"id": "s", "identity_type": "user_id", "quotas": [
            {"algorithm": "fixed_window", "limit": 3, "window_seconds": 3600},
            {"algorithm": "concurrency", "slots": 1, "ttl_seconds": 60, "wait_seconds": 0},
        ]}]),
    )
    .await;
    let mut first = ask(&engine, "u", "/").await;
    let permit = first.take_permit().unwrap();
    assert!(first.allowed());
    assert_eq!(first.numbers().remaining, Some(2));
    for _ in 0..5 {
        let full = ask(&engine, "u", "/").await;
        assert!(!full.allowed());
        assert_eq!(full.problem().status(), 429);
        assert_eq!(body(&full)["limit"], 1);
        assert!(fields(&full).contains(&"retry-after".to_owned()));
    }
    assert!(
        ask(&engine, "v", "/").await.allowed(),
        "each client has slots of its own"
    );
    permit.release().await.unwrap();
    let second = ask(&engine, "u", "/").await;
    assert!(second.allowed());
    assert_eq!(
        second.numbers().remaining,
        Some(1),
        "those that were refused cost nothing"
    );
}

#[tokio::test]
async fn a_block_refuses_until_it_ends_or_is_lifted() {
    let engine = engine("1000/h", json!([])).await;
    let user = Identity::new(IdentityType::UserId, *b"u");
    let key = engine.key(&user);
    let until = SystemClock.now() + std::time::Duration::from_secs(60);
    let blocks = engine.blocks();
    blocks
        .set(IdentityType::UserId, &key, Some(until))
        .await
        .unwrap();
    let blocked = ask(&engine, "u", "/").await;
    assert_eq!((blocked.allowed(), blocked.origin()), (false, "blocked"));
    let wait = body(&blocked)["retry_after"].as_f64().unwrap();
    assert!((59.0..=60.0).contains(&wait), "{wait}");
    assert_eq!(fields(&blocked), ["cache-control", "retry-after"]);
    assert!(ask(&engine, "v", "/").await.allowed());
    // The same text of another type is somebody else.
    assert_eq!(
        blocks.until(IdentityType::Custom, &key, SystemClock.now()),
        None
    );
    blocks.set(IdentityType::UserId, &key, None).await.unwrap();
    assert!(ask(&engine, "u", "/").await.allowed());
    let past = SystemClock.now();
    blocks
        .set(IdentityType::UserId, &key, Some(past))
        .await
        .unwrap();
    assert!(ask(&engine, "u", "/").await.allowed(), "it has ended");
}
