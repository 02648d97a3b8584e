//! What the upstream gets, and what comes back of its answer.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::client::{Answer, Connection, get, read_body, read_chunk, read_head, request};
use crate::process::{Gateway, LONG};
use crate::upstream::{OK, answering, nowhere, serving};

pub(crate) fn in_front_of(upstream: SocketAddr, arguments: &[&str]) -> Gateway {
    let upstream = format!("http://{upstream}");
    let mut all = vec!["--upstream", &*upstream];
    all.extend(arguments);
    Gateway::start(&all)
}

#[test]
fn s56_requests_are_forwarded_as_they_are() {
    let (upstream, requests) = answering(
        "HTTP/1.1 201 Created\r\nContent-Length: 4\r\nETag: \"a\"\r\nX-RateLimit-Limit: 7\r\n\
         Retry-After: 9\r\nConnection: X-Hop\r\nX-Hop: 1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nmade",
    );
    let gateway = in_front_of(upstream, &["--quota", "5/60s"]);
    let mut connection = Connection::new(gateway.address);
    connection.send(
        "PUT /a%20b//c?x=%2F&y HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 4\r\n\
         Authorization: Bearer t\r\nX-Twice: 1\r\nX-Twice: 2\r\nX-Request-Id: r-1\r\n\r\nbody",
    );
    let answer = connection.answer(true);
    assert_eq!((answer.status, answer.text()), (201, "made"));
    assert_eq!(answer.header("etag"), Some("\"a\""));
    assert_eq!(
        answer.header("x-ratelimit-limit"),
        Some("5"),
        "ours, not the upstream's"
    );
    assert_eq!(
        answer.header("retry-after"),
        Some("9"),
        "the upstream's own"
    );
    assert_eq!(
        (answer.header("x-hop"), answer.header("connection")),
        (None, None)
    );
    assert_eq!(
        answer
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie")
            .count(),
        2
    );
    assert_eq!(answer.header("x-request-id"), Some("r-1"));

    let got = requests.recv_timeout(LONG).unwrap();
    assert_eq!(got.line, "PUT /a%20b//c?x=%2F&y HTTP/1.1");
    assert_eq!(got.body, b"body");
    assert_eq!(got.header("authorization"), ["Bearer t"]);
    assert_eq!(got.header("x-twice"), ["1", "2"]);
    assert_eq!(got.header("host"), [upstream.to_string()]);
    assert_eq!(got.header("x-request-id"), ["r-1"]);
    assert_eq!(got.header("x-forwarded-host"), ["shop.example"]);
    assert_eq!(got.header("via"), ["1.1 tollgate"]);
}

#[test]
fn b137_what_belongs_to_a_connection_stays_there() {
    let (upstream, requests) = answering(OK);
    let gateway = in_front_of(upstream, &[]);
    let answer = request(
        gateway.address,
        "GET",
        "/",
        "Connection: X-Forwarded-For, X-Real-IP, X-User-Id, X-Request-Id\r\n\
         X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Port: 1\r\nX-Real-IP: 1.1.1.1\r\n\
         Forwarded: for=1.1.1.1\r\nX-User-Id: admin\r\nX-Request-Id: r-1\r\n\
         TE: trailers\r\nKeep-Alive: timeout=5\r\nProxy-Authorization: Basic x\r\nUpgrade: h2c\r\n",
    );
    assert_eq!(answer.status, 200);
    let got = requests.recv_timeout(LONG).unwrap();
    assert_eq!(got.header("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(got.header("x-forwarded-proto"), ["http"]);
    assert_eq!(
        got.header("forwarded"),
        ["for=127.0.0.1;host=\"gate.example\";proto=http"]
    );
    assert_eq!(got.header("x-request-id"), ["r-1"]);
    assert_eq!(got.header("te"), ["trailers"]);
    for gone in [
        "connection",
        "x-forwarded-port",
        "x-real-ip",
        "x-user-id",
        "keep-alive",
        "proxy-authorization",
        "upgrade",
    ] {
        assert!(got.header(gone).is_empty(), "{gone}");
    }
}

#[test]
fn refused_requests_are_not_forwarded() {
    let (upstream, requests) = answering(OK);
    let gateway = in_front_of(upstream, &["--quota", "2/60s"]);
    let statuses: Vec<_> = (0..4).map(|_| get(gateway.address, "/").status).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(requests.try_iter().count(), 2);
}

#[test]
fn an_answer_is_streamed_as_it_comes() {
    let (seen, wait) = channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let upstream = serving(move |mut stream| {
        read_head(&mut stream);
        let out = stream.get_mut();
        out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            .unwrap();
        // The rest is sent only after the client has the beginning.
        wait.lock().unwrap().recv_timeout(LONG).unwrap();
        out.write_all(b"4\r\nlast\r\n0\r\n\r\n").unwrap();
    });
    let gateway = in_front_of(upstream, &[]);
    let mut connection = Connection::new(gateway.address);
    connection.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(connection.head().0, 200);
    assert_eq!(read_chunk(&mut connection.stream).unwrap(), b"first");
    seen.send(()).unwrap();
    assert_eq!(read_chunk(&mut connection.stream).unwrap(), b"last");
    assert_eq!(read_chunk(&mut connection.stream), None);
}

#[test]
fn a_request_is_streamed_as_it_comes() {
    let (arrived, first) = channel();
    let upstream = serving(move |mut stream| {
        read_head(&mut stream);
        let chunk = read_chunk(&mut stream).unwrap();
        arrived.send(chunk).unwrap();
        let rest = read_chunk(&mut stream).unwrap();
        assert_eq!(read_chunk(&mut stream), None);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", rest.len());
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
        stream.get_mut().write_all(&rest).unwrap();
    });
    let gateway = in_front_of(upstream, &[]);
    let mut connection = Connection::new(gateway.address);
    connection
        .send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    assert_eq!(first.recv_timeout(LONG).unwrap(), b"first");
    connection.send("4\r\nlast\r\n0\r\n\r\n");
    assert_eq!(connection.answer(true).text(), "last");
}

#[test]
fn large_bodies_pass_unchanged_both_ways() {
    let upstream = serving(|mut stream| {
        let (_, headers) = read_head(&mut stream).unwrap();
        let body = read_body(&mut stream, &headers);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
        stream.get_mut().write_all(&body).unwrap();
    });
    let gateway = in_front_of(upstream, &[]);
    let body: Vec<u8> = (0..10 << 20)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut connection = Connection::new(gateway.address);
    connection.send(format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    connection.send(&body);
    assert!(connection.answer(true).body == body);
}

#[test]
fn head_keeps_the_headers_of_the_upstream() {
    let upstream = serving(|mut stream| {
        while read_head(&mut stream).is_some() {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nETag: \"a\"\r\n\r\n";
            stream.get_mut().write_all(answer).unwrap();
        }
    });
    let gateway = in_front_of(upstream, &[]);
    let head = request(gateway.address, "HEAD", "/", "");
    assert_eq!(
        (head.header("content-length"), head.header("etag")),
        (Some("1234"), Some("\"a\""))
    );
}

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    let (told, events) = channel();
    let upstream = serving(move |mut stream| {
        read_head(&mut stream);
        told.send("arrived").unwrap();
        // Until the gateway gives up, there is nothing to read.
        let ended = matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_));
        told.send(if ended { "given up" } else { "more" }).unwrap();
    });
    let gateway = in_front_of(upstream, &[]);
    let mut connection = Connection::new(gateway.address);
    connection.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(events.recv_timeout(LONG).unwrap(), "arrived");
    drop(connection);
    assert_eq!(events.recv_timeout(LONG / 2).unwrap(), "given up");
}

pub(crate) fn is_problem(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let body = answer.json();
    assert_eq!(body["status"], status);
    assert_eq!(body["request_id"], answer.header("x-request-id").unwrap());
    assert!(
        answer.header("ratelimit").is_some(),
        "it was charged: {answer:?}"
    );
}

#[test]
fn b141_an_upstream_that_hangs_or_is_gone_is_a_problem_in_time() {
    let hanging = serving(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let gateway = in_front_of(
        hanging,
        &["--upstream-timeout", "300ms", "--quota", "2/60s"],
    );
    let start = Instant::now();
    let late = get(gateway.address, "/slow");
    assert!(start.elapsed() >= Duration::from_millis(300) && start.elapsed() < LONG / 2);
    is_problem(&late, 504);
    assert_eq!(late.json()["instance"], "/slow");
    assert_eq!(
        late.header("x-ratelimit-remaining"),
        Some("1"),
        "charged once"
    );

    let gateway = in_front_of(nowhere(), &[]);
    let gone = get(gateway.address, "/");
    is_problem(&gone, 502);
    assert!(!gone.text().contains("127.0.0.1"), "no internal detail");

    let (garbage, _requests) = answering("nonsense\r\n\r\n");
    is_problem(&get(in_front_of(garbage, &[]).address, "/"), 502);
}

#[test]
fn an_upload_that_goes_on_is_not_cut_by_the_upstream_timeout() {
    let upstream = serving(|mut stream| {
        let (_, headers) = read_head(&mut stream).unwrap();
        read_body(&mut stream, &headers);
        stream.get_mut().write_all(OK.as_bytes()).unwrap();
    });
    let gateway = in_front_of(upstream, &["--upstream-timeout", "1s"]);
    let mut connection = Connection::new(gateway.address);
    connection.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_500) {
        connection.send("1\r\nx\r\n");
        std::thread::sleep(Duration::from_millis(50));
    }
    connection.send("0\r\n\r\n");
    assert_eq!(connection.answer(true).status, 200);

    // One that stops is the client's fault, not the upstream's.
    let mut connection = Connection::new(gateway.address);
    connection.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
    is_problem(&connection.answer(true), 408);
}

#[test]
fn targets_of_every_form_reach_the_upstream() {
    let (upstream, requests) = answering(OK);
    let gateway = Gateway::start(&["--upstream", &format!("http://{upstream}/base/")]);
    let line = |request: &str| {
        let mut connection = Connection::new(gateway.address);
        connection.send(request);
        assert_eq!(connection.answer(true).status, 200, "{request}");
        let got = requests.recv_timeout(LONG).unwrap();
        (got.line.clone(), got.header("x-forwarded-host").join(","))
    };
    assert_eq!(
        line("GET http://other.example/x?y HTTP/1.1\r\nHost: other.example\r\n\r\n"),
        ("GET /base/x?y HTTP/1.1".into(), "other.example".into())
    );
    assert_eq!(
        line("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"),
        ("OPTIONS * HTTP/1.1".into(), "h".into())
    );
    assert_eq!(
        line("GET / HTTP/1.0\r\n\r\n"),
        ("GET /base/ HTTP/1.1".into(), String::new())
    );
    for hosts in ["", "Host: a\r\nHost: b\r\n"] {
        let mut connection = Connection::new(gateway.address);
        connection.send(format!("GET / HTTP/1.1\r\n{hosts}\r\n"));
        is_problem(&connection.answer(true), 400);
    }
}

#[test]
fn connections_to_the_upstream_are_used_again() {
    let (told, opened) = channel();
    let upstream = serving(move |mut stream| {
        told.send(()).unwrap();
        while read_head(&mut stream).is_some() {
            stream.get_mut().write_all(OK.as_bytes()).unwrap();
        }
    });
    let gateway = in_front_of(upstream, &[]);
    let mut connection = Connection::new(gateway.address);
    for _ in 0..20 {
        connection.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(connection.answer(true).text(), "ok");
    }
    assert_eq!(opened.try_iter().count(), 1);
}

#[test]
fn a_client_that_waits_to_be_told_to_go_on_is_told_by_the_gateway() {
    let (upstream, requests) = answering(OK);
    let gateway = in_front_of(upstream, &["--quota", "1/60s"]);
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    let mut connection = Connection::new(gateway.address);
    connection.send(head);
    // The upstream, which answers whole requests only, has not said anything.
    let (line, _) = read_head(&mut connection.stream).unwrap();
    assert_eq!(line, "HTTP/1.1 100 Continue");
    connection.send("body");
    assert_eq!(connection.answer(true).status, 200);
    let got = requests.recv_timeout(LONG).unwrap();
    assert_eq!(got.body, b"body");
    assert_eq!(got.header("expect"), ["100-continue"]);

    // Who is refused is not asked for the body.
    let mut connection = Connection::new(gateway.address);
    connection.send(head);
    let (line, _) = read_head(&mut connection.stream).unwrap();
    assert_eq!(line, "HTTP/1.1 429 Too Many Requests");
}
