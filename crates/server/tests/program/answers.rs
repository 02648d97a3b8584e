//! Answers of upstreams that a gateway must not guess about, and those that are odd but plain.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use crate::client::{Connection, get, read_body, read_chunk, read_head, request};
use crate::process::{Gateway, LONG};
use crate::upstream::{OK, answering, serving};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn in_front_of(upstream: SocketAddr, arguments: &[&str]) -> Gateway {
    let upstream = format!("http://{upstream}");
    Gateway::start(&[&["--upstream", &upstream, "--workers", "1"], arguments].concat())
}

/// An upstream that answers each request with what its target names, and tells how each of its
/// connections goes on: "opened", and "ended" when the gateway closes it.
fn named(answers: &'static [(&'static str, String)]) -> (SocketAddr, Receiver<&'static str>) {
    let (told, events) = channel();
    let address = serving(move |mut stream| {
        told.send("opened").unwrap();
        while let Some((line, _)) = read_head(&mut stream) {
            let target = line.split(' ').nth(1).unwrap();
            let answer = answers.iter().find(|(name, _)| *name == target);
            let answer = answer.map_or(OK, |(_, answer)| answer);
            if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
        let _ = told.send("ended");
    });
    (address, events)
}

fn leaked(
    answers: impl IntoIterator<Item = (&'static str, String)>,
) -> &'static [(&'static str, String)] {
    Box::leak(answers.into_iter().collect())
}

#[test]
fn an_answer_that_two_would_read_differently_is_a_502_and_the_end_of_its_connection() {
    let ok = |fields: &str, body: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}");
    let answers = leaked([
        (
            "/both",
            ok(
                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                "0\r\n\r\n",
            ),
        ),
        (
            "/lengths",
            ok("Content-Length: 2\r\nContent-Length: 3\r\n", "abc"),
        ),
        ("/list", ok("Content-Length: 2, 3\r\n", "abc")),
        ("/sign", ok("Content-Length: +2\r\n", "ab")),
        ("/hex", ok("Content-Length: 0x2\r\n", "ab")),
        (
            "/large",
            ok("Content-Length: 99999999999999999999\r\n", "ab"),
        ),
        (
            "/coding",
            ok("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        ),
        (
            "/twice",
            ok(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                "0\r\n\r\n",
            ),
        ),
        (
            "/old",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
        ),
        ("/fold", ok("X-A: a\r\n b\r\nContent-Length: 0\r\n", "")),
        ("/cr", ok("X-A: a\rb\r\nContent-Length: 0\r\n", "")),
        ("/nul", ok("X-A: a\0b\r\nContent-Length: 0\r\n", "")),
        ("/space", ok("X-A : a\r\nContent-Length: 0\r\n", "")),
        ("/version", "HTTP/3.0 200 OK\r\n\r\n".into()),
        ("/status", "HTTP/1.1 2000 OK\r\n\r\n".into()),
        ("/many", ok(&"X-A: a\r\n".repeat(101), "")),
        ("/long", ok(&format!("X-A: {}\r\n", "a".repeat(70_000)), "")),
        (
            "/interim",
            "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17) + OK,
        ),
        (
            "/switch",
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n".into(),
        ),
    ]);
    let (upstream, events) = named(answers);
    let gateway = in_front_of(upstream, &[]);
    for (target, _) in answers {
        let mut client = Connection::new(gateway.address);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let answer = client.answer(true);
        assert_eq!(answer.status, 502, "{target}: {answer:?}");
        assert_eq!(answer.json()["status"], 502);
        assert_eq!(answer.header("x-a"), None);
        assert_eq!(events.recv_timeout(LONG), Ok("opened"), "{target}");
        assert_eq!(events.recv_timeout(LONG), Ok("ended"), "{target}");
        // The client's connection is in step.
        client.send(GET);
        assert_eq!(client.answer(true).text(), "ok");
        assert_eq!(events.recv_timeout(LONG), Ok("opened"));
        // So that the next is alone again.
        client.send("GET /both HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.answer(true).status, 502);
        assert_eq!(events.recv_timeout(LONG), Ok("ended"));
    }
}

#[test]
fn a_body_that_breaks_off_does_not_look_whole() {
    let chunked =
        |body: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    let answers = leaked([
        ("/size", chunked("2\r\nok\r\nx\r\n")),
        ("/sign", chunked("2\r\nok\r\n-1\r\n")),
        ("/huge", chunked("2\r\nok\r\n10000000000000000\r\n")),
        ("/behind", chunked("2\r\nok3\r\n")),
        ("/lf", chunked("2\r\nok\n0\r\n\r\n")),
        ("/trailer", chunked("2\r\nok\r\n0\r\na b: c\r\n\r\n")),
        (
            "/endless",
            chunked(&format!("2\r\nok\r\n0\r\na: {}", "b".repeat(20_000))),
        ),
        (
            "/extended",
            chunked(&format!("2\r\nok\r\n1;{}", "b".repeat(20_000))),
        ),
    ]);
    let (upstream, events) = named(answers);
    let gateway = in_front_of(upstream, &[]);
    for (target, _) in answers {
        let mut client = Connection::new(gateway.address);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let mut got = Vec::new();
        // A reset is as good as an end.
        let _ = client.stream.read_to_end(&mut got);
        let got = String::from_utf8(got).unwrap();
        // What came before the fault is sent, the head at least.
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{target}: {got}");
        assert!(got.ends_with("2\r\nok\r\n"), "{target}: {got}");
        assert_eq!(events.recv_timeout(LONG), Ok("opened"), "{target}");
        assert_eq!(events.recv_timeout(LONG), Ok("ended"), "{target}");
    }
    let short = serving(|mut stream| {
        read_head(&mut stream);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
        stream.get_mut().write_all(answer).unwrap();
        // The end may come in the same turn.
    });
    let gateway = in_front_of(short, &[]);
    let mut client = Connection::new(gateway.address);
    client.send(GET);
    assert_eq!(client.head().0, 200);
    let mut half = [0; 4];
    client.stream.read_exact(&mut half).unwrap();
    assert_eq!(&half, b"half");
    client.closed();
}

#[test]
fn what_comes_behind_an_answer_is_no_answer_to_the_next_request() {
    let behind = format!("{OK}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    let answers = leaked([
        ("/length", behind),
        (
            "/chunks",
            format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{OK}"
            ),
        ),
        ("/none", format!("HTTP/1.1 204 No Content\r\n\r\n{OK}")),
        (
            "/same",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nok".into(),
        ),
    ]);
    let (upstream, events) = named(answers);
    let gateway = in_front_of(upstream, &[]);
    let mut client = Connection::new(gateway.address);
    for (target, status, body) in [
        ("/length", 200, "ok"),
        ("/chunks", 200, "ok"),
        ("/none", 204, ""),
        ("/same", 304, ""),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let answer = client.answer(!body.is_empty());
        assert_eq!((answer.status, answer.text()), (status, body), "{target}");
        assert_eq!(events.recv_timeout(LONG), Ok("opened"));
        assert_eq!(events.recv_timeout(LONG), Ok("ended"), "{target}");
    }
    client.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.answer(false).status, 200);
    assert_eq!(events.recv_timeout(LONG), Ok("opened"));
    assert_eq!(events.recv_timeout(LONG), Ok("ended"), "it sent a body");
}

/// What comes while nobody asks is seen before the connection is used again.
#[test]
fn what_comes_between_two_answers_is_no_answer_either() {
    let (told, opened) = channel();
    let (next, wait) = channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let upstream = serving(move |mut stream| {
        told.send(()).unwrap();
        while read_head(&mut stream).is_some() {
            stream.get_mut().write_all(OK.as_bytes()).unwrap();
            if wait.lock().unwrap().recv_timeout(LONG).is_ok() {
                let evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
                let _ = stream.get_mut().write_all(evil);
                // It is there, on loopback, once the other side has closed or says so.
                let _ = told.send(());
            }
        }
    });
    let gateway = in_front_of(upstream, &[]);
    let mut client = Connection::new(gateway.address);
    for _ in 0..3 {
        client.send(GET);
        assert_eq!(client.answer(true).text(), "ok");
        next.send(()).unwrap();
        opened.recv_timeout(LONG).unwrap();
        opened.recv_timeout(LONG).unwrap();
    }
}

#[test]
fn an_upstream_of_the_first_version_keeps_its_connection_if_it_says_so() {
    let answers = leaked([
        (
            "/kept",
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok".into(),
        ),
        (
            "/ends",
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok".into(),
        ),
        (
            "/close",
            "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nok".into(),
        ),
    ]);
    let (upstream, events) = named(answers);
    let gateway = in_front_of(upstream, &[]);
    let mut client = Connection::new(gateway.address);
    let mut ask = |target: &str| {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(client.answer(true).text(), "ok", "{target}");
    };
    for last in ["/ends", "/close"] {
        ask("/kept");
        ask("/kept");
        ask(last);
        assert_eq!(events.recv_timeout(LONG), Ok("opened"), "{last}");
        assert_eq!(events.recv_timeout(LONG), Ok("ended"), "{last}");
    }
}

#[test]
fn an_answer_passes_however_the_network_cuts_it() {
    let upstream = serving(|mut stream| {
        while read_head(&mut stream).is_some() {
            let answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 299 So What\r\nETag: \"a\"\r\n\
                Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n2\r\n, \r\n3\r\nyou\r\n0\r\n\r\n";
            for byte in answer {
                // Without delay, so that most come alone.
                stream.get_mut().write_all(&[*byte]).unwrap();
                std::thread::yield_now();
            }
        }
    });
    let gateway = in_front_of(upstream, &[]);
    let mut client = Connection::new(gateway.address);
    for _ in 0..20 {
        client.send(GET);
        let (line, headers) = read_head(&mut client.stream).unwrap();
        assert_eq!(line, "HTTP/1.1 299 So What", "its own reason");
        assert!(headers.contains(&("etag".into(), "\"a\"".into())));
        assert_eq!(read_body(&mut client.stream, &headers), b"hello, you");
    }
}

#[test]
fn fields_behind_a_body_pass_both_ways() {
    let (told, received) = channel();
    let upstream = serving(move |mut stream| {
        let (_, headers) = read_head(&mut stream).unwrap();
        let chunk = read_chunk(&mut stream).unwrap();
        let mut rest = [0; 64];
        let mut all = Vec::new();
        while !all.ends_with(b"\r\n\r\n") {
            let length = stream.read(&mut rest).unwrap();
            assert_ne!(length, 0);
            all.extend_from_slice(&rest[..length]);
        }
        told.send((headers, chunk, String::from_utf8(all).unwrap()))
            .unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
            2\r\nok\r\n0\r\nX-Sum: 2\r\n\r\n";
        stream.get_mut().write_all(answer).unwrap();
    });
    let gateway = in_front_of(upstream, &[]);
    let mut client = Connection::new(gateway.address);
    client.send(
        "POST / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nTrailer: X-Sum, X-Forwarded-For, Host\r\n\
         Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 4\r\n\
         X-Forwarded-For: 6.6.6.6\r\nHost: evil\r\nX-Else: 1\r\n\r\n",
    );
    let (headers, chunk, trailers) = received.recv_timeout(LONG).unwrap();
    assert!(headers.contains(&("transfer-encoding".into(), "chunked".into())));
    assert_eq!(chunk, b"body");
    assert_eq!(trailers, "0\r\nx-sum: 4\r\n\r\n");
    let (status, _) = client.head();
    assert_eq!(status, 200);
    let mut body = String::new();
    while !body.ends_with("\r\n\r\n") {
        std::io::BufRead::read_line(&mut client.stream, &mut body).unwrap();
    }
    assert_eq!(
        body.to_ascii_lowercase(),
        "2\r\nok\r\n0\r\nx-sum: 2\r\n\r\n"
    );
}

#[test]
fn a_body_goes_along_with_any_method() {
    let (upstream, requests) = answering(OK);
    let gateway = in_front_of(upstream, &[]);
    let mut client = Connection::new(gateway.address);
    let chunked = "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    for (method, framing, length, body) in [
        ("GET", chunked, None, &b"hi"[..]),
        ("GET", "Content-Length: 2\r\n\r\nhi", Some("2"), b"hi"),
        ("DELETE", chunked, None, b"hi"),
        ("POST", "Content-Length: 0\r\n\r\n", Some("0"), b""),
        ("POST", "\r\n", None, b""),
        (
            "POST",
            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            None,
            b"",
        ),
    ] {
        client.send(format!("{method} / HTTP/1.1\r\nHost: h\r\n{framing}"));
        assert_eq!(client.answer(true).text(), "ok", "{method} {framing}");
        let got = requests.recv_timeout(LONG).unwrap();
        assert_eq!(got.line, format!("{method} / HTTP/1.1"));
        assert_eq!(got.body, body, "{method} {framing}");
        let lengths: Vec<_> = length.into_iter().collect();
        assert_eq!(got.header("content-length"), lengths, "{method} {framing}");
    }
}

/// An upstream may say no before it has all of a request, and close.
#[test]
fn an_answer_to_a_request_that_the_upstream_does_not_take_passes() {
    let upstream = serving(|mut stream| {
        read_head(&mut stream);
        let answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
        stream.get_mut().write_all(answer).unwrap();
        stream.get_mut().shutdown(Shutdown::Write).unwrap();
        // It reads on for a moment, so that its answer is not lost by a reset.
        let _ = stream.read(&mut [0; 1 << 16]);
    });
    let gateway = in_front_of(upstream, &[]);
    for _ in 0..20 {
        let mut client = Connection::new(gateway.address);
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n");
        let mut writer = client.stream.get_ref().try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            let _ = writer.write_all(&vec![b'x'; 4_000_000]);
        });
        let answer = client.answer(true);
        assert_eq!((answer.status, answer.text()), (403, "no"));
        drop(client);
        sending.join().unwrap();
    }
    assert_eq!(get(gateway.address, "/").status, 403);
}

#[test]
fn what_a_websocket_sends_at_once_is_not_lost() {
    let upstream = serving(|mut stream| {
        read_head(&mut stream).unwrap();
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
            Upgrade: websocket\r\n\r\n\x81\x02hi";
        stream.get_mut().write_all(answer).unwrap();
        let mut frame = [0; 4];
        stream.read_exact(&mut frame).unwrap();
        stream.get_mut().write_all(&frame).unwrap();
    });
    let gateway = in_front_of(upstream, &[]);
    let mut client = Connection::new(gateway.address);
    client.send(
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert_eq!(client.head().0, 101);
    let mut frame = [0; 4];
    client.stream.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"\x81\x02hi");
    client.send(b"\x81\x02yo");
    client.stream.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"\x81\x02yo");
}

/// More than is read at once, whatever frames it.
#[test]
fn large_answers_pass_unchanged_in_every_framing() {
    const LENGTH: usize = 3_000_000;
    let body: Vec<u8> = (0..LENGTH as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let expected = body.clone();
    let upstream = serving(move |mut stream| {
        let (line, _) = read_head(&mut stream).unwrap();
        let out = stream.get_mut();
        let ok = "HTTP/1.1 200 OK\r\n";
        if line.contains("/length") {
            let head = format!("{ok}Content-Length: {LENGTH}\r\n\r\n");
            out.write_all(head.as_bytes()).unwrap();
            out.write_all(&body).unwrap();
        } else if line.contains("/close") {
            out.write_all(format!("{ok}\r\n").as_bytes()).unwrap();
            out.write_all(&body).unwrap();
        } else {
            let head = format!("{ok}Transfer-Encoding: chunked\r\n\r\n");
            out.write_all(head.as_bytes()).unwrap();
            for (number, chunk) in body.chunks(70_001).enumerate() {
                // Small and large ones.
                let (first, second) = chunk.split_at(number.min(chunk.len()));
                for part in [first, second].into_iter().filter(|it| !it.is_empty()) {
                    out.write_all(format!("{:x}\r\n", part.len()).as_bytes())
                        .unwrap();
                    out.write_all(part).unwrap();
                    out.write_all(b"\r\n").unwrap();
                }
            }
            out.write_all(b"0\r\n\r\n").unwrap();
        }
    });
    let gateway = in_front_of(upstream, &[]);
    for target in ["/length", "/close", "/chunks"] {
        let answer = request(gateway.address, "GET", target, "");
        assert!(answer.body == expected, "{target}: {}", answer.body.len());
    }
}
