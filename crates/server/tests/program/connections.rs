//! Connections to the upstream: when they are used again, and when they end.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::client::{Connection, read_body, read_head};
use crate::process::{Gateway, LONG};
use crate::upstream::{OK, serving};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn in_front_of(upstream: SocketAddr) -> Gateway {
    let upstream = format!("http://{upstream}");
    let quota = "10000/60s";
    Gateway::start(&["--upstream", &upstream, "--workers", "1", "--quota", quota])
}

#[test]
fn as_many_as_were_in_use_at_once_are_used_again() {
    const MANY: usize = 300;
    let (told, opened) = channel();
    let (arrived, asked) = channel();
    let all = Arc::new(Barrier::new(MANY));
    let upstream = serving(move |mut stream| {
        told.send(()).unwrap();
        while read_head(&mut stream).is_some() {
            arrived.send(()).unwrap();
            // Nobody is answered before all have asked.
            all.wait();
            stream.get_mut().write_all(OK.as_bytes()).unwrap();
        }
    });
    let gateway = in_front_of(upstream);
    let mut clients: Vec<_> = (0..MANY)
        .map(|_| Connection::new(gateway.address))
        .collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.send(GET);
            asked.recv_timeout(LONG).unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.answer(true).text(), "ok");
        }
    }
    assert_eq!(opened.try_iter().count(), MANY);
}

#[test]
fn one_that_the_upstream_closes_while_it_is_idle_is_closed_here_too() {
    let (told, ended) = channel();
    let upstream = serving(move |mut stream| {
        read_head(&mut stream);
        stream.get_mut().write_all(OK.as_bytes()).unwrap();
        stream.get_mut().shutdown(Shutdown::Write).unwrap();
        // Until the other side closes, or nothing comes for long.
        told.send(stream.read(&mut [0; 1]).map_err(|error| error.kind()))
            .unwrap();
    });
    let gateway = in_front_of(upstream);
    let mut client = Connection::new(gateway.address);
    for _ in 0..3 {
        client.send(GET);
        assert_eq!(client.answer(true).text(), "ok");
        assert_eq!(ended.recv_timeout(LONG), Ok(Ok(0)));
    }
}

#[test]
fn an_answer_without_a_length_ends_with_its_connection() {
    let upstream = serving(|mut stream| {
        read_head(&mut stream);
        let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it";
        stream.get_mut().write_all(answer).unwrap();
    });
    let gateway = in_front_of(upstream);
    let mut client = Connection::new(gateway.address);
    for _ in 0..3 {
        client.send(GET);
        let answer = client.answer(true);
        assert_eq!((answer.status, answer.text()), (200, "all of it"));
    }
}

#[test]
fn answers_without_a_body_leave_the_connection_in_step() {
    let (told, opened) = channel();
    let upstream = serving(move |mut stream| {
        told.send(()).unwrap();
        while let Some((line, _)) = read_head(&mut stream) {
            let answer = match line.split(' ').nth(1) {
                Some("/none") => "HTTP/1.1 204 No Content\r\n\r\n",
                Some("/same") => "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
                Some("/early") => {
                    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                     HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                }
                Some("/chunks") => {
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
                }
                _ if line.starts_with("HEAD") => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
                _ => OK,
            };
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    let gateway = in_front_of(upstream);
    let mut client = Connection::new(gateway.address);
    for (line, status, body) in [
        ("GET /none", 204, ""),
        ("GET /same", 304, ""),
        ("HEAD /", 200, ""),
        ("GET /chunks", 200, "ok"),
        ("GET /early", 200, "ok"),
        ("GET /", 200, "ok"),
    ] {
        client.send(format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let answer = client.answer(!body.is_empty());
        assert_eq!((answer.status, answer.text()), (status, body), "{line}");
    }
    assert_eq!(opened.try_iter().count(), 1);
}

/// The upstream answers at length before it has read anything, and the client reads nothing before
/// all is sent.
#[test]
fn a_request_is_sent_on_while_nobody_takes_the_answer() {
    const LENGTH: usize = 32 << 20;
    let (told, received) = channel();
    let upstream = serving(move |mut stream| {
        let (_, headers) = read_head(&mut stream).unwrap();
        let mut out = stream.get_ref().try_clone().unwrap();
        let answering = thread::spawn(move || {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
            out.write_all(head.as_bytes()).unwrap();
            out.write_all(&vec![b'y'; LENGTH]).unwrap();
        });
        told.send(read_body(&mut stream, &headers).len()).unwrap();
        answering.join().unwrap();
    });
    let gateway = in_front_of(upstream);
    let mut client = Connection::new(gateway.address);
    client
        .stream
        .get_ref()
        .set_write_timeout(Some(LONG))
        .unwrap();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {LENGTH}\r\n\r\n"
    ));
    client.send(vec![b'x'; LENGTH]);
    assert_eq!(received.recv_timeout(LONG), Ok(LENGTH));
    let answer = client.answer(true);
    assert_eq!((answer.status, answer.body.len()), (200, LENGTH));
}

#[test]
fn an_answer_that_is_whole_before_the_request_is_passes() {
    let upstream = serving(|mut stream| {
        let (_, headers) = read_head(&mut stream).unwrap();
        stream.get_mut().write_all(OK.as_bytes()).unwrap();
        read_body(&mut stream, &headers);
    });
    let gateway = in_front_of(upstream);
    let mut client = Connection::new(gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nhalf");
    assert_eq!(client.answer(true).text(), "ok");
    client.send("rest");
    client.send(GET);
    assert_eq!(client.answer(true).text(), "ok");
}

#[test]
fn one_that_has_answered_is_not_held_by_a_client_that_never_ends_its_request() {
    let (told, ended) = channel();
    let upstream = serving(move |mut stream| {
        read_head(&mut stream);
        stream.get_mut().write_all(OK.as_bytes()).unwrap();
        let mut rest = Vec::new();
        // Until the other side closes, or nothing comes for long.
        let read = stream.read_to_end(&mut rest);
        told.send(read.map_err(|error| error.kind())).unwrap();
    });
    let upstream = format!("http://{upstream}");
    let times = ["--idle-timeout", "100ms", "--header-timeout", "10m"];
    let gateway = Gateway::start(&[&["--upstream", &upstream], &times[..]].concat());
    let mut client = Connection::new(gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(client.answer(true).text(), "ok");
    let ended = ended.recv_timeout(LONG).unwrap();
    assert_eq!(
        ended,
        Ok(0),
        "it is closed, and no chunk says that it is whole"
    );
}
