//! The rule file.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{KEYS, call, create, rule, status};
use crate::client::get;
use crate::process::{Gateway, eventually, program, text};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("tollgate-rules-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn yaml(limit: u64) -> String {
    format!(
        "rules:\n  - id: a\n    identity_type: api_key\n    config:\n      algorithm: \
         sliding_window\n      limit: {limit}\n      window_seconds: 3600\n"
    )
}

fn start(backend: &str, file: &Path) -> Gateway {
    let file = file.to_str().unwrap();
    Gateway::start_with(&["--backend", backend], &[KEYS, ("RULES_FILE", file)])
}

fn limit_of(gateway: &Gateway) -> Value {
    get(gateway.address, "/rules/a").json()["config"]["limit"].clone()
}

fn detail(gateway: &Gateway) -> Option<String> {
    let ready = get(gateway.address, "/ready");
    assert_eq!(ready.status, 200);
    let document = ready.json();
    let check = document["checks"].get("rules")?;
    assert_eq!(check["healthy"], false);
    Some(check["detail"].as_str().unwrap().to_owned())
}

#[test]
fn s53_a_file_is_loaded_at_the_start_and_belongs_to_the_file() {
    let folder = Folder::new("start");
    let file = folder.path("rules.yaml");
    fs::write(&file, yaml(2)).unwrap();
    let gateway = start("memory://", &file);
    let at = gateway.address;
    assert_eq!(get(at, "/rules/a").json()["managed_by"], "file");
    assert_eq!([(); 3].map(|()| status(&gateway, "x")), [200, 200, 429]);
    for (method, body) in [
        ("PUT", rule("a", 9)),
        ("PATCH", json!({"priority": 2})),
        ("DELETE", Value::Null),
    ] {
        let refused = call(at, method, "/rules/a", &body);
        assert_eq!(refused.status, 409, "{method}");
        assert!(
            refused.json()["detail"]
                .as_str()
                .unwrap()
                .contains("rule file")
        );
    }
    // Others may be added.
    let other = super::with(rule("b", 9), "match", json!({"path": "/b"}));
    assert_eq!(create(at, &other).status, 201);
    assert_eq!(detail(&gateway), None);
}

#[test]
fn s53_json_will_do_and_a_wrong_file_ends_the_start() {
    let folder = Folder::new("json");
    let file = folder.path("rules.json");
    fs::write(&file, json!([rule("a", 3)]).to_string()).unwrap();
    assert_eq!(limit_of(&start("memory://", &file)), 3);
    let refused = |wrong: &Path| {
        let output = program()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env("RULES_FILE", wrong)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr).to_owned()
    };
    let wrong = folder.path("wrong.yaml");
    fs::write(&wrong, yaml(2).replace("limit: 2", "limit: -2")).unwrap();
    let message = refused(&wrong);
    assert!(
        message.contains("wrong.yaml: line 6: rules[0].config.limit: -2 is no whole number"),
        "{message}"
    );
    assert!(refused(&folder.path("none.yaml")).contains("none.yaml"));
}

#[test]
fn b128_a_changed_file_is_loaded_and_a_broken_one_changes_nothing() {
    let folder = Folder::new("reload");
    let file = folder.path("rules.yaml");
    fs::write(&file, yaml(2)).unwrap();
    let gateway = start("memory://", &file);
    assert_eq!(status(&gateway, "x"), 200);

    // In one step: a file that is written is cut off before, and an empty one is another failure.
    let broken = folder.path("broken.yaml");
    fs::write(&broken, yaml(2).replace("window_seconds", "window")).unwrap();
    fs::rename(&broken, &file).unwrap();
    eventually("the faults are told", || {
        detail(&gateway).is_some_and(|it| it.contains("has 2 faults, line"))
    });
    let log = gateway.log();
    assert!(log.contains("line 7: rules[0].config.window"), "{log}");
    let failures = "tollgate_rules_file_failures_total";
    assert_eq!(told_by(&gateway, failures), Some(1.0));
    assert_eq!(
        [status(&gateway, "x"), status(&gateway, "x")],
        [200, 429],
        "the old rule"
    );

    fs::write(&file, "").unwrap();
    eventually("that it is empty is told", || {
        detail(&gateway).is_some_and(|it| it.contains("is empty"))
    });
    eventually("and logged", || {
        gateway.log().contains("the rule file is empty")
    });
    assert_eq!(status(&gateway, "x"), 429);
    fs::remove_file(&file).unwrap();
    eventually("that it is gone is told", || {
        detail(&gateway).is_some_and(|it| it.contains("cannot be read"))
    });
    eventually("and logged", || {
        gateway.log().contains("the rule file cannot be read")
    });
    assert_eq!(status(&gateway, "x"), 429);
    let before = std::time::Instant::now();
    fs::write(&file, yaml(5)).unwrap();
    eventually("the new limit holds", || limit_of(&gateway) == 5);
    assert!(before.elapsed() < std::time::Duration::from_secs(2));
    eventually("nothing is wrong", || detail(&gateway).is_none());
    let got = [(); 4].map(|()| status(&gateway, "x"));
    assert_eq!(got, [200, 200, 200, 429], "two of the five were used");
}

#[test]
fn b126_reloading_the_same_renews_nobody() {
    let folder = Folder::new("same");
    let file = folder.path("rules.yaml");
    fs::write(&file, yaml(10)).unwrap();
    let check = |backend: &str| {
        let gateway = start(backend, &file);
        let refused = || {
            let told = super::send(gateway.address, "GET", "/", "X-API-Key: x\r\n", "");
            assert_eq!(told.status, 429);
            assert_eq!(told.header("x-ratelimit-limit"), Some("10"));
            assert_eq!(told.header("x-ratelimit-remaining"), Some("0"));
        };
        assert_eq!([(); 10].map(|()| status(&gateway, "x")), [200; 10]);
        refused();
        let loaded = |gateway: &Gateway| gateway.log().matches("the rule file is loaded").count();
        for _ in 0..5 {
            let before = loaded(&gateway);
            gateway.signal("HUP");
            eventually("it is loaded again", || loaded(&gateway) > before);
            refused();
        }
        assert!(
            gateway.log().contains("created=0 changed=0 deleted=0"),
            "{}",
            gateway.log()
        );
        let other = super::with(rule("b", 9), "match", json!({"path": "/b"}));
        assert_eq!(create(gateway.address, &other).status, 201);
        let other = super::with(other, "priority", json!(2));
        assert_eq!(call(gateway.address, "PUT", "/rules/b", &other).status, 200);
        refused();
    };
    check("memory://");
    #[cfg(feature = "redis")]
    check(&super::Redis::start().url());
}

#[cfg(unix)]
#[test]
fn a_symlink_in_anothers_place_and_a_rename_are_changes() {
    let folder = Folder::new("links");
    for (name, limit) in [("v1", 1), ("v2", 2)] {
        fs::create_dir(folder.path(name)).unwrap();
        fs::write(folder.path(name).join("rules.yaml"), yaml(limit)).unwrap();
    }
    // As Kubernetes mounts a config map: the file is a link into a folder that is a link.
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, folder.path(name)).unwrap();
    link("v1", "..data");
    link("..data/rules.yaml", "rules.yaml");
    let gateway = start("memory://", &folder.path("rules.yaml"));
    assert_eq!(limit_of(&gateway), 1);
    link("v2", "..next");
    fs::rename(folder.path("..next"), folder.path("..data")).unwrap();
    eventually("the other folder is read", || limit_of(&gateway) == 2);

    // As editors save.
    fs::write(folder.path("new"), yaml(3)).unwrap();
    fs::rename(folder.path("new"), folder.path("rules.yaml")).unwrap();
    eventually("the renamed file is read", || limit_of(&gateway) == 3);
}

#[test]
fn a_rule_that_leaves_the_file_is_deleted_and_the_others_stay() {
    let folder = Folder::new("gone");
    let file = folder.path("rules.yaml");
    let two = yaml(2)
        + "  - id: b\n    identity_type: user_id\n    config: {algorithm: token_bucket, capacity: 5, refill_rate: 1}\n";
    fs::write(&file, &two).unwrap();
    let gateway = start("memory://", &file);
    let at = gateway.address;
    let own = super::with(rule("own", 9), "match", json!({"path": "/b"}));
    create(at, &own);
    let ids = || -> Vec<String> {
        let list = get(at, "/rules").json();
        let id = |it: &Value| it["id"].as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(id).collect()
    };
    assert_eq!(ids(), ["a", "b", "own"]);
    fs::write(&file, yaml(2)).unwrap();
    eventually("b is deleted", || ids() == ["a", "own"]);
    // Another algorithm is another rule.
    fs::write(&file, yaml(2).replace("sliding_window", "fixed_window")).unwrap();
    eventually("the contradiction is told", || detail(&gateway).is_some());
    assert!(
        gateway.log().contains("algorithm cannot be changed"),
        "{}",
        gateway.log()
    );
    assert_eq!(limit_of(&gateway), 2);
    // A rule of the API has the place.
    fs::write(&file, yaml(2) + "  - id: c\n    identity_type: api_key\n    match: {path: /b}\n    config: {algorithm: sliding_window, limit: 1, window_seconds: 1}\n").unwrap();
    eventually("whose place it is is told", || {
        gateway.log().contains("own has the same")
    });
    assert_eq!(ids(), ["a", "own"]);
    call(at, "DELETE", "/rules/own", &Value::Null);
    eventually("it is tried again", || ids() == ["a", "c"]);
    fs::write(&file, "rules: []\n").unwrap();
    eventually("an empty list is an order", || ids().is_empty());
}

#[cfg(feature = "redis")]
#[test]
fn s53_two_processes_with_one_file_agree() {
    let folder = Folder::new("two");
    let file = folder.path("rules.yaml");
    fs::write(&file, yaml(3)).unwrap();
    let redis = super::Redis::start();
    let [a, b] = [start(&redis.url(), &file), start(&redis.url(), &file)];
    assert_eq!(
        [
            status(&a, "x"),
            status(&b, "x"),
            status(&a, "x"),
            status(&b, "x")
        ],
        [200, 200, 200, 429]
    );
    fs::write(&file, yaml(4)).unwrap();
    eventually("both have it", || limit_of(&a) == 4 && limit_of(&b) == 4);
    eventually("it is in force", || status(&a, "x") == 200);
    assert_eq!(status(&b, "x"), 429);
    for gateway in [&a, &b] {
        assert_eq!(detail(gateway), None, "{}", gateway.log());
    }
}

#[test]
fn b129_the_same_rule_wins_after_every_start_and_in_any_order() {
    let folder = Folder::new("ties");
    let file = folder.path("rules.json");
    let tie = |id: &str, algorithm: &str, limit: u64| {
        let config = json!({"algorithm": algorithm, "limit": limit, "window_seconds": 60});
        super::with(
            super::with(rule(id, 0), "config", config),
            "priority",
            json!(10),
        )
    };
    let mut rules = vec![tie("b", "fixed_window", 3), tie("a", "sliding_window", 5)];
    for _ in 0..20 {
        rules.reverse();
        fs::write(&file, Value::from(rules.clone()).to_string()).unwrap();
        let gateway = start("memory://", &file);
        let answer = super::send(gateway.address, "GET", "/", "X-API-Key: x\r\n", "");
        assert_eq!(
            answer.header("x-ratelimit-limit"),
            Some("5"),
            "the smaller id"
        );
        assert_eq!(
            create(gateway.address, &tie("a", "token_bucket", 1)).status,
            400
        );
        let same_id = super::with(
            tie("a", "sliding_window", 1),
            "match",
            json!({"path": "/x"}),
        );
        let before = get(gateway.address, "/rules").json();
        assert_eq!(create(gateway.address, &same_id).status, 409);
        assert_eq!(get(gateway.address, "/rules").json(), before);
    }
}

/// The value of a series, if it is there.
fn told_by(gateway: &Gateway, series: &str) -> Option<f64> {
    let text = get(gateway.address, "/metrics").text().to_owned();
    let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    let (_, value) = lines.find(|(it, _)| *it == series)?;
    Some(value.parse().unwrap())
}

#[test]
fn s63_metrics_tell_what_rules_allow_and_whether_the_file_can_be_used() {
    let folder = Folder::new("metrics");
    let file = folder.path("rules.yaml");
    fs::write(&file, yaml(2)).unwrap();
    let gateway = start("memory://", &file);
    let limit = |rule: &str, window: u64| {
        format!(
            "tollgate_rule_limit{{algorithm=\"sliding_window\",plan=\"\",rule=\"{rule}\",window=\"{window}\"}}"
        )
    };
    let failures = "tollgate_rules_file_failures_total";
    let healthy = "tollgate_rules_healthy{source=\"file\"}";
    let refreshed = "tollgate_rules_refreshed_timestamp_seconds";
    for (series, value) in [
        (&*limit("a", 3600), 2.0),
        (&*limit("default", 60), 100.0),
        ("tollgate_rules", 1.0),
        (healthy, 1.0),
        ("tollgate_rules_healthy{source=\"store\"}", 1.0),
        (failures, 0.0),
        ("tollgate_rules_refresh_failures_total", 0.0),
    ] {
        assert_eq!(told_by(&gateway, series), Some(value), "{series}");
    }
    let first = told_by(&gateway, refreshed).unwrap();
    assert!(first > 1e9, "{first}");
    assert!(told_by(&gateway, "tollgate_rules_refreshes_total") >= Some(1.0));

    // A failure is counted once for what is written once.
    fs::write(&file, "rules: [{]").unwrap();
    eventually("the broken file is told of", || {
        told_by(&gateway, failures) == Some(1.0) && told_by(&gateway, healthy) == Some(0.0)
    });
    assert_eq!(told_by(&gateway, &limit("a", 3600)), Some(2.0), "it stays");
    fs::write(&file, yaml(5)).unwrap();
    eventually("the limit is another", || {
        told_by(&gateway, &limit("a", 3600)) == Some(5.0) && told_by(&gateway, healthy) == Some(1.0)
    });
    assert!(told_by(&gateway, refreshed).unwrap() > first);
    // A series goes with its rule.
    fs::write(&file, yaml(5).replace("id: a", "id: b")).unwrap();
    eventually("the rule is another", || {
        told_by(&gateway, &limit("b", 3600)) == Some(5.0)
    });
    assert_eq!(told_by(&gateway, &limit("a", 3600)), None);
    assert_eq!(told_by(&gateway, failures), Some(1.0));
}
