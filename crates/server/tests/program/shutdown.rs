//! How the program ends, and what it does not wait for.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use crate::client::{Connection, get, read_head};
use crate::process::{Gateway, LONG, eventually};
use crate::upstream::{OK, serving};

/// A gateway before an upstream that answers when told to, with one request in flight.
struct InFlight {
    gateway: Gateway,
    client: Connection,
    answer: std::sync::mpsc::Sender<()>,
}

fn in_flight(arguments: &[&str]) -> InFlight {
    let (told, arrived) = channel();
    let (answer, wait) = channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let upstream = serving(move |mut stream| {
        read_head(&mut stream);
        told.send(()).unwrap();
        let _ = wait.lock().unwrap().recv_timeout(LONG);
        let _ = stream.get_mut().write_all(OK.as_bytes());
    });
    let upstream = format!("http://{upstream}");
    let mut all = vec!["--upstream", &*upstream];
    all.extend(arguments);
    let gateway = Gateway::start(&all);
    let mut client = Connection::new(gateway.address);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    arrived.recv_timeout(LONG).unwrap();
    InFlight {
        gateway,
        client,
        answer,
    }
}

#[test]
fn sigterm_lets_requests_in_flight_finish() {
    let InFlight {
        mut gateway,
        mut client,
        answer,
    } = in_flight(&["--drain-delay", "0s"]);
    let mut idle = Connection::new(gateway.address);
    idle.send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(idle.answer(true).status, 200);

    gateway.signal("TERM");
    eventually("it listens no more", || {
        TcpStream::connect(gateway.address).is_err()
    });
    idle.closed();
    assert!(gateway.runs(), "it waits for the request");
    answer.send(()).unwrap();
    assert_eq!(client.answer(true).text(), "ok");
    client.closed();
    assert_eq!(gateway.ended().code(), Some(0));
    assert!(gateway.printed().is_empty());
}

#[test]
fn while_draining_ready_is_503_and_requests_are_still_served() {
    let mut gateway = Gateway::start(&["--drain-delay", "20s"]);
    gateway.signal("TERM");
    eventually("/ready is 503", || {
        get(gateway.address, "/ready").status == 503
    });
    let ready = get(gateway.address, "/ready").json();
    assert_eq!(
        (&ready["status"], &ready["checks"]["ratelimit"]["healthy"]),
        (&"draining".into(), &true.into())
    );
    assert_eq!(get(gateway.address, "/health").status, 200);

    // Served, but told to go elsewhere next time.
    let mut connection = Connection::new(gateway.address);
    connection.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = connection.answer(true);
    assert_eq!(
        (answer.status, answer.header("connection")),
        (200, Some("close"))
    );

    gateway.signal("INT");
    assert_eq!(
        gateway.ended().code(),
        Some(0),
        "a second signal ends the wait"
    );
}

#[test]
fn a_request_that_does_not_finish_is_cut_at_the_deadline() {
    let arguments = ["--drain-delay", "0s", "--shutdown-timeout", "100ms"];
    let InFlight {
        mut gateway,
        client,
        answer: _answer,
    } = in_flight(&arguments);
    gateway.signal("TERM");
    assert_eq!(gateway.ended().code(), Some(0));
    eventually("it tells", || {
        gateway.log().contains("connections were cut")
    });
    client.closed();
}

#[test]
fn a_client_that_sends_its_head_slowly_or_nothing_is_dropped() {
    let gateway = Gateway::start(&["--header-timeout", "200ms"]);
    for beginning in ["", "GET / HTTP/1.1\r\nHost:"] {
        let mut connection = Connection::new(gateway.address);
        connection.send(beginning);
        // 408 or nothing, and then the end; the read has a deadline of its own.
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut connection.stream, &mut rest).unwrap();
    }
    // Idle between requests.
    let mut connection = Connection::new(gateway.address);
    connection.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(connection.answer(true).status, 200);
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut connection.stream, &mut rest).unwrap();
}

#[test]
fn connections_above_the_bound_wait_for_a_place() {
    let gateway = Gateway::start(&["--max-connections", "1"]);
    let mut first = Connection::new(gateway.address);
    first.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(first.answer(true).status, 200);
    let mut second = Connection::new(gateway.address);
    second.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    second
        .stream
        .get_ref()
        .set_read_timeout(Some(std::time::Duration::from_millis(200)))
        .unwrap();
    assert!(
        std::io::BufRead::fill_buf(&mut second.stream).is_err(),
        "it has to wait"
    );
    second
        .stream
        .get_ref()
        .set_read_timeout(Some(LONG))
        .unwrap();
    drop(first);
    assert_eq!(second.answer(true).status, 200);
}
