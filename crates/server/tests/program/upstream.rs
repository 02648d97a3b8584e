//! Upstreams, as badly behaved as a test wants them.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::client::{read_body, read_head};
use crate::process::LONG;

/// A request as an upstream got it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// All values of a header.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let all = self.headers.iter().filter(|(it, _)| it == name);
        all.map(|(_, value)| value.as_str()).collect()
    }
}

/// An upstream on a free port; `serve` gets each connection, in a thread of its own.
pub(crate) fn serving(
    serve: impl Fn(BufReader<TcpStream>) + Send + Sync + Clone + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || serve(BufReader::new(stream)));
        }
    });
    address
}

/// An upstream that answers each whole request with these bytes, and tells of it.
pub(crate) fn answering(answer: &'static str) -> (SocketAddr, Receiver<Request>) {
    let (requests, received) = channel();
    let address = serving(move |mut stream| {
        while let Some((line, headers)) = read_head(&mut stream) {
            let body = read_body(&mut stream, &headers);
            let _ = requests.send(Request {
                line,
                headers,
                body,
            });
            if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
    });
    (address, received)
}

/// A port on which nobody listens.
pub(crate) fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
