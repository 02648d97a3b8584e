//! Bodies of requests: bounded, counted as they come, and never held.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll};
use std::thread;

use hyper::Request;
use hyper::body::{Body, Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::client::{Connection, read_body, read_head};
use crate::process::LONG;
use crate::proxy::{in_front_of, is_problem};
use crate::upstream::{OK, serving};

const MIB: usize = 1 << 20;

/// An upstream that tells the length of each body that has come whole. (One that breaks off has no
/// last chunk.)
fn measuring() -> (SocketAddr, Receiver<usize>) {
    let (complete, lengths) = channel();
    let address = serving(move |mut stream| {
        while let Some((_, headers)) = read_head(&mut stream) {
            let chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
            let mut length = 0;
            if chunked {
                let mut last = false;
                while !last {
                    let mut size = String::new();
                    if stream.read_line(&mut size).unwrap_or(0) == 0 {
                        return;
                    }
                    let size = usize::from_str_radix(size.trim(), 16).unwrap();
                    let mut chunk = vec![0; size + 2];
                    if stream.read_exact(&mut chunk).is_err() {
                        return;
                    }
                    length += size;
                    last = size == 0;
                }
            } else {
                length = read_body(&mut stream, &headers).len();
            }
            complete.send(length).unwrap();
            stream.get_mut().write_all(OK.as_bytes()).unwrap();
        }
    });
    (address, lengths)
}

/// Sends a body of so much in chunks, as far as the other side takes it.
fn send_chunks(mut writer: std::net::TcpStream, length: usize) {
    let chunk = [&b"10000\r\n"[..], &[b'x'; 0x1_0000], b"\r\n"].concat();
    for _ in 0..length / 0x1_0000 {
        if writer.write_all(&chunk).is_err() {
            return;
        }
    }
    let _ = writer.write_all(b"0\r\n\r\n");
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn b139_a_body_above_the_bound_never_reaches_the_upstream_whole() {
    let (upstream, lengths) = measuring();
    let gateway = in_front_of(upstream, &["--max-body", "1MiB"]);
    let sized = |length: &str, sent: usize| {
        let mut connection = Connection::new(gateway.address);
        connection.send(format!(
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n"
        ));
        connection.send(vec![b'x'; sent]);
        connection.head().0
    };
    assert_eq!(sized("1048576", MIB), 200);
    assert_eq!(sized("2097152", 0), 413, "before the body is read");
    assert_eq!(sized("99999999999999999999", 0), 400);
    assert_eq!(sized("10", 10), 200);

    for (length, status) in [(MIB, 200), (2 * MIB, 413)] {
        let mut connection = Connection::new(gateway.address);
        connection.send(CHUNKED);
        let writer = connection.stream.get_ref().try_clone().unwrap();
        thread::spawn(move || send_chunks(writer, length));
        let answer = connection.answer(true);
        assert_eq!(answer.status, status);
        if status == 413 {
            is_problem(&answer, 413);
        }
    }
    assert_eq!(lengths.try_iter().collect::<Vec<_>>(), [MIB, 10, MIB]);

    // Bytes past the declared length are no part of the request.
    let mut connection = Connection::new(gateway.address);
    connection.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n01234567890123456789");
    assert_eq!(connection.answer(true).status, 200);
    assert_eq!(lengths.recv_timeout(LONG).unwrap(), 10);
}

/// A body that does not say how long it is.
struct Unsized(Option<Bytes>);

impl Body for Unsized {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[tokio::test]
async fn b139_over_http2_a_body_without_a_length_is_counted_too() {
    let (upstream, lengths) = measuring();
    let gateway = in_front_of(upstream, &["--max-body", "1MiB"]);
    for (length, status) in [(MIB, 200), (2 * MIB, 413), (MIB + 1, 413)] {
        let stream = tokio::net::TcpStream::connect(gateway.address);
        let stream = TokioIo::new(stream.await.unwrap());
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut client, connection) = builder.handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::post(format!("http://{}/", gateway.address))
            .body(Unsized(Some(vec![b'x'; length].into())));
        let answer = client.send_request(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), status, "{length}");
        connection.abort();
    }
    assert_eq!(lengths.try_iter().collect::<Vec<_>>(), [MIB]);
}

#[cfg(target_os = "linux")]
#[test]
fn b139_bodies_are_passed_on_and_never_held() {
    const CLIENTS: usize = 8;
    let (upstream, lengths) = measuring();
    let gateway = in_front_of(upstream, &["--max-body", "16MiB"]);
    let upload = |length: usize| {
        let clients = (0..CLIENTS).map(|_| {
            let mut connection = Connection::new(gateway.address);
            thread::spawn(move || {
                connection.send(CHUNKED);
                send_chunks(connection.stream.get_ref().try_clone().unwrap(), length);
                connection.answer(true).status
            })
        });
        for client in clients.collect::<Vec<_>>() {
            assert_eq!(client.join().unwrap(), 200);
        }
    };
    upload(MIB);
    let before = gateway.most_resident();
    upload(16 * MIB);
    assert_eq!(lengths.try_iter().sum::<usize>(), CLIENTS * 17 * MIB);
    // 128 MiB passed through.
    let grown = gateway.most_resident() - before;
    assert!(grown < CLIENTS as u64 * 256, "{grown} KiB");
}

#[test]
fn b139_what_operators_send_is_counted_too() {
    let gateway = crate::process::Gateway::start_with(
        &["--identity-order", "api_key,ip_address"],
        &[("TOLLGATE_IDENTITY_STORED_KEYS", "true")],
    );
    for path in ["/v1/check", "/v1/keys", "/rules"] {
        let mut connection = Connection::new(gateway.address);
        connection.send(CHUNKED.replace("POST /", &format!("POST {path}")));
        let writer = connection.stream.get_ref().try_clone().unwrap();
        thread::spawn(move || send_chunks(writer, 2 * MIB));
        let answer = connection.answer(true);
        assert_eq!(answer.status, 413, "{path}");
        assert_eq!(answer.json()["status"], 413);
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[test]
fn over_http2_a_body_that_is_reset_does_not_look_whole() {
    let (told, received) = channel();
    let upstream = serving(move |mut stream| {
        read_head(&mut stream);
        let mut first = [0; 8];
        stream.read_exact(&mut first).unwrap();
        told.send(first.to_vec()).unwrap();
        let mut rest = Vec::new();
        // A reset is as good as an end.
        let _ = stream.read_to_end(&mut rest);
        told.send(rest).unwrap();
    });
    let gateway = in_front_of(upstream, &[]);
    // No error, and CANCEL.
    for reason in [0, 8] {
        let mut client = Connection::new(gateway.address);
        client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.send(frame(4, 0, 0, &[]));
        // POST, http, / and the authority h.
        client.send(frame(1, 4, 1, b"\x83\x86\x84\x41\x01h"));
        client.send(frame(0, 0, 1, b"abc"));
        assert_eq!(received.recv_timeout(LONG).unwrap(), b"3\r\nabc\r\n");
        client.send(frame(3, 0, 1, &[0, 0, 0, reason]));
        assert_eq!(received.recv_timeout(LONG).unwrap(), b"", "{reason}");
    }
}
