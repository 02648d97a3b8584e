//! Two processes on one Redis.

#![cfg(feature = "redis")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::Reply;

use super::{KEYS, Redis, call, create, gateway, rule, status, with};
use crate::client::get;
use crate::process::{Gateway, eventually};

/// How long it takes until something holds.
fn time_until(mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    eventually("it holds", &mut holds);
    start.elapsed()
}

fn limit(gateway: &Gateway) -> Option<String> {
    let answer = super::send(gateway.address, "GET", "/", "X-API-Key: x\r\n", "");
    answer.header("x-ratelimit-limit").map(str::to_owned)
}

#[test]
fn s50_rules_are_in_two_hashes() {
    let redis = Redis::start();
    let gateway = gateway(&redis.url());
    create(gateway.address, &rule("rule-2", 5));
    let matching = with(rule("rule-3", 5), "match", json!({"path": "/a"}));
    create(gateway.address, &matching);
    let text = |reply: Reply| reply.text().unwrap();
    let stored = text(redis.command(&["HGET", "rules:index", "rule-2"]));
    assert_eq!(
        serde_json::from_str::<Value>(&stored).unwrap(),
        rule("rule-2", 5)
    );
    let field = "api_key:sliding_window";
    assert_eq!(
        text(redis.command(&["HGET", "rules:by-identity-algo", field])),
        "rule-2"
    );
    let Reply::Array(fields) = redis.command(&["HKEYS", "rules:by-identity-algo"]) else {
        panic!("HKEYS answers a list")
    };
    let fields: Vec<_> = fields.into_iter().map(text).collect();
    assert!(
        fields.iter().any(|it| it
            .strip_prefix("api_key:sliding_window:")
            .is_some_and(|it| it.len() == 64)),
        "{fields:?}"
    );
    // What another program wrote there is a rule too, and what is none is told of.
    let other = rule("theirs", 3).to_string().replace("api_key", "user_id");
    redis.command(&["HSET", "rules:index", "theirs", &other]);
    redis.command(&["HSET", "rules:index", "broken", "{\"id\": \"broken\"}"]);
    redis.command(&["HSET", "blocks:index", "broken", "{}"]);
    let gateway = super::gateway(&redis.url());
    eventually("it is told", || {
        gateway
            .log()
            .contains("some blocks in the store say nothing")
    });
    assert_eq!(get(gateway.address, "/rules/theirs").status, 200);
    let ready = get(gateway.address, "/ready").json();
    assert_eq!(ready["checks"]["rules"]["healthy"], false, "{ready}");
    assert!(gateway.log().contains("broken"));
    for id in ["rule-2", "rule-3"] {
        call(
            gateway.address,
            "DELETE",
            &format!("/rules/{id}"),
            &Value::Null,
        );
    }
    assert_eq!(
        redis.command(&["HLEN", "rules:by-identity-algo"]),
        Reply::Integer(0)
    );
}

#[test]
fn s51_a_change_on_one_process_is_enforced_by_another_within_a_second() {
    let redis = Redis::start();
    let [a, b] = [gateway(&redis.url()), gateway(&redis.url())];
    assert_eq!(limit(&b).as_deref(), Some("100"));
    // It listens before it is told of anything.
    eventually("both listen", || {
        redis.command(&["PUBSUB", "NUMSUB", "rules:changes"])
            == Reply::Array(vec![
                Reply::Bulk(b"rules:changes".to_vec()),
                Reply::Integer(2),
            ])
    });
    let change = |from: &Gateway, to: &Gateway, what: &dyn Fn(&Gateway), expected: &str| {
        what(from);
        assert_eq!(
            limit(from).as_deref(),
            Some(expected),
            "at once where it was changed"
        );
        let time = time_until(|| limit(to).as_deref() == Some(expected));
        assert!(time < Duration::from_secs(1), "{time:?}");
    };
    change(&a, &b, &|it| drop(create(it.address, &rule("a", 5))), "5");
    change(
        &b,
        &a,
        &|it| drop(call(it.address, "PUT", "/rules/a", &rule("a", 6))),
        "6",
    );
    let off = json!({"enabled": false});
    change(
        &a,
        &b,
        &|it| drop(call(it.address, "PATCH", "/rules/a", &off)),
        "100",
    );
    let on = json!({"enabled": true});
    change(
        &b,
        &a,
        &|it| drop(call(it.address, "PATCH", "/rules/a", &on)),
        "6",
    );
    change(
        &a,
        &b,
        &|it| drop(call(it.address, "DELETE", "/rules/a", &Value::Null)),
        "100",
    );

    // One connection that broke is made anew.
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("both listen again", || {
        redis.command(&["PUBSUB", "NUMSUB", "rules:changes"])
            == Reply::Array(vec![
                Reply::Bulk(b"rules:changes".to_vec()),
                Reply::Integer(2),
            ])
    });
    change(&a, &b, &|it| drop(create(it.address, &rule("b", 8))), "8");
}

#[test]
fn s51_where_nobody_tells_a_change_is_enforced_within_the_cache_time() {
    let redis = Redis::start();
    redis.command(&[
        "ACL",
        "SETUSER",
        "deaf",
        "on",
        ">pw",
        "~*",
        "+@all",
        "resetchannels",
    ]);
    let a = gateway(&redis.url());
    let url = redis.url().replace("redis://", "redis://deaf:pw@");
    let b = Gateway::start_with(
        &["--backend", &url],
        &[KEYS, ("RULE_CACHE_TTL_SECONDS", "2")],
    );
    eventually("it is told that nobody tells", || {
        b.log().contains("nobody tells of changes")
    });
    create(a.address, &rule("a", 5));
    let time = time_until(|| limit(&b).as_deref() == Some("5"));
    // Its own answer may be on its way when the time is over.
    assert!(time < Duration::from_millis(2_500), "{time:?}");
    // Who may not be told may not tell either, and writes all the same.
    assert_eq!(
        call(b.address, "PUT", "/rules/a", &rule("a", 6)).status,
        200
    );
    assert_eq!(limit(&b).as_deref(), Some("6"));
}

#[test]
fn s49_two_processes_race_for_one_place() {
    let redis = Redis::start();
    let gateways = [gateway(&redis.url()), gateway(&redis.url())];
    let tries: Vec<_> = (0..30)
        .map(|n| {
            let at = gateways[n % 2].address;
            std::thread::spawn(move || create(at, &rule(&format!("r{n}"), 5)).status)
        })
        .collect();
    let mut statuses: Vec<_> = tries.into_iter().map(|it| it.join().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses[0], 201);
    assert!(statuses[1..].iter().all(|it| *it == 409), "{statuses:?}");
    assert_eq!(redis.command(&["HLEN", "rules:index"]), Reply::Integer(1));
    assert_eq!(
        redis.command(&["HLEN", "rules:by-identity-algo"]),
        Reply::Integer(1)
    );
}

#[test]
fn rules_stay_in_force_while_the_store_is_down_and_writes_are_503() {
    let mut redis = Redis::start();
    let gateway = Gateway::start_with(
        &["--backend", &redis.url(), "--on-failure", "local"],
        &[KEYS, ("RULE_CACHE_TTL_SECONDS", "1")],
    );
    create(gateway.address, &rule("a", 2));
    redis.server.kill();
    eventually("it is told", || {
        let ready = get(gateway.address, "/ready").json();
        assert!(ready["checks"].get("rules").is_none(), "once is enough");
        ready["checks"]["ratelimit"]["healthy"] == false
    });
    eventually("and of blocks", || {
        gateway
            .log()
            .contains("blocks cannot be read; those known stay")
    });
    let got = [(); 3].map(|()| status(&gateway, "x"));
    assert_eq!(got, [200, 200, 429], "counted here, by the rule");
    let refused = create(gateway.address, &rule("b", 2));
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(get(gateway.address, "/rules").status, 503);
    redis.runtime.block_on(redis.server.restart());
    eventually("rules are read again", || {
        get(gateway.address, "/rules").status == 200
    });
    eventually("blocks, too", || {
        gateway.log().contains("blocks can be read again")
    });
    eventually("all is well", || {
        get(gateway.address, "/ready").json()["status"] == "ok"
    });
}
