//! What the gateway does beyond plain requests: WebSockets, events, pages of other origins,
//! several upstreams, proxies in front, HTTP/2, TLS.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::time::Instant;

use crate::client::{Connection, get, read_chunk, read_head, request};
use crate::process::{Gateway, LONG, eventually};
use crate::upstream::{OK, answering, nowhere, serving};

fn in_front_of(upstream: SocketAddr, arguments: &[&str]) -> Gateway {
    let upstream = format!("http://{upstream}");
    Gateway::start(&[&["--upstream", &upstream], arguments].concat())
}

const HANDSHAKE: &str = "GET /socket HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// An upstream that accepts handshakes and sends back whatever comes.
fn echoing() -> SocketAddr {
    serving(|mut stream| {
        let (_, headers) = read_head(&mut stream).unwrap();
        let upgrade = headers.iter().find(|(name, _)| name == "upgrade");
        assert_eq!(upgrade.map(|(_, value)| &**value), Some("websocket"));
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
            Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
        let mut bytes = [0; 64];
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            stream.get_mut().write_all(&bytes[..length]).unwrap();
        }
    })
}

#[test]
fn a_websocket_is_passed_through_and_refused_like_any_request() {
    let gateway = in_front_of(echoing(), &["--quota", "1/h"]);
    let mut connection = Connection::new(gateway.address);
    connection.send(HANDSHAKE);
    let (status, headers) = connection.head();
    assert_eq!(status, 101);
    let value = |name: &str| {
        let found = headers.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.to_ascii_lowercase())
    };
    assert_eq!(value("upgrade").as_deref(), Some("websocket"));
    assert_eq!(value("connection").as_deref(), Some("upgrade"));
    assert!(value("ratelimit").is_some());
    for bytes in [&b"\x81\x02hi"[..], b"\x81\x05there"] {
        connection.send(bytes);
        let mut back = vec![0; bytes.len()];
        connection.stream.read_exact(&mut back).unwrap();
        assert_eq!(back, bytes);
    }
    let mut second = Connection::new(gateway.address);
    second.send(HANDSHAKE);
    assert_eq!(second.answer(true).status, 429);
}

#[test]
fn a_refused_websocket_is_closed_with_a_reason_where_that_is_set() {
    let gateway = in_front_of(nowhere(), &["--quota", "1/h", "--ws-close", "true"]);
    assert_eq!(get(gateway.address, "/").status, 502);
    let mut connection = Connection::new(gateway.address);
    connection.send(HANDSHAKE);
    let (status, headers) = connection.head();
    assert_eq!(status, 101);
    let accept = ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert!(
        headers
            .iter()
            .any(|(name, value)| (&**name, &**value) == accept)
    );
    let mut frame = [0; 4];
    connection.stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[0], 0x88, "a close frame");
    assert_eq!(u16::from_be_bytes([frame[2], frame[3]]), 1008);
    // What is no proper handshake is refused plainly.
    let plain = request(
        gateway.address,
        "GET",
        "/",
        "Connection: upgrade\r\nUpgrade: websocket\r\n",
    );
    assert_eq!(plain.status, 429);
}

#[test]
fn s107_a_websocket_that_finds_no_slot_is_closed_with_1013() {
    let order = ["--identity-order", "global", "--ws-close", "true"];
    let gateway = in_front_of(echoing(), &order);
    let rule = r#"{"id": "slots", "identity_type": "global",
        "config": {"algorithm": "concurrency", "slots": 1}}"#;
    let mut admin = Connection::new(gateway.address);
    admin.send(format!(
        "POST /rules HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{rule}",
        rule.len()
    ));
    assert_eq!(admin.answer(true).status, 201);
    let mut first = Connection::new(gateway.address);
    first.send(HANDSHAKE);
    assert_eq!(first.head().0, 101);
    let refused = || {
        let mut second = Connection::new(gateway.address);
        second.send(HANDSHAKE);
        assert_eq!(second.head().0, 101);
        let mut frame = [0; 4];
        second.stream.read_exact(&mut frame).unwrap();
        (frame[0], u16::from_be_bytes([frame[2], frame[3]]))
    };
    // The slot is held while the first is connected.
    first.send(b"\x81\x02hi");
    assert_eq!(refused(), (0x88, 1013));
    let mut back = [0; 4];
    first.stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"\x81\x02hi");
    drop(first);
    eventually("the slot is free", || {
        let mut third = Connection::new(gateway.address);
        third.send(HANDSHAKE);
        assert_eq!(third.head().0, 101);
        third.send(b"\x81\x02yo");
        let mut back = [0; 4];
        third.stream.read_exact(&mut back).unwrap();
        &back == b"\x81\x02yo"
    });
}

#[test]
fn events_arrive_one_by_one() {
    let (next, wait) = channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    let upstream = serving(move |mut stream| {
        read_head(&mut stream);
        let out = stream.get_mut();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
            Transfer-Encoding: chunked\r\n\r\n";
        out.write_all(head.as_bytes()).unwrap();
        for _ in 0..3 {
            out.write_all(b"9\r\ndata: x\n\n\r\n").unwrap();
            if wait.lock().unwrap().recv_timeout(LONG).is_err() {
                return;
            }
        }
    });
    let gateway = in_front_of(upstream, &[]);
    let mut connection = Connection::new(gateway.address);
    connection.send("GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(connection.head().0, 200);
    for _ in 0..3 {
        assert_eq!(read_chunk(&mut connection.stream).unwrap(), b"data: x\n\n");
        next.send(()).unwrap();
    }
}

#[test]
fn an_answer_that_pauses_too_long_is_cut() {
    let upstream = serving(|mut stream| {
        read_head(&mut stream);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
        stream.get_mut().write_all(head).unwrap();
        let _ = stream.read(&mut [0; 1]);
    });
    for setting in ["--idle-timeout", "--request-timeout"] {
        let gateway = in_front_of(upstream, &[setting, "300ms"]);
        let start = Instant::now();
        let mut connection = Connection::new(gateway.address);
        connection.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(connection.head().0, 200);
        let mut rest = Vec::new();
        let _ = connection.stream.read_to_end(&mut rest);
        assert_eq!(rest, b"half", "{setting}");
        assert!(start.elapsed() < LONG / 2);
    }
}

#[test]
fn b111_preflights_are_answered_and_cost_nothing_and_refusals_can_be_read() {
    let arguments = ["--quota", "2/60s", "--cors-origins", "https://shop.example"];
    let gateway = Gateway::start(&arguments);
    let origin = "Origin: https://shop.example\r\n";
    let preflight = format!("{origin}Access-Control-Request-Method: PUT\r\n");
    for _ in 0..5 {
        let answer = request(gateway.address, "OPTIONS", "/", &preflight);
        assert_eq!(answer.status, 204);
        let allowed = answer.header("access-control-allow-origin");
        assert_eq!(allowed, Some("https://shop.example"));
        assert!(
            answer
                .header("access-control-allow-methods")
                .unwrap()
                .contains("PUT")
        );
        assert_eq!(answer.header("ratelimit"), None);
    }
    let statuses = [200, 200, 429];
    for status in statuses {
        let answer = request(gateway.address, "GET", "/", origin);
        assert_eq!(answer.status, status);
        let allowed = answer.header("access-control-allow-origin");
        assert_eq!(allowed, Some("https://shop.example"));
        let exposed = answer.header("access-control-expose-headers").unwrap();
        assert!(exposed.contains("retry-after") && exposed.contains("ratelimit"));
    }
    for plain in ["", origin, "Access-Control-Request-Method: PUT\r\n"] {
        assert_eq!(request(gateway.address, "OPTIONS", "/", plain).status, 429);
    }
    let mut connection = Connection::new(gateway.address);
    connection.send(format!(
        "HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{origin}\r\n"
    ));
    let head = connection.answer(false);
    assert_eq!(head.status, 429);
    assert_eq!(head.header("retry-after"), Some("30"));
    assert!(head.header("ratelimit").is_some());
    assert!(head.header("access-control-allow-origin").is_some());
    connection.closed();
    let other = request(
        gateway.address,
        "GET",
        "/",
        "Origin: https://evil.example\r\n",
    );
    assert_eq!(other.header("access-control-allow-origin"), None);
    assert_eq!(other.header("vary"), Some("origin"));
}

#[test]
fn requests_go_where_their_host_and_path_say() {
    let named = |name: &'static str| {
        serving(move |mut stream| {
            while read_head(&mut stream).is_some() {
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}",
                    name.len()
                );
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        })
    };
    let (all, orders, shop) = (named("all"), named("orders"), named("shop"));
    let routes = format!(
        r#"[{{"url": "http://{orders}", "path": "/orders/*"}}, {{"url": "http://{shop}", "host": "shop.example"}}]"#
    );
    let upstream = format!("http://{all}");
    let gateway = Gateway::start_with(
        &["--upstream", &upstream],
        &[("TOLLGATE_UPSTREAMS", &routes)],
    );
    let to = |host: &str, path: &str| {
        let mut connection = Connection::new(gateway.address);
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        connection.answer(true).text().to_owned()
    };
    assert_eq!(to("h", "/"), "all");
    assert_eq!(to("h", "/orders"), "orders");
    assert_eq!(to("h", "/orders/7?x"), "orders");
    assert_eq!(to("h", "/ordersx"), "all");
    assert_eq!(to("Shop.Example:80", "/"), "shop");

    let gateway = Gateway::start_with(&[], &[("TOLLGATE_UPSTREAMS", &routes)]);
    assert_eq!(
        get(gateway.address, "/").status,
        404,
        "there is none for it"
    );
}

#[test]
fn b92_b137_behind_a_trusted_proxy_the_client_is_limited_and_told_of() {
    let (upstream, requests) = answering(OK);
    let arguments = ["--trusted-proxies", "127.0.0.0/8", "--quota", "1/h"];
    let gateway = in_front_of(upstream, &arguments);
    let of = |client: &str| {
        let headers = format!(
            "X-Forwarded-For: 6.6.6.6, {client}\r\nX-Forwarded-Proto: https\r\n\
             Forwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n"
        );
        request(gateway.address, "GET", "/", &headers).status
    };
    assert_eq!([of("203.0.113.9"), of("203.0.113.9")], [200, 429]);
    assert_eq!(of("203.0.113.10"), 200);
    let got = requests.recv_timeout(LONG).unwrap();
    assert_eq!(got.header("x-forwarded-for"), ["203.0.113.9, 127.0.0.1"]);
    assert_eq!(got.header("x-forwarded-proto"), ["https"]);
    assert_eq!(
        got.header("forwarded"),
        ["for=203.0.113.9, for=127.0.0.1;host=\"gate.example\";proto=https"]
    );
    assert!(got.header("x-real-ip").is_empty());
}

#[test]
fn a_request_that_may_be_repeated_is_sent_again_where_that_is_set() {
    let broken = |answers_from: usize| {
        let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        serving(move |mut stream| {
            read_head(&mut stream);
            let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if number >= answers_from {
                stream.get_mut().write_all(OK.as_bytes()).unwrap();
            }
        })
    };
    let gateway = in_front_of(broken(2), &["--retries", "2"]);
    assert_eq!(get(gateway.address, "/").status, 200);
    let gateway = in_front_of(broken(2), &["--retries", "2"]);
    let post = request(gateway.address, "POST", "/", "Content-Length: 0\r\n");
    assert_eq!(post.status, 502, "it may have been done already");
    assert_eq!(get(in_front_of(broken(1), &[]).address, "/").status, 502);
}

#[test]
fn http2_is_spoken_by_prior_knowledge() {
    let gateway = in_front_of(answering(OK).0, &[]);
    let mut connection = Connection::new(gateway.address);
    // The preface and empty settings; the server's own settings come first.
    connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00");
    let mut frame = [0; 9];
    connection.stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "settings");
    // Its end says goodbye to who is connected.
    gateway.signal("INT");
    let mut seen = Vec::new();
    while !seen.windows(2).any(|pair| pair == [0x07, 0x00]) {
        let mut byte = [0; 1];
        connection
            .stream
            .read_exact(&mut byte)
            .expect("GOAWAY before the end");
        seen.push(byte[0]);
    }
}

#[test]
fn what_begins_like_http2_and_is_not_is_still_a_request() {
    let gateway = Gateway::start(&[]);
    for method in ["PRI", "PRIX", "P"] {
        let mut connection = Connection::new(gateway.address);
        connection.send(&method[..1]);
        connection.send(format!("{} /x HTTP/1.1\r\nHost: h\r\n\r\n", &method[1..]));
        assert_eq!(connection.answer(true).status, 200, "{method}");
    }
    eventually("all is logged", || gateway.log().matches("/x").count() == 3);
}
