//! What `/ready` says of a limiter.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::log::Log;
use common::{Mode, Scripted, quotas};
use tokio::time::advance;
use tollgate::{ErrorKind, FailurePolicy, Limiter, Probe};
use tollgate_http::{HealthReport, Ready, ReportHealth as _};
use tracing::Level;

const FAILS: Mode = Mode::Fails(ErrorKind::Unavailable);

fn degraded(detail: &str) -> String {
    format!(
        r#"{{"status":"degraded","checks":{{"ratelimit":{{"healthy":false,"critical":false,"detail":"{detail}","meta":{{"enforcing":false}}}}}}}}"#
    )
}

async fn ready(store: &Scripted, policy: FailurePolicy) -> (Ready, (u16, String)) {
    let limiter = Limiter::builder(store.clone()).on_failure(policy).build();
    let ready = Ready::new(Probe::new(limiter));
    let answer = asked(&ready).await;
    (ready, answer)
}

async fn asked(ready: &Ready) -> (u16, String) {
    let response = ready.response().await;
    (response.status().as_u16(), response.into_body())
}

#[tokio::test(start_paused = true)]
async fn s28_ready_says_what_happens_while_the_store_is_down_and_when_it_is_back() {
    let store = Scripted::new(FAILS);
    for (policy, detail) in [
        (
            FailurePolicy::Open,
            "failing open: rate limit backend unreachable, no limit is being enforced",
        ),
        (
            FailurePolicy::Closed,
            "failing closed: rate limit backend unreachable, requests are refused",
        ),
        (
            FailurePolicy::Local,
            "limiting locally: rate limit backend unreachable, limits are per process",
        ),
    ] {
        store.set(FAILS);
        let (ready, answer) = ready(&store, policy).await;
        assert_eq!(answer, (200, degraded(detail)));
        store.set(Mode::Works);
        advance(Duration::from_secs(30)).await;
        let ok = r#"{"status":"ok","checks":{"ratelimit":{"healthy":true,"critical":false,"detail":"enforcing","meta":{"enforcing":true}}}}"#;
        assert_eq!(asked(&ready).await, (200, ok.into()));
        ready.drain();
        assert_eq!(asked(&ready).await.0, 503);
    }
}

#[tokio::test(start_paused = true)]
async fn s27_the_store_is_down_requests_are_admitted_and_it_is_logged_and_reported() {
    let log = Log::new(Level::DEBUG);
    let limiter = Limiter::builder(Scripted::new(FAILS)).build();
    let limit = limiter.policy("p", quotas("1/60s")).unwrap();
    for _ in 0..5 {
        assert!(limit.acquire("alice").await.unwrap().allowed());
    }
    let report = Probe::new(limiter).report().await;
    assert!(!report.enforcing && report.unenforced >= 5);
    assert_eq!(report.reason.as_deref(), Some("unavailable"));
    assert_eq!(report.on_failure.as_deref(), Some("open"));
    assert_eq!(log.count("WARN"), 1, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn probes_ask_the_store_at_most_every_quarter_of_a_second() {
    let store = Scripted::new(Mode::Works);
    let probe = Probe::new(Limiter::builder(store.clone()).build());
    for _ in 0..10 {
        assert!(HealthReport::from(&probe.health().await).enforcing);
    }
    let asked = store.calls();
    assert_eq!(asked, 1);
    advance(Duration::from_millis(250)).await;
    probe.health().await;
    assert_eq!(store.calls(), asked + 1);
}

#[cfg(feature = "http-config")]
#[test]
fn s29_the_setting_fail_open_false_is_the_policy_closed() {
    let text = "[plugins]\nenabled = [\"ratelimit\"]\n[plugin.ratelimit]\nfail_open = false";
    let config = tollgate_http::RateLimitConfig::load(text, [])
        .unwrap()
        .unwrap();
    assert_eq!(
        FailurePolicy::from(config.on_failure),
        FailurePolicy::Closed
    );
}
