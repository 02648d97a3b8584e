//! Clients that are refused and ask again and again, whose requests are known by their bytes.

use crate::client::{Answer, Connection};
use crate::process::{Gateway, eventually};
use crate::upstream::{OK, answering};

/// Twice the same client: the third answer and those after it are given without reading the request
/// anew.
const TIMES: usize = 6;

fn request(key: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: h\r\nX-API-Key: {key}\r\n\r\n")
}

fn refused(connection: &mut Connection, request: &str) -> Answer {
    connection.send(request);
    let answer = connection.answer(true);
    assert_eq!(answer.status, 429);
    answer
}

/// A connection whose client was admitted once and refused until its request is known.
fn known_on(gateway: &Gateway, request: &str) -> Connection {
    let mut connection = Connection::new(gateway.address);
    connection.send(request);
    assert_eq!(connection.answer(true).status, 200);
    for _ in 0..TIMES {
        refused(&mut connection, request);
    }
    connection
}

/// An answer without what differs from one to the next.
fn same(answer: &Answer) -> (Vec<(String, String)>, serde_json::Value) {
    let mut headers = answer.headers.clone();
    for (name, value) in &mut headers {
        match name.as_str() {
            "x-request-id" => value.clear(),
            "date" => {
                assert!(value.ends_with(" GMT") && value.len() == 29, "{value}");
                value.clear();
            }
            // Seconds, of which one may have gone by; and a body whose fractions may be shorter.
            "ratelimit" | "retry-after" | "x-ratelimit-reset" => value.truncate(2),
            "content-length" => value.truncate(1),
            _ => {}
        }
    }
    let mut body = answer.json();
    assert_eq!(body["request_id"], answer.header("x-request-id").unwrap());
    for changing in ["request_id", "retry_after", "reset_at"] {
        body[changing].take();
    }
    (headers, body)
}

#[test]
fn an_answer_is_the_same_however_often_it_is_given() {
    let gateway = Gateway::start(&["--quota", "1/h", "--identity-order", "api_key"]);
    for more in ["", "X-Request-Id: mine\r\n", "Accept: application/json\r\n"] {
        let request = format!("GET /a HTTP/1.1\r\nX-API-Key: {more:?}\r\nHost: h\r\n{more}\r\n");
        let mut connection = Connection::new(gateway.address);
        connection.send(&request);
        assert_eq!(connection.answer(true).status, 200);
        if more.starts_with("Accept") {
            let bodies = (0..TIMES).map(|_| refused(&mut connection, &request).json());
            assert!(bodies.into_iter().all(|it| it["status"].is_null()));
            continue;
        }
        let first = same(&refused(&mut connection, &request));
        for _ in 0..TIMES {
            let again = refused(&mut connection, &request);
            assert_eq!(same(&again), first);
            if !more.is_empty() {
                assert_eq!(again.header("x-request-id"), Some("mine"));
            }
        }
        // And by another connection, whose first request it is.
        let mut other = Connection::new(gateway.address);
        assert_eq!(same(&refused(&mut other, &request)), first);
    }
    let metrics = crate::client::get(gateway.address, "/metrics");
    assert_eq!(metrics.status, 200);
    let counted = "tollgate_requests_total{method=\"GET\",outcome=\"refused\"} 22\n";
    assert!(metrics.text().contains(counted), "{}", metrics.text());
}

#[test]
fn what_is_admitted_again_is_charged_once() {
    let (upstream, requests) = answering(OK);
    let upstream = format!("http://{upstream}");
    let gateway = Gateway::start(&[
        "--upstream",
        &upstream,
        "--quota",
        "2/1s fixed_window",
        "--identity-order",
        "api_key",
        "--identity-forward-as",
        "x-client",
    ]);
    let mut connection = Connection::new(gateway.address);
    let mut ask = || {
        connection.send("GET /x HTTP/1.1\r\nHost: h\r\nX-API-Key: k\r\nX-Client: me\r\n\r\n");
        let answer = connection.answer(true);
        (
            answer.status,
            answer.header("ratelimit").unwrap().to_owned(),
        )
    };
    let mut admitted = 0;
    let mut windows = 0;
    let mut since_refused = usize::MAX;
    eventually("three windows are over", || {
        let (status, field) = ask();
        if status == 200 {
            admitted += 1;
            since_refused = since_refused.saturating_add(1);
            // The first of a window leaves one, also where it is decided on before it is read.
            assert!(since_refused != 1 || field.contains("r=1"), "{field}");
        } else {
            windows += usize::from(since_refused != 0);
            since_refused = 0;
        }
        windows > 3
    });
    let got: Vec<_> = requests.try_iter().collect();
    assert_eq!(got.len(), admitted);
    // It is told whom they count for, however they were decided on.
    assert!(got.iter().all(|it| it.header("x-client") == ["k"]));
}

#[test]
fn bodies_and_pieces_are_no_requests() {
    let gateway = Gateway::start(&["--quota", "1/h", "--identity-order", "api_key"]);
    let known = request("k");
    let mut connection = known_on(&gateway, &known);
    // Two at once; then one in two pieces, of which the second looks like one of its own.
    connection.send(known.repeat(2));
    assert_eq!(connection.answer(true).status, 429);
    assert_eq!(connection.answer(true).status, 429);
    let mut connection = Connection::new(gateway.address);
    refused(&mut connection, &known);
    connection.send("GET /pieces HTTP/1.1\r\nX-Rest: ");
    let answer = refused(&mut connection, &known);
    assert_eq!(answer.json()["instance"], "/pieces");
    refused(&mut connection, &known);
}

#[test]
fn the_body_of_a_refused_request_is_not_answered() {
    let gateway = Gateway::start(&["--quota", "1/h", "--identity-order", "api_key"]);
    let known = request("k");
    let mut connection = known_on(&gateway, &known);
    let post = format!(
        "POST /p HTTP/1.1\r\nHost: h\r\nX-API-Key: k\r\nContent-Length: {}\r\n\r\n",
        known.len()
    );
    let answer = refused(&mut connection, &post);
    assert_eq!(answer.json()["instance"], "/p");
    // What comes now is its body, and not read any more.
    connection.send(&known);
    connection.closed();
}

#[test]
fn another_request_of_a_refused_client_is_another() {
    let gateway = Gateway::start(&["--quota", "1/h", "--identity-order", "api_key"]);
    let mut connection = Connection::new(gateway.address);
    for key in ["a", "b"] {
        connection.send(request(key));
        assert_eq!(connection.answer(true).status, 200, "{key}");
        for _ in 0..TIMES {
            refused(&mut connection, &request("a"));
        }
    }
    connection.send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(connection.answer(true).status, 200);
    connection.send(request("a").replace("GET", "HEAD"));
    assert_eq!(connection.answer(false).status, 429);
    refused(&mut connection, &request("b"));
    connection.send(request("c").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    assert_eq!(connection.answer(true).status, 200);
    connection.closed();
}
