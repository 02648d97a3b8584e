//! Clients and upstreams that mean harm, or are made by somebody in a hurry.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Connection, get, read_head};
use crate::process::{Gateway, LONG, eventually};
use crate::upstream::{OK, answering, serving};

fn in_front_of(upstream: std::net::SocketAddr, arguments: &[&str]) -> Gateway {
    let upstream = format!("http://{upstream}");
    Gateway::start(&[&["--upstream", &upstream], arguments].concat())
}

#[test]
fn what_two_readers_would_read_differently_is_not_forwarded() {
    let (upstream, requests) = answering(OK);
    let gateway = in_front_of(upstream, &[]);
    let demo = Gateway::start(&[]);
    let circle = "Via: 1.1 tollgate\r\n".repeat(8);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\"/@x\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n", 400),
        ("GET http://u:p@evil.example/ HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET ftp://evil.example/ HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET evil.example:80 HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n", 400),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n",
            501,
        ),
        (&format!("GET / HTTP/1.1\r\nHost: a\r\n{circle}"), 508),
    ] {
        for gateway in [&gateway, &demo] {
            let mut connection = Connection::new(gateway.address);
            connection.send(format!("{request}\r\n"));
            let answer = connection.answer(true);
            assert_eq!(answer.status, status, "{request}");
            assert!(answer.header("ratelimit").is_some(), "it was charged");
        }
    }
    assert_eq!(requests.try_iter().count(), 0);
}

#[test]
fn a_body_that_the_upstream_frames_twice_or_oddly_is_not_garbled() {
    let of = |answer| {
        let (upstream, _requests) = answering(answer);
        get(in_front_of(upstream, &[]).address, "/")
    };
    let both = of(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\n\r\n",
    );
    assert_eq!(both.status, 502);
    let coded =
        of("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(coded.status, 502);
}

#[test]
fn an_answer_without_end_has_one_though_the_client_is_the_slower() {
    let upstream = serving(|mut stream| {
        read_head(&mut stream);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";
        let mut sent = stream.get_mut().write_all(head);
        while sent.is_ok() {
            sent = stream.get_mut().write_all(&[b'x'; 0x1_0000]);
        }
    });
    let gateway = in_front_of(upstream, &["--request-timeout", "300ms"]);
    let mut client = Connection::new(gateway.address);
    let start = Instant::now();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().0, 200);
    let mut part = [0; 0x1_0000];
    while let Ok(1..) = client.stream.read(&mut part) {
        assert!(start.elapsed() < LONG / 2, "it still comes");
        // So the upstream is never waited for.
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_client_that_takes_no_answer_loses_its_place() {
    let upstream = serving(|mut stream| {
        // What comes before a request is no answer to it.
        read_head(&mut stream);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";
        let mut sent = stream.get_mut().write_all(head);
        while sent.is_ok() {
            sent = stream.get_mut().write_all(&[b'x'; 0x1_0000]);
        }
    });
    let gateway = in_front_of(
        upstream,
        &["--header-timeout", "300ms", "--max-connections", "1"],
    );
    let mut first = Connection::new(gateway.address);
    first.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(first.head().0, 200);
    // It reads no more, and there is one place only.
    assert_eq!(get(gateway.address, "/health").status, 200);
    drop(first);
}

#[test]
fn a_client_that_still_sends_gets_its_answer_and_no_reset() {
    let gateway = Gateway::start(&["--quota", "1/60s"]);
    assert_eq!(get(gateway.address, "/").status, 200);
    let mut connection = Connection::new(gateway.address);
    connection.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n");
    assert_eq!(connection.answer(true).status, 429);
    // The gateway has said its last word, and these are not refused.
    for _ in 0..16 {
        connection.send([b'x'; 0x1_0000]);
    }
    let rest = connection.stream.read(&mut [0; 1]);
    assert_eq!(rest.unwrap(), 0, "an end, not a reset");
}

#[test]
fn what_a_client_makes_long_is_logged_short() {
    let gateway = Gateway::start(&[]);
    let long = "\u{e9}".repeat(20_000);
    let mut connection = Connection::new(gateway.address);
    let method = "M".repeat(20_000);
    connection.send(format!("{method} /{long} HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_eq!(connection.answer(true).status, 200);
    eventually("it is logged", || gateway.log().contains("answered"));
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("answered")).unwrap();
    assert!(line.contains("method=\"MMM") && line.contains("/\u{e9}\u{e9}"));
    assert!(line.len() < 2_000, "{} bytes", line.len());
}
