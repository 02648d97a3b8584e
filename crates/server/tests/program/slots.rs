//! `tollgate check --slots`, and traces of slots.

use serde_json::{Value, json};

use crate::process::{program, run, text};

const TRACES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../testkit/vectors/leases.jsonl"
);

fn replayed(url: &str) -> (Option<i32>, String, String) {
    let arguments = ["replay", "--check", "--backend", url, TRACES];
    let mut program = program();
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        program.env(name, "test");
    }
    let output = program
        .args(arguments)
        .env("AWS_REGION", "eu-west-1")
        .output()
        .unwrap();
    (
        output.status.code(),
        text(&output.stdout).into(),
        text(&output.stderr).into(),
    )
}

#[track_caller]
fn without_a_difference(url: &str) {
    let (code, told, errors) = replayed(url);
    assert_eq!(code, Some(0), "{told}{errors}");
    let sums: Vec<_> = told.split(' ').collect();
    assert!(sums[0].parse::<u32>().unwrap() >= 100, "{told}");
    assert!(told.ends_with(" steps, 0 differences\n"), "{told}");
}

#[test]
fn traces_of_slots_have_no_difference_in_memory() {
    without_a_difference("memory://");
}

#[cfg(feature = "redis")]
#[test]
fn traces_of_slots_have_no_difference_on_redis() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(tollgate_testkit::RedisServer::start());
    without_a_difference(&redis.url());
}

#[cfg(feature = "dynamodb")]
#[test]
fn traces_of_slots_have_no_difference_on_dynamodb() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(tollgate_testkit::LocalDynamo::start());
    let url = format!("dynamodb://slots?endpoint={}", server.endpoint());
    let made = program()
        .args(["dynamodb", "create-table", &url])
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_REGION", "eu-west-1")
        .output()
        .unwrap();
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    without_a_difference(&url);
}

#[cfg(feature = "memcached")]
#[test]
fn s112_memcached_refuses_traces_of_slots_before_it_runs_any_and_a_slot() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(tollgate_testkit::shared_memcached());
    let (code, told, error) = replayed(server.url());
    assert_eq!((code, &*told), (Some(2), ""));
    assert!(
        error.contains("cannot hold leases; use redis://") && error.lines().count() == 1,
        "{error}"
    );
    let check = [
        "check",
        "--backend",
        server.url(),
        "--slots",
        "4",
        "--key",
        "k",
    ];
    let output = run(&check);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot hold leases; use redis://"));
}

fn check(url: &str, arguments: &[&str]) -> (Option<i32>, Value) {
    let mut all = vec!["check", "--backend", url, "--key", "all"];
    all.extend(arguments);
    let output = run(&all);
    let printed = text(&output.stdout);
    let value = serde_json::from_str(printed).unwrap_or_else(|_| json!(text(&output.stderr)));
    (output.status.code(), value)
}

#[test]
fn a_slot_is_one_line_of_json() {
    let (code, answer) = check("memory://", &["--slots", "4"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        (&answer["allowed"], &answer["in_use"], &answer["limit"]),
        (&json!(true), &json!(1), &json!(4))
    );
    assert_eq!(
        (&answer["ttl_us"], &answer["origin"]),
        (&json!(60_000_000), &json!("shared"))
    );
    assert!(answer["holder"].as_str().unwrap().starts_with("check-"));
    assert!(answer["fence"].as_u64().unwrap() > 1_700_000_000_000_000);
    let peeked = check("memory://", &["--slots", "4", "--peek"]);
    let expected = json!({"allowed": true, "in_use": 0, "limit": 4, "origin": "shared"});
    assert_eq!(peeked, (Some(0), expected));
}

#[test]
fn what_cannot_be_asked_of_slots_is_2_and_said() {
    for (arguments, message) in [
        (&["--slots", "0"][..], "--slots: \"0\""),
        (&["--slots", "-1"], "--slots: \"-1\""),
        (&["--slots", "4", "--ttl", "0s"], "--ttl: \"0s\""),
        (&["--slots", "4", "--ttl", "8761h"], "--ttl: \"8761h\""),
        (
            &["--slots", "4", "--quota", "5/s"],
            "--quota and --slots: give one of them",
        ),
        (&["--slots", "4", "--cost", "2"], "--cost: a slot has none"),
        (&["--slots", "4", "--reset"], "add --holder"),
        (&["--slots", "4", "--policy", ""], "--policy: "),
        (&["--quota", "5/s", "--ttl", "5s"], "--slots <N>"),
    ] {
        let (code, told) = check("memory://", arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(
            told.as_str().unwrap().contains(message),
            "{arguments:?}: {told}"
        );
    }
}

#[cfg(feature = "redis")]
#[test]
fn slots_of_a_store_are_taken_refused_given_back_and_free_after_their_time() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(tollgate_testkit::RedisServer::start());
    let slots = |more: &[&str]| {
        let mut all = vec!["--slots", "2", "--policy", "ocr"];
        all.extend(more);
        check(&redis.url(), &all)
    };
    assert_eq!(slots(&["--holder", "a"]).1["in_use"], 1);
    assert_eq!(slots(&["--holder", "b"]).1["in_use"], 2);
    // Who is in stays in.
    assert_eq!(slots(&["--holder", "a"]).0, Some(0));
    let (code, refused) = slots(&[]);
    let expected = json!({"allowed": false, "in_use": 2, "limit": 2, "origin": "shared"});
    assert_eq!((code, refused), (Some(1), expected));
    assert_eq!(slots(&["--peek"]).0, Some(1));
    // Only who is in can leave.
    assert_eq!(slots(&["--holder", "c", "--reset"]).0, Some(1));
    let left = slots(&["--holder", "b", "--reset"]);
    let expected = json!({"allowed": true, "in_use": 1, "limit": 2, "origin": "shared"});
    assert_eq!(left, (Some(0), expected));
    assert_eq!(slots(&["--ttl", "300ms"]).0, Some(0));
    crate::process::eventually("a slot whose time is over is free", || {
        slots(&["--peek"]).1["in_use"] == 1
    });
}
