//! `tollgate rules`.

use std::fs;

use serde_json::json;

use super::{create, rule, with};
use crate::process::{Gateway, program, text};

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn run(arguments: &[&str]) -> Ran {
    let output = program()
        .arg("rules")
        .args(arguments)
        .env_remove("REDIS_URL")
        .output()
        .unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: text(&output.stdout).into(),
        err: text(&output.stderr).into(),
    }
}

/// What all three commands do, for rules at this place.
fn round_trip(gateway: &Gateway, place: &[&str], name: &str) {
    let folder = std::env::temp_dir().join(format!("tollgate-cli-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let rules = |command: &str, file: &str| run(&[&[command, file], place].concat());

    create(gateway.address, &rule("a", 5));
    create(
        gateway.address,
        &with(rule("b", 5), "match", json!({"path": "/b"})),
    );
    for file in ["all.yaml", "all.json"] {
        let file = path(file);
        let exported = rules("export", &file);
        assert_eq!(exported.code, 0, "{}", exported.err);
        let same = rules("diff", &file);
        assert_eq!((same.code, &*same.out), (0, ""), "{}", same.err);
    }
    let shown = rules("export", "-");
    assert_eq!(shown.out, fs::read_to_string(path("all.yaml")).unwrap());

    let wanted = json!({"rules": [with(rule("a", 7), "priority", json!(3)), with(rule("c", 1), "match", json!({"path": "/c"}))]});
    let file = path("wanted.json");
    fs::write(&file, wanted.to_string()).unwrap();
    let drift = rules("diff", &file);
    assert_eq!(drift.code, 2, "{}", drift.err);
    let lines: Vec<_> = drift.out.lines().collect();
    assert_eq!(lines[0], "- b");
    assert!(
        lines[1].starts_with("~ a: config: ") && lines[1].contains("\"limit\":7"),
        "{lines:?}"
    );
    assert_eq!(lines[2..], ["~ a: priority: 1 -> 3", "+ c"]);
    let applied = rules("apply", &file);
    assert_eq!(
        (applied.code, &applied.out),
        (0, &drift.out),
        "{}",
        applied.err
    );
    assert_eq!(rules("diff", &file).code, 0);
    let none = rules("apply", &file);
    assert_eq!((none.code, &*none.out), (0, ""));

    // What cannot be done is 1, so that it is not taken for a difference.
    let other = wanted.to_string().replace("sliding_window", "fixed_window");
    fs::write(&file, other).unwrap();
    let refused = rules("apply", &file);
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("algorithm cannot be changed")
            && refused.err.contains("nothing was changed"),
        "{}",
        refused.err
    );
    fs::write(&file, "rules:\n  - id: x\n").unwrap();
    let wrong = rules("diff", &file);
    assert_eq!(wrong.code, 1);
    assert!(
        wrong
            .err
            .contains("line 2: rules[0].identity_type: is missing"),
        "{}",
        wrong.err
    );
    assert_eq!(rules("diff", &path("none.yaml")).code, 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn rules_of_a_service_are_compared_applied_and_exported() {
    let gateway = super::gateway("memory://");
    let url = format!("http://{}", gateway.address);
    round_trip(&gateway, &["--url", &url], "http");
}

#[cfg(feature = "redis")]
#[test]
fn rules_in_a_store_are_compared_applied_and_exported() {
    let redis = super::Redis::start();
    let gateway = super::gateway(&redis.url());
    round_trip(&gateway, &["--backend", &redis.url()], "redis");
}

#[test]
fn whose_rules_must_be_said_and_must_answer() {
    assert_eq!(run(&["export", "-"]).code, 1);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", port.local_addr().unwrap());
    drop(port);
    assert_eq!(run(&["export", "-", "--url", &nobody]).code, 1);
    assert_eq!(run(&["export", "-", "--url", "ftp://x"]).code, 1);
    assert_eq!(run(&["export", "-", "--backend", "memory://"]).code, 1);
}

/// A rule of the service's own file can be changed there only: what can never be done is neither
/// promised nor begun.
#[test]
fn rules_of_the_rule_file_are_left_alone_before_anything_is_changed() {
    let folder = std::env::temp_dir().join(format!("tollgate-cli-file-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let orders = with(rule("orders", 5), "match", json!({"path": "/orders"}));
    let at_path = |id: &str, path: &str| with(rule(id, 1), "match", json!({"path": path}));
    let file = path("service.json");
    fs::write(&file, json!([orders]).to_string()).unwrap();
    let gateway = Gateway::start_with(&[], &[super::KEYS, ("RULES_FILE", &file)]);
    let url = format!("http://{}", gateway.address);
    create(gateway.address, &rule("old", 5));
    let rules = |command: &str, wanted: &[&serde_json::Value]| {
        let file = path("wanted.json");
        if command != "export" {
            fs::write(&file, json!(wanted).to_string()).unwrap();
        }
        run(&[command, &file, "--url", &url])
    };
    let ids = || {
        let listed = crate::client::get(gateway.address, "/rules").json();
        let ids = listed.as_array().unwrap().iter();
        ids.map(|it| it["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };

    let search = at_path("search", "/search");
    let changed = with(orders.clone(), "priority", json!(9));
    let rival = at_path("rival", "/orders");
    for (wanted, told) in [
        (
            &changed,
            "orders: the rule comes from the rule file of the service",
        ),
        (
            &rival,
            "rival: rule orders of the rule file of the service has the same",
        ),
    ] {
        let refused = rules("apply", &[&search, wanted]);
        assert_eq!((refused.code, &*refused.out), (1, ""));
        for told in [told, "nothing was changed"] {
            assert!(refused.err.contains(told), "{told}: {}", refused.err);
        }
        assert_eq!(ids(), ["old", "orders"]);
    }

    let drift = rules("diff", &[&search]);
    assert_eq!((drift.code, &*drift.out), (2, "- old\n+ search\n"));
    let note = "from the rule file of the service, and left out: orders";
    assert!(drift.err.contains(note), "{}", drift.err);
    let applied = rules("apply", &[&search]);
    assert_eq!(
        (applied.code, &applied.out),
        (0, &drift.out),
        "{}",
        applied.err
    );
    assert_eq!(ids(), ["orders", "search"]);

    let exported = rules("export", &[]);
    assert!(exported.err.contains(": orders"), "{}", exported.err);
    let same = run(&["diff", &path("wanted.json"), "--url", &url]);
    assert_eq!((same.code, &*same.out), (0, ""), "{}", same.err);
    fs::remove_dir_all(&folder).unwrap();
}
