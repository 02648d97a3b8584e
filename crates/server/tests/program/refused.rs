//! Clients that are refused and ask again and again, whose requests are known by their bytes.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Answer, Connection, read_head};
use crate::process::{Gateway, eventually};
use crate::service::send;
use crate::upstream::{OK, answering, serving};

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
fn an_answer_tells_the_numbers_of_its_moment() {
    let gateway = Gateway::start(&["--quota", "1/h", "--identity-order", "api_key"]);
    let known = request("k");
    let mut connection = known_on(&gateway, &known);
    let number = |answer: &Answer, name: &str| answer.header(name).unwrap().parse::<u64>().unwrap();
    let (mut waits, mut ids, mut dates) = (HashSet::new(), HashSet::new(), HashSet::new());
    eventually("three seconds were told", || {
        let answer = refused(&mut connection, &known);
        let body = answer.json();
        let ceil = |name: &str| body[name].as_f64().unwrap().ceil() as u64;
        let wait = number(&answer, "retry-after");
        assert_eq!(wait, ceil("retry_after"));
        assert_eq!(number(&answer, "x-ratelimit-reset"), ceil("reset_at"));
        let field = format!("\"default\";r=0;t={wait}");
        assert_eq!(answer.header("ratelimit"), Some(&*field));
        let id = answer.header("x-request-id").unwrap().to_owned();
        assert_eq!(body["request_id"], id);
        assert!(ids.insert(id), "each request has an id of its own");
        dates.insert(answer.header("date").unwrap().to_owned());
        waits.insert(wait);
        waits.len() > 2
    });
    assert!(dates.len() > 1, "{dates:?}");
}

#[test]
fn a_rule_that_changes_changes_the_answer() {
    let gateway = Gateway::start(&["--identity-order", "api_key", "--remember-refusals", "0"]);
    let rule = |limit: u64, mode: &str| {
        let config = json!({"algorithm": "fixed_window", "limit": limit, "window_seconds": 3600});
        let rule = json!({"id": "r", "identity_type": "api_key", "mode": mode, "config": config});
        let target = if limit == 1 {
            ("POST", "/rules")
        } else {
            ("PUT", "/rules/r")
        };
        let made = send(gateway.address, target.0, target.1, "", &rule.to_string());
        assert!(made.status < 300, "{made:?}");
    };
    rule(1, "enforce");
    let known = request("k");
    let mut connection = Connection::new(gateway.address);
    let mut ask = || {
        connection.send(&known);
        let answer = connection.answer(true);
        let told = answer.header("x-ratelimit-limit").map(ToOwned::to_owned);
        (answer.status, told, answer.json()["limit"].as_u64())
    };
    eventually("the rule holds", || {
        ask() == (429, Some("1".into()), Some(1))
    });
    (0..TIMES).for_each(|_| assert_eq!(ask().0, 429));
    // What was used under it stays used.
    rule(2, "enforce");
    eventually("the limit is another", || {
        ask() == (429, Some("2".into()), Some(2))
    });
    (0..TIMES).for_each(|_| assert_eq!(ask(), (429, Some("2".into()), Some(2))));
    rule(2, "shadow");
    eventually("it only watches", || ask() == (200, None, None));
    (0..TIMES).for_each(|_| assert_eq!(ask(), (200, None, None)));
    rule(2, "enforce");
    eventually("it holds again", || {
        ask() == (429, Some("2".into()), Some(2))
    });

    let name = "/usage/k/block?identity_type=api_key";
    let blocked = send(gateway.address, "POST", name, "", r#"{"seconds": 600}"#);
    assert_eq!(blocked.status, 200, "{blocked:?}");
    eventually("it is blocked", || ask() == (429, None, Some(0)));
    (0..TIMES).for_each(|_| assert_eq!(ask(), (429, None, Some(0))));
}

#[test]
fn what_is_answered_early_is_logged_and_counted() {
    let gateway = Gateway::start(&["--quota", "1/h", "--identity-order", "api_key"]);
    let known = request("k");
    let mut connection = known_on(&gateway, &known);
    let ids: Vec<_> = (0..TIMES)
        .map(|_| refused(&mut connection, &known))
        .map(|answer| answer.header("x-request-id").unwrap().to_owned())
        .collect();
    for id in ids {
        let line = format!("request_id={id} method=\"GET\" path=\"/a\" status=429 millis=");
        eventually("each is logged", || gateway.log().contains(&line));
    }
    let metrics = crate::client::get(gateway.address, "/metrics");
    let refused = 2 * TIMES;
    for counted in [
        format!("tollgate_requests_total{{method=\"GET\",outcome=\"refused\"}} {refused}\n"),
        format!("tollgate_request_seconds_count{{outcome=\"refused\"}} {refused}\n"),
    ] {
        assert!(
            metrics.text().contains(&counted),
            "{counted}{}",
            metrics.text()
        );
    }
    assert!(!gateway.log().contains(known.lines().nth(2).unwrap()));
}

#[test]
fn pieces_are_no_requests() {
    let gateway = Gateway::start(&["--quota", "1/h", "--identity-order", "api_key"]);
    let known = request("k");
    let mut connection = known_on(&gateway, &known);
    // One in two pieces, of which the second looks like one of its own.
    connection.send("GET /pieces HTTP/1.1\r\nX-Rest: ");
    let answer = refused(&mut connection, &known);
    assert_eq!(answer.json()["instance"], "/pieces");
    refused(&mut connection, &known);
    let mut connection = Connection::new(gateway.address);
    let (begin, end) = known.split_at(30);
    connection.send(begin);
    refused(&mut connection, end);
    connection.send(format!("{known}{begin}"));
    assert_eq!(connection.answer(true).status, 429);
    refused(&mut connection, end);
}

#[test]
fn requests_that_come_together_are_answered_in_their_order() {
    let gateway = Gateway::start(&["--quota", "1/h", "--identity-order", "api_key"]);
    let at = |path: &str, key: &str| request(key).replace("/a", path);
    // Until each of them is known: a batch makes one known at a time.
    let batch: Vec<_> = (0..8).map(|n| at(&format!("/{n}"), "k")).collect();
    let mut connection = Connection::new(gateway.address);
    connection.send(at("/", "k"));
    assert_eq!(connection.answer(true).status, 200);
    let mut answers = |requests: &[String]| -> Vec<_> {
        connection.send(requests.concat());
        let told = |answer: Answer| (answer.status, answer.json()["instance"].clone());
        requests
            .iter()
            .map(|_| told(connection.answer(true)))
            .collect()
    };
    let expected: Vec<_> = (0..8).map(|n| (429, json!(format!("/{n}")))).collect();
    for _ in 0..2 * batch.len() {
        assert_eq!(answers(&batch), expected);
    }
    // Somebody else among them is let through in turn, and what is new is told apart.
    let mut mixed = batch.clone();
    mixed[3] = at("/3", "another");
    mixed[5] = "POST /5 HTTP/1.1\r\nHost: h\r\nX-API-Key: k\r\n\r\n".into();
    let mut expected = expected;
    expected[3] = (200, Value::Null);
    assert_eq!(answers(&mixed), expected);
    expected[3] = (429, json!("/3"));
    for _ in 0..TIMES {
        assert_eq!(answers(&mixed), expected);
        assert_eq!(answers(&batch)[..3], expected[..3]);
    }
    let metrics = crate::client::get(gateway.address, "/metrics");
    let refused = 16 * 8 + 7 + TIMES * 16;
    for (method, count) in [("GET", refused - 1 - TIMES), ("POST", 1 + TIMES)] {
        let counted = format!("{{method=\"{method}\",outcome=\"refused\"}} {count}\n");
        assert!(
            metrics.text().contains(&counted),
            "{counted}{}",
            metrics.text()
        );
    }
}

#[test]
fn a_body_that_looks_like_requests_is_a_body() {
    let gateway = Gateway::start(&["--quota", "1/h", "--identity-order", "api_key"]);
    let known = request("k");
    let mut connection = known_on(&gateway, &known);
    let length = 2 * known.len();
    let head =
        format!("POST /p HTTP/1.1\r\nHost: h\r\nX-API-Key: k\r\nContent-Length: {length}\r\n\r\n");
    let last = known.replace("/a", "/last");
    connection.send(format!("{known}{head}{known}{known}{last}"));
    for path in ["/a", "/p", "/last"] {
        let answer = connection.answer(true);
        assert_eq!(
            (answer.status, &answer.json()["instance"]),
            (429, &json!(path))
        );
    }
    refused(&mut connection, &known);
}

#[test]
fn who_goes_on_is_not_idle_and_who_stops_is() {
    const PATIENCE: Duration = Duration::from_secs(1);
    let options = ["--quota", "1/h", "--identity-order", "api_key"];
    let gateway = Gateway::start(&[&options[..], &["--header-timeout", "1s"]].concat());
    let known = request("k");
    let mut connection = known_on(&gateway, &known);
    let start = Instant::now();
    eventually("it goes on for long", || {
        refused(&mut connection, &known);
        start.elapsed() > 3 * PATIENCE
    });
    refused(&mut connection, &known);
    let latest = Instant::now();
    connection.closed();
    assert!(latest.elapsed() > PATIENCE / 2, "{:?}", latest.elapsed());
    assert!(latest.elapsed() < 10 * PATIENCE, "{:?}", latest.elapsed());
}

#[test]
fn what_comes_while_another_is_answered_waits_for_its_turn() {
    let (held, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (in_upstream, go_on) = (Arc::clone(&held), Arc::clone(&release));
    let upstream = serving(move |mut stream| {
        while let Some((line, _)) = read_head(&mut stream) {
            if line.contains("/slow") {
                in_upstream.wait();
                go_on.wait();
            }
            if stream.get_mut().write_all(OK.as_bytes()).is_err() {
                break;
            }
        }
    });
    let upstream = format!("http://{upstream}");
    let options = [
        "--quota",
        "1/h",
        "--identity-order",
        "api_key",
        "--workers",
        "1",
    ];
    let gateway = Gateway::start(&[&options[..], &["--upstream", &upstream]].concat());
    let known = request("k");
    let mut connection = known_on(&gateway, &known);
    connection.send(request("slow").replace("/a", "/slow"));
    held.wait();
    connection.send(&known);
    // Its thread has seen what came before these.
    let mut other = Connection::new(gateway.address);
    (0..TIMES).for_each(|_| drop(refused(&mut other, &known)));
    release.wait();
    assert_eq!(connection.answer(true).status, 200);
    assert_eq!(connection.answer(true).status, 429);
    refused(&mut connection, &known);
}

#[test]
fn a_client_that_reads_late_gets_all_its_answers() {
    let gateway = Gateway::start(&["--quota", "1/h", "--identity-order", "api_key"]);
    let known = request("k");
    let mut connection = known_on(&gateway, &known);
    // More than the system holds of what nobody reads.
    const BATCHES: usize = 250;
    const BATCH: usize = 100;
    let mut stream = connection.stream.get_ref().try_clone().unwrap();
    let sent = std::thread::spawn(move || {
        let batch = known.repeat(BATCH);
        for _ in 0..BATCHES {
            stream.write_all(batch.as_bytes()).unwrap();
        }
    });
    let mut latest = 0;
    eventually("it waits for its client", || {
        let text = crate::client::get(gateway.address, "/metrics")
            .text()
            .to_owned();
        let counted = "tollgate_requests_total{method=\"GET\",outcome=\"refused\"} ";
        let at = text.find(counted).unwrap() + counted.len();
        let count: usize = text[at..].lines().next().unwrap().parse().unwrap();
        let before = std::mem::replace(&mut latest, count);
        count > TIMES + BATCH && count == before && count < BATCHES * BATCH
    });
    let mut ids = HashSet::new();
    for _ in 0..BATCHES * BATCH {
        let answer = connection.answer(true);
        assert_eq!(answer.status, 429);
        assert!(ids.insert(answer.header("x-request-id").unwrap().to_owned()));
    }
    sent.join().unwrap();
    refused(&mut connection, &request("k"));
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

#[test]
fn empty_lines_before_a_request_are_no_request() {
    let gateway = Gateway::start(&["--quota", "1/h", "--workers", "1"]);
    let at = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut connection = Connection::new(gateway.address);
    connection.send(at("/a"));
    assert_eq!(connection.answer(true).status, 200);
    refused(&mut connection, &at("/a"));
    refused(&mut connection, &format!("\r\n\r\n{}", at("/b")));
    // Nobody gets an answer to them, which would be taken for that to the request.
    let mut other = Connection::new(gateway.address);
    let answer = refused(&mut other, &format!("\r\n\r\n{}", at("/c")));
    assert_eq!(answer.json()["instance"], "/c");
    assert_eq!(refused(&mut other, &at("/d")).json()["instance"], "/d");
}
