//! Who may, and what is answered.

use http::Request;

use super::*;

const TOKEN: &str = "a-token-of-the-operators";

fn caller(trusted: bool) -> Caller {
    let peer = [127, 0, 0, 1].into();
    Caller {
        peer,
        client: peer,
        trusted,
    }
}

/// The status with which a request is turned away; 200 if it is not.
fn status(access: &Access, method: &str, path: &str, fields: &[(&str, &str)]) -> u16 {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "gate:8000");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let admitted = access.admits(&request.body(()).unwrap(), caller(false));
    admitted.map_or_else(|failed| failed.status().as_u16(), |()| 200)
}

#[test]
fn only_the_token_lets_in_and_a_loopback_peer_proves_nothing() {
    let access = Access::new(Some(TOKEN), false, [127, 0, 0, 1].into());
    let with = |value: &str| status(&access, "GET", "/rules", &[("authorization", value)]);
    assert_eq!(with(&format!("Bearer {TOKEN}")), 200);
    assert_eq!(with(&format!("bearer  {TOKEN} ")), 200);
    for wrong in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        TOKEN,
        &format!("Basic {TOKEN}"),
    ] {
        assert_eq!(with(wrong), 401, "{wrong}");
    }
    assert_eq!(status(&access, "GET", "/rules", &[]), 401);
    let right = format!("Bearer {TOKEN}");
    let twice = [("authorization", &*right), ("authorization", &*right)];
    assert_eq!(status(&access, "GET", "/rules", &twice), 401);
}

#[test]
fn without_a_token_it_is_open_on_loopback_or_by_setting_and_else_closed() {
    let of = |token, open, listener: &str| {
        let access = Access::new(token, open, listener.parse().unwrap());
        status(&access, "GET", "/rules", &[])
    };
    assert_eq!(of(None, false, "127.0.0.1"), 200);
    assert_eq!(of(None, false, "::1"), 200);
    assert_eq!(of(None, false, "0.0.0.0"), 401);
    assert_eq!(of(None, true, "0.0.0.0"), 200);
    assert_eq!(of(Some(TOKEN), true, "0.0.0.0"), 200);
    assert_eq!(of(Some(TOKEN), false, "127.0.0.1"), 401);
}

#[test]
fn a_page_of_another_origin_changes_nothing() {
    let access = Access::Open;
    let from = |method, origin| status(&access, method, "/rules", &[("origin", origin)]);
    for own in ["http://gate:8000", "https://GATE:8000"] {
        assert_eq!(from("POST", own), 200, "{own}");
    }
    for foreign in [
        "http://evil",
        "http://gate",
        "null",
        "",
        "http://gate:8000.evil",
        "ftp://gate:8000",
    ] {
        assert_eq!(from("POST", foreign), 403, "{foreign}");
        assert_eq!(from("DELETE", foreign), 403, "{foreign}");
        assert_eq!(from("GET", foreign), 200, "{foreign}");
    }
}

#[test]
fn proxies_ask_by_their_address_and_nobody_else_does() {
    let access = Access::Token([0; 32]);
    let ask = Request::get("/v1/forward-auth?deny=403").body(()).unwrap();
    assert!(access.admits(&ask, caller(true)).is_ok());
    let refused = access.admits(&ask, caller(false)).unwrap_err();
    assert_eq!(refused.status(), 403);
    // A trusted proxy is no operator.
    let rules = Request::get("/rules").body(()).unwrap();
    assert_eq!(
        access.admits(&rules, caller(true)).unwrap_err().status(),
        401
    );
}

#[tokio::test]
async fn every_error_is_a_problem_document() {
    let router = Router::new().route("/v1/x", axum::routing::get(|| async { "x" }));
    let admin = Admin::new(Access::Open, router);
    for (method, path, expected) in [("GET", "/v1/y", 404), ("POST", "/v1/x", 405)] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "h");
        let request = request.body(String::new()).unwrap();
        let id = RequestId::of(request.headers());
        let answer = admin
            .answer(request.map(axum::body::Body::from), caller(false), &id)
            .await;
        assert_eq!(answer.status(), expected);
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let document: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(document["status"], expected);
        assert_eq!(document["instance"], path);
        assert_eq!(document["request_id"], id.as_str());
        if expected == 405 {
            assert_eq!(answer.headers()["allow"], "GET,HEAD");
        }
    }
}
