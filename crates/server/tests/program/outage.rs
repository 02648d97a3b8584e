//! A backend that cannot be reached.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use tollgate_testkit::RedisServer;

use crate::client::get;
use crate::process::{Gateway, eventually, run, text};
use crate::upstream::nowhere;

/// Of the Redis client.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Of the breaker.
const COOLDOWN: Duration = Duration::from_secs(1);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn down(arguments: &[&str]) -> Gateway {
    let backend = format!("redis://svc:s3cr3t@{}/0", nowhere());
    let mut all = vec!["--backend", &*backend, "--require-backend-at-start=false"];
    all.extend(["--quota", "2/60s", "--log", "trace"]);
    all.extend(arguments);
    Gateway::start(&all)
}

fn probes(gateway: &Gateway, detail: &str) {
    let health = get(gateway.address, "/health");
    assert_eq!(
        (health.status, health.text()),
        (200, r#"{"status":"degraded","redis":"down"}"#)
    );
    let ready = get(gateway.address, "/ready");
    assert_eq!(ready.status, 200);
    assert_eq!(
        ready.text(),
        format!(
            r#"{{"status":"degraded","checks":{{"ratelimit":{{"healthy":false,"critical":false,"detail":"{detail}","meta":{{"enforcing":false}}}}}}}}"#
        )
    );
}

#[test]
fn s28_b68_open_admits_and_says_so() {
    let gateway = down(&[]);
    for _ in 0..5 {
        let answer = get(gateway.address, "/");
        assert_eq!(answer.status, 200);
        let mut limits = answer
            .headers
            .iter()
            .filter(|(name, _)| name.contains("ratelimit"));
        assert_eq!(limits.next().unwrap().1, r#""default";q=2;w=60"#);
        assert!(limits.next().is_none(), "the policy only: {answer:?}");
    }
    probes(
        &gateway,
        "failing open: rate limit backend unreachable, no limit is being enforced",
    );
    eventually("it warns", || gateway.log().contains("WARN"));
}

#[test]
fn s29_b68_closed_refuses_with_503() {
    let gateway = down(&["--on-failure", "closed"]);
    for _ in 0..5 {
        let answer = get(gateway.address, "/");
        assert_eq!(answer.status, 503);
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!(wait >= 1);
        assert_eq!(
            (
                answer.header("ratelimit"),
                answer.header("x-ratelimit-remaining")
            ),
            (None, None)
        );
        let body = answer.json();
        assert_eq!(
            (&body["status"], &body["instance"]),
            (&503.into(), &"/".into())
        );
        assert!(!answer.text().contains("redis"), "no internal detail");
    }
    probes(
        &gateway,
        "failing closed: rate limit backend unreachable, requests are refused",
    );
}

#[test]
fn b68_local_counts_in_this_process() {
    let gateway = down(&["--on-failure", "local"]);
    let answers: Vec<_> = (0..4).map(|_| get(gateway.address, "/")).collect();
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert!(answers[3].header("retry-after").is_some());
    assert!(
        answers
            .iter()
            .all(|answer| answer.header("ratelimit").is_none())
    );
    // The body says no more than the headers.
    let body = answers[3].json();
    assert_eq!(body["limit"], 2);
    assert!(body["retry_after"].is_f64(), "{body}");
    for member in ["remaining", "reset_at"] {
        assert!(body.get(member).is_none(), "{body}");
    }
    probes(
        &gateway,
        "limiting locally: rate limit backend unreachable, limits are per process",
    );
}

#[test]
fn s64_it_refuses_to_start_without_its_backend() {
    let backend = format!("redis://svc:s3cr3t@{}/0", nowhere());
    for arguments in [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["check", "--quota", "1/s", "--key", "k"],
    ] {
        let mut all = arguments.to_vec();
        all.extend(["--backend", &backend]);
        let address = backend.rsplit_once('@').unwrap().1.trim_end_matches("/0");
        let output = run(&all);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        assert!(
            text(&output.stderr).contains("tollgate: "),
            "{}",
            text(&output.stderr)
        );
        assert!(
            text(&output.stderr).contains(address),
            "it says which: {}",
            text(&output.stderr)
        );
        assert!(!text(&output.stderr).contains("s3cr3t"), "b71");
    }
}

#[test]
fn a_backend_that_fails_is_told_by_where_its_url_came_from() {
    let backend = format!("redis://svc:s3cr3t@{}/0", nowhere());
    let shown = backend.replace("svc:s3cr3t@", "***@");
    let config = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("backend-{}.toml", std::process::id()));
    std::fs::write(&config, format!("backend = {backend:?}\n")).unwrap();
    let config = config.to_str().unwrap();
    let check = ["check", "--quota", "1/s", "--key", "k"];
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    for (arguments, flags, variable, source, hint) in [
        (
            &serve[..],
            &["--backend", &*backend][..],
            None,
            "--backend".to_owned(),
            true,
        ),
        (
            &serve,
            &["--config", config],
            None,
            format!("{config}: line 1: field backend"),
            true,
        ),
        (
            &serve,
            &[],
            Some(&backend),
            "environment variable TOLLGATE_BACKEND".into(),
            true,
        ),
        (
            &check,
            &["--backend", &backend],
            None,
            "--backend".into(),
            false,
        ),
        (
            &check,
            &[],
            Some(&backend),
            "environment variable TOLLGATE_BACKEND".into(),
            false,
        ),
        (
            &["replay", "-"],
            &["--backend", &backend],
            None,
            "--backend".into(),
            false,
        ),
    ] {
        let mut program = crate::process::program();
        program
            .args(arguments)
            .args(flags)
            .stdin(std::process::Stdio::null());
        if let Some(url) = variable {
            program.env("TOLLGATE_BACKEND", url);
        }
        let output = program.output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        let begin = format!("tollgate: {source}: {shown}: ");
        assert!(message.starts_with(&begin), "{begin}: {message}");
        assert_eq!(
            message.contains("--require-backend-at-start false"),
            hint,
            "{message}"
        );
        assert!(
            !message.contains("s3cr3t") && message.lines().count() == 1,
            "{message}"
        );
    }
    std::fs::remove_file(config).unwrap();
    // What no waiting mends has no such hint.
    let output = run(&["serve", "--backend", "etcd://svc:s3cr3t@h"]);
    let message = text(&output.stderr);
    assert!(
        message.starts_with("tollgate: --backend: etcd://***@h: etcd:// names no store; this build knows memory://, redis://")
            && !message.contains("--require"),
        "{message}"
    );
}

#[cfg(not(feature = "redis-tls"))]
#[test]
fn a_scheme_of_another_build_says_how_to_build_it() {
    let output = run(&["serve", "--backend", "rediss://h"]);
    let message = text(&output.stderr);
    assert!(
        message.contains("cargo run --features redis-tls"),
        "{message}"
    );
}

#[test]
fn b70_it_stays_up_without_its_backend_when_told_to() {
    let mut gateway = down(&[]);
    for _ in 0..5 {
        assert_eq!(get(gateway.address, "/").status, 200);
    }
    assert!(gateway.runs());
}

#[test]
fn b71_a_password_is_never_shown() {
    let gateway = down(&[]);
    let mut seen: Vec<String> = ["/", "/health", "/ready"]
        .map(|path| format!("{:?}", get(gateway.address, path)))
        .into();
    seen.push(gateway.log());
    for arguments in [
        &["serve", "--backend", "redis://svc:s3cr3t@ho st"][..],
        &["serve", "--backend", "s3cr3t"],
        &["serve", "--backend", "redis://svc:s3cr3t@h:99999"],
        &["serve", "--upstream", "http://svc:s3cr3t@h"],
        &[
            "check",
            "--backend",
            "etcd://svc:s3cr3t@h",
            "--quota",
            "1/s",
            "--key",
            "k",
        ],
        &["replay", "--backend", "redis://svc:s3cr3t@h:99999", "-"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        seen.push(text(&output.stderr).into());
    }
    let mut help = crate::process::program();
    help.env("TOLLGATE_BACKEND", "redis://svc:s3cr3t@h");
    seen.push(text(&help.args(["serve", "--help"]).output().unwrap().stdout).into());
    for text in seen {
        assert!(!text.contains("s3cr3t"), "{text}");
    }
}

#[test]
fn b65_a_backend_that_is_silent_holds_nobody_up() {
    // What is silent has the port of a server, which comes back later.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut server = runtime.block_on(RedisServer::start());
    server.kill();
    let silent = TcpListener::bind(server.address()).unwrap();
    let backend = server.url();
    let start = Instant::now();
    let gateway = Gateway::start(&[
        "--backend",
        &backend,
        "--require-backend-at-start",
        "false",
        "--timeout",
        "100ms",
    ]);
    let took = start.elapsed().saturating_sub(gateway.queued());
    assert!(took < CONNECT_TIMEOUT + ms(250), "started in {took:?}");
    let check = || {
        let (start, queued) = (Instant::now(), gateway.queued());
        let answer = get(gateway.address, "/");
        let queued = gateway.queued().saturating_sub(queued);
        let took = start.elapsed().saturating_sub(queued);
        assert_eq!(answer.status, 200);
        assert!(took < ms(150), "{took:?}");
        (took, answer.header("ratelimit").is_some())
    };
    let mut later: Vec<_> = (0..50).map(|_| check()).skip(5).collect();
    assert!(later.iter().all(|(_, counted)| !counted));
    later.sort();
    // The breaker is open; the slowest of them may be a probe.
    let (typical, _) = later[later.len() / 2];
    assert!(typical < ms(5), "{typical:?} behind an open breaker");

    drop(silent);
    runtime.block_on(server.restart());
    let (back, queued) = (Instant::now(), gateway.queued());
    eventually("it counts", || check().1);
    let took = back
        .elapsed()
        .saturating_sub(gateway.queued().saturating_sub(queued));
    assert!(took < COOLDOWN + ms(250), "only after {took:?}");
}

#[test]
fn b65_the_wait_for_a_silent_backend_that_is_required_is_bounded() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = format!("redis://{}", silent.local_addr().unwrap());
    let check = [
        "check",
        "--quota",
        "1/s",
        "--key",
        "k",
        "--timeout",
        "300ms",
    ];
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &check] {
        let wait = || {
            let start = Instant::now();
            let output = run(&[command, &["--backend", &backend]].concat());
            assert_eq!(output.status.code(), Some(2));
            let (message, address) = (text(&output.stderr), silent.local_addr().unwrap());
            assert!(message.contains(&address.to_string()), "{message}");
            start.elapsed()
        };
        // Of some, since a busy machine takes its time to start a process.
        let quickest = (0..3).map(|_| wait()).min().unwrap();
        assert!(quickest < CONNECT_TIMEOUT + ms(250), "{quickest:?}");
    }
}
