//! The files that come with the service: each is used here as its page says.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::client::get;
use crate::config::Folder;
use crate::process::{Gateway, LONG, program, text};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn s37_the_sample_environment_is_read_and_names_every_shared_setting() {
    let sample = read(".env.example");
    for name in [
        "REDIS_URL",
        "DEFAULT_LIMIT",
        "DEFAULT_WINDOW_SECONDS",
        "IDENTITY_RESOLUTION_ORDER",
        "API_KEY_HEADER",
        "USER_ID_HEADER",
        "PHONE_HEADER",
        "OAUTH_ACCOUNT_HEADER",
        "RULE_CACHE_TTL_SECONDS",
        "UPSTREAM_BASE_URL",
        "LOG_LEVEL",
    ] {
        assert!(
            sample
                .lines()
                .any(|line| line.starts_with(&format!("{name}="))),
            "s32: {name}"
        );
    }
    assert!(
        sample.contains("IDENTITY_RESOLUTION_ORDER=api_key,ip_address"),
        "s33"
    );
    let folder = Folder::new("sample");
    folder.write(".env", &sample);
    let output = program()
        .args(["serve", "--print-config"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("order = \"api_key,ip_address\" # .env: line "),
        "{printed}"
    );
    // Every name in it is read by somebody.
    let check = program()
        .args(["config", "check"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        !text(&check.stdout).contains("warning"),
        "{}",
        text(&check.stdout)
    );
}

fn make(arguments: &[&str]) -> String {
    let output = Command::new("make")
        .arg("-C")
        .arg(root())
        .args(arguments)
        .output()
        .expect("make is installed");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout).to_owned()
}

#[test]
fn s37_make_runs_what_its_targets_are_called() {
    for (target, command) in [
        ("run", "cargo run -- serve"),
        ("test", "scripts/test"),
        ("compose", "compose"),
        ("bench", "scripts/bench"),
        ("load", "wrk "),
    ] {
        let told = make(&["--dry-run", target]);
        assert!(told.contains(command), "{target}: {told}");
        let script = told
            .split_whitespace()
            .find(|word| word.starts_with("scripts/"));
        assert!(
            script.is_none_or(|script| root().join(script).exists()),
            "{told}"
        );
    }
    // It does run them: the steps of the tests, which is quick.
    assert!(make(&["-s", "test", "STEPS=--list"]).contains("clippy"));
}

#[test]
fn s37_the_load_test_counts_what_was_admitted_and_refused() {
    let gateway = Gateway::start_with(
        &["--quota", "1/h", "--log", "warn"],
        &[("IDENTITY_RESOLUTION_ORDER", "api_key")],
    );
    let url = format!("URL=http://{}", gateway.address);
    let told = make(&["-s", "load", &url, "DURATION=1s", "KEYS=7"]);
    let line = told
        .lines()
        .find(|line| line.starts_with("admitted "))
        .expect(&told);
    assert!(line.contains("failed 0"), "{line}");
    let number = |after: &str| -> u64 {
        let (_, rest) = line.split_once(after).unwrap();
        rest.split(',').next().unwrap().trim().parse().unwrap()
    };
    assert_eq!(number("admitted "), 7, "one for each key: {line}");
    assert!(number("refused ") > 0, "{line}");
}

#[test]
fn s37_benchmarks_points_to_the_benches() {
    let page = read("benchmarks/README.md");
    assert!(page.contains("../benches") && root().join("benches").is_dir());
    assert!(page.contains("make bench"));
}

#[test]
fn health_asks_a_running_service() {
    let gateway = Gateway::start(&[]);
    let url = format!("http://{}/health", gateway.address);
    let ask = |url: &str| program().args(["health", url]).output().unwrap();
    let output = ask(&url);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout).trim(),
        get(gateway.address, "/health").text()
    );
    let gone = ask("http://127.0.0.1:1/health");
    assert_eq!(gone.status.code(), Some(1));
    assert!(
        text(&gone.stderr).contains("127.0.0.1:1"),
        "{}",
        text(&gone.stderr)
    );
    // Without a URL it asks where `serve` would listen.
    let port = gateway.address.port();
    let output = program()
        .arg("health")
        .env("TOLLGATE_LISTEN", format!("0.0.0.0:{port}"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // Where that speaks TLS, the admin listener.
    let mut command = program();
    command
        .arg("health")
        .env("TOLLGATE_TLS_CERTIFICATE", "c.pem");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("set TOLLGATE_ADMIN_LISTEN"),
        "{}",
        text(&output.stderr)
    );
    command.env("TOLLGATE_ADMIN_LISTEN", format!("127.0.0.1:{port}"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let started = std::time::Instant::now();
    let output = ask(&format!("http://{}/health", silent.local_addr().unwrap()));
    assert_eq!(output.status.code(), Some(1));
    assert!(started.elapsed() < LONG);
}
