//! Metrics, the OpenAPI document and its pages.

use std::collections::BTreeSet;
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::client::{get, request};
use crate::process::{Gateway, text};

fn metrics(gateway: &Gateway) -> String {
    let answer = get(gateway.address, "/metrics");
    assert_eq!(answer.status, 200);
    let kind = answer.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    answer.text().to_owned()
}

/// Names and labels, without values.
fn series(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
        .collect()
}

fn value(text: &str, series: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{series} ")));
    let line = line.unwrap_or_else(|| panic!("{series}: {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn s63_metrics_count_requests_and_decisions_by_outcome() {
    let gateway = Gateway::start(&["--quota", "2/h"]);
    for _ in 0..5 {
        get(gateway.address, "/orders");
    }
    get(gateway.address, "/health");
    request(gateway.address, "PUT", "/orders", "");
    let text = metrics(&gateway);
    for (outcome, method, count) in [
        ("admitted", "GET", 2.0),
        ("refused", "GET", 3.0),
        ("refused", "PUT", 1.0),
        ("local", "GET", 1.0),
    ] {
        let series =
            format!("tollgate_requests_total{{method=\"{method}\",outcome=\"{outcome}\"}}");
        assert_eq!(value(&text, &series), count, "{series}");
    }
    let decisions = text.lines().filter(|line| {
        line.starts_with("tollgate_decisions_total{") && line.contains("outcome=\"admitted\"")
    });
    let admitted: f64 = decisions
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        .sum();
    assert_eq!(admitted, 2.0, "{text}");
    let took = "tollgate_request_seconds_count{outcome=\"admitted\"}";
    assert_eq!(value(&text, took), 2.0);
    assert_eq!(value(&text, "tollgate_enforcing{limiter=\"default\"}"), 1.0);
    // This one is being answered.
    assert_eq!(value(&text, "tollgate_requests_in_flight"), 1.0);
    for line in text.lines() {
        let comment = line.starts_with("# HELP ") || line.starts_with("# TYPE ");
        let number = line
            .rsplit_once(' ')
            .map(|(_, it)| it.parse::<f64>().is_ok());
        assert!(comment || number == Some(true), "{line}");
    }
}

#[test]
fn s63_metrics_are_empty_but_valid_when_off() {
    let gateway = Gateway::start_with(&[], &[("METRICS_ENABLED", "false")]);
    get(gateway.address, "/orders");
    assert_eq!(metrics(&gateway), "");
}

#[test]
fn b89_clients_make_no_series() {
    let gateway = Gateway::start_with(
        &["--quota", "5/s", "--log", "error"],
        &[("IDENTITY_RESOLUTION_ORDER", "api_key,ip_address")],
    );
    // What comes once for each outcome is there after one of each.
    get(gateway.address, "/orders");
    let before = series(&metrics(&gateway));
    let mut connection = crate::client::Connection::new(gateway.address);
    for number in 0..10_000 {
        connection.send(format!(
            "M{number} /p{number}?q={number} HTTP/1.1\r\nHost: h{number}.example\r\n\
             X-API-Key: key-{number}\r\nX-User-ID: u{number}\r\nX-Name-{number}: {number}\r\n\
             User-Agent: agent-{number}\r\nX-Forwarded-For: 10.1.2.{}\r\n\r\n",
            number % 250
        ));
        connection.answer(true);
    }
    let text = metrics(&gateway);
    assert_eq!(series(&text), before);
    assert_eq!(
        value(
            &text,
            "tollgate_requests_total{method=\"other\",outcome=\"admitted\"}"
        ),
        10_000.0
    );
    assert!(!text.contains("key-1"), "{text}");
}

#[test]
fn s35_health_metrics_docs_redoc_and_openapi_are_there() {
    let gateway = Gateway::start(&[]);
    for (path, kind) in [
        ("/health", "application/json"),
        ("/metrics", "text/plain"),
        ("/openapi.json", "application/json"),
        ("/docs", "text/html"),
        ("/redoc", "text/html"),
    ] {
        let answer = get(gateway.address, path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            answer.header("content-type").unwrap().starts_with(kind),
            "{path}"
        );
        assert_eq!(answer.header("ratelimit"), None, "{path} is not limited");
    }
    let document = get(gateway.address, "/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    for path in [
        "/rules",
        "/rules/{id}",
        "/usage/{identity}",
        "/usage/{identity}/reset",
        "/v1/check",
        "/v1/forward-auth",
        "/ready",
    ] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
}

#[test]
fn pages_fetch_nothing_from_elsewhere() {
    let gateway = Gateway::start(&[]);
    for page in ["/docs", "/redoc"] {
        let answer = get(gateway.address, page);
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self'"), "{policy}");
        let html = answer.text();
        assert!(!html.contains("//"), "{html}");
        for part in html.split(['"']).filter(|part| part.starts_with(page)) {
            let answer = get(gateway.address, part);
            assert_eq!(answer.status, 200, "{part}");
            assert!(
                !answer.header("content-type").unwrap().contains("html"),
                "{part}"
            );
        }
    }
    // The bundles are what their projects publish.
    let vendor = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("vendor");
    let readme = std::fs::read_to_string(vendor.join("README.md")).unwrap();
    let mut bundles = 0;
    for line in readme.lines().filter(|line| line.contains(".gz`")) {
        bundles += 1;
        let cells: Vec<&str> = line.split('`').collect();
        let output = Command::new("gzip")
            .arg("-dc")
            .arg(vendor.join(cells[1]))
            .output()
            .unwrap();
        let digest = Sha256::digest(&output.stdout);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, cells[cells.len() - 2], "{}", cells[1]);
    }
    assert_eq!(bundles, 3);
}

/// What the document promises the service keeps, whatever it is sent.
#[test]
fn openapi_holds_by_schemathesis() {
    let Ok(schemathesis) = std::env::var("TOLLGATE_SCHEMATHESIS") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "scripts/servers brings schemathesis"
        );
        eprintln!("skipped: run scripts/servers for schemathesis");
        return;
    };
    let folder = crate::config::Folder::new("schemathesis");
    let gateway = Gateway::start_with(
        &["--log", "warn", "--identity-stored-keys"],
        &[("ADMIN_TOKEN", "for-schemathesis")],
    );
    let address = gateway.address;
    let answer = request(
        address,
        "GET",
        "/openapi.json",
        "Authorization: Bearer for-schemathesis\r\n",
    );
    let document = folder.write("openapi.json", answer.text());
    let output = Command::new(schemathesis)
        .args(["run", &document, "--url", &format!("http://{address}")])
        .args(["--header", "Authorization: Bearer for-schemathesis"])
        // Rules ask for more than a schema can say: what goes together, and what is there already.
        .args(["--exclude-checks", "positive_data_acceptance"])
        .args([
            "--max-examples",
            "20",
            "--seed",
            "1",
            "--max-time",
            "60",
            "--no-color",
        ])
        .args([
            "--suppress-health-check",
            "all",
            "--generation-database",
            "none",
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let told = text(&output.stdout);
    assert!(output.status.success(), "{told}{}", text(&output.stderr));
    assert!(
        told.contains("No issues found") || told.contains("passed"),
        "{told}"
    );
}
