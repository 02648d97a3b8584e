use serde_json::{Value, json};
use tollgate_core::algorithm::{Operation, apply};
use tollgate_core::{Cost, Origin, Quota};

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_753_881_072_000_000);

/// A policy of which everything has been used, and the refusal of one more.
fn refused(quotas: &str, cost: u64) -> (Policy, Decision) {
    let policy = Policy::new("api", Quota::parse_list(quotas).unwrap()).unwrap();
    let mut record = Vec::new();
    loop {
        let operation = Operation::Acquire(Cost::new(cost).unwrap());
        let decision = apply(policy.quotas(), &mut record, NOW, operation).decision;
        if !decision.allowed() {
            return (policy, decision);
        }
    }
}

/// What is written, which is what serialising gives.
fn json(problem: &Problem, style: BodyStyle) -> Value {
    #[derive(Serialize)]
    struct Plain<'a> {
        detail: &'a str,
        #[serde(flatten)]
        limits: &'a Limits,
    }
    let (detail, limits) = (problem.detail(), &problem.limits);
    let serialised = match style {
        BodyStyle::Problem => serde_json::to_string(problem),
        BodyStyle::Plain => serde_json::to_string(&Plain { detail, limits }),
    };
    let text = String::from_utf8(problem.to_json(style)).unwrap();
    assert_eq!(text, serialised.unwrap());
    serde_json::from_str(&text).unwrap()
}

#[test]
fn s24_the_library_form() {
    let (policy, decision) = refused("100/60s", 1);
    let problem = Problem::refusal(&policy, &decision, ProblemType::Blank)
        .with_instance("/items")
        .with_request_id("r1");
    assert_eq!(
        json(&problem, BodyStyle::Problem),
        json!({
            "type": "about:blank", "title": "Too Many Requests", "status": 429,
            "detail": "Rate limit of 100 request(s) per 60s exceeded.",
            "instance": "/items", "limit": 100, "remaining": 0,
            "retry_after": 1, "retry_after_ms": 600, "request_id": "r1",
        })
    );
}

#[test]
fn the_draft_type_names_the_policy() {
    let (policy, decision) = refused("100/60s", 1);
    let body = json(
        &Problem::refusal(&policy, &decision, ProblemType::QuotaExceeded),
        BodyStyle::Problem,
    );
    assert_eq!(body["violated-policies"], json!(["api"]));
    assert!(body["type"].as_str().unwrap().ends_with("#quota-exceeded"));
}

#[test]
fn detail_prints_numbers_without_trailing_zeros() {
    for (quota, detail) in [
        ("5/500ms", "Rate limit of 5 request(s) per 0.5s exceeded."),
        (
            "1/1250us",
            "Rate limit of 1 request(s) per 0.00125s exceeded.",
        ),
        ("7/2m", "Rate limit of 7 request(s) per 120s exceeded."),
    ] {
        let (policy, decision) = refused(quota, 1);
        assert_eq!(
            Problem::refusal(&policy, &decision, ProblemType::Blank).detail,
            detail
        );
    }
}

#[test]
fn s59_the_gateway_form_and_its_plain_body() {
    let (policy, decision) = refused("100/100s", 1);
    let problem = Problem::gateway_refusal(&policy, &decision, NOW)
        .with_instance("/orders")
        .with_request_id("r1");
    assert_eq!(
        String::from_utf8(problem.to_json(BodyStyle::Plain)).unwrap(),
        r#"{"detail":"Rate limit exceeded","limit":100,"remaining":0,"reset_at":1753881172.0,"retry_after":1.0}"#
    );
    assert_eq!(
        json(&problem, BodyStyle::Problem),
        json!({
            "type": "about:blank", "title": "Too Many Requests", "status": 429,
            "detail": "Rate limit exceeded", "instance": "/orders", "request_id": "r1",
            "limit": 100, "remaining": 0, "reset_at": 1_753_881_172.0, "retry_after": 1.0,
        })
    );
}

#[test]
fn b48_the_body_has_the_exact_wait() {
    let (policy, decision) = refused("5/s", 1);
    let gateway = json(
        &Problem::gateway_refusal(&policy, &decision, NOW),
        BodyStyle::Problem,
    );
    assert_eq!(gateway["retry_after"], 0.2);
    let library = Problem::refusal(&policy, &decision, ProblemType::Blank);
    let library = json(&library, BodyStyle::Problem);
    assert_eq!(
        (&library["retry_after"], &library["retry_after_ms"]),
        (&json!(1), &json!(200))
    );
}

#[test]
fn b35_never_is_null_in_the_gateway_and_absent_in_the_library() {
    let (policy, decision) = refused("5/s", 6);
    let gateway = json(
        &Problem::gateway_refusal(&policy, &decision, NOW),
        BodyStyle::Plain,
    );
    assert_eq!(
        (&gateway["retry_after"], &gateway["remaining"]),
        (&Value::Null, &json!(5))
    );
    let library = Problem::refusal(&policy, &decision, ProblemType::Blank);
    assert!(
        json(&library, BodyStyle::Problem)
            .get("retry_after")
            .is_none()
    );
}

#[test]
fn b68_a_store_that_is_down_is_503_with_a_wait() {
    let policy = Policy::new("api", ["5/s".parse().unwrap()]).unwrap();
    let closed = Decision::unenforced(Origin::FailClosed, false, 0, None, NOW);
    for problem in [
        Problem::gateway_refusal(&policy, &closed, NOW),
        Problem::refusal(&policy, &closed, ProblemType::QuotaExceeded),
    ] {
        assert_eq!(problem.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = json(&problem, BodyStyle::Problem);
        assert_eq!(body["status"], 503);
        assert_eq!(body["retry_after"].as_f64(), Some(1.0));
        assert!(body.get("limit").is_none() && body.get("remaining").is_none());
    }
}

#[test]
fn b68_a_local_refusal_says_nothing_of_what_remains() {
    let (policy, decision) = refused("5/s", 1);
    let decision = decision.with_origin(Origin::LocalFallback);
    assert_eq!(
        json(
            &Problem::gateway_refusal(&policy, &decision, NOW),
            BodyStyle::Plain
        ),
        json!({"detail": "Rate limit exceeded", "limit": 5, "retry_after": 0.2})
    );
    let library = Problem::refusal(&policy, &decision, ProblemType::Blank);
    let library = json(&library, BodyStyle::Problem);
    assert_eq!(
        (&library["limit"], &library["retry_after"]),
        (&json!(5), &json!(1))
    );
    assert!(library.get("remaining").is_none());
}

#[test]
fn a_remembered_refusal_without_numbers_still_has_all_members() {
    let policy = Policy::new("api", ["5/s".parse().unwrap()]).unwrap();
    let wait = Some(std::time::Duration::from_millis(1_250));
    let decision = Decision::unenforced(Origin::RememberedRefusal, false, 0, wait, NOW);
    assert_eq!(
        json(
            &Problem::gateway_refusal(&policy, &decision, NOW),
            BodyStyle::Plain
        ),
        json!({
            "detail": "Rate limit exceeded", "limit": 5, "remaining": 0,
            "reset_at": 1_753_881_073.25, "retry_after": 1.25,
        })
    );
}

#[test]
fn b112_texts_are_escaped() {
    let problem = Problem::new(StatusCode::BAD_REQUEST, "a \"quoted\" \u{1}\r\n text")
        .with_instance("/\"\\\u{7f}");
    let body = json(&problem, BodyStyle::Problem);
    assert_eq!(body["detail"], "a \"quoted\" \u{1}\r\n text");
    assert_eq!(body["instance"], "/\"\\\u{7f}");
}
