//! A client that sends bytes as they are written here, and reads whole answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::process::LONG;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of a header, which must not be there twice.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(it, _)| it == name);
        let value = values.next();
        assert!(values.next().is_none(), "{name} twice: {self:?}");
        value.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// The head of an answer. (Interim answers are passed over.)
    pub(crate) fn head(&mut self) -> (u16, Vec<(String, String)>) {
        loop {
            let (line, headers) = read_head(&mut self.stream).expect("the head of an answer");
            let status = line.split(' ').nth(1).unwrap().parse().unwrap();
            if status != 100 {
                return (status, headers);
            }
        }
    }

    /// A whole answer.
    pub(crate) fn answer(&mut self, has_body: bool) -> Answer {
        let (status, headers) = self.head();
        let body = if has_body {
            read_body(&mut self.stream, &headers)
        } else {
            Vec::new()
        };
        Answer {
            status,
            headers,
            body,
        }
    }

    /// Waits until the other side closes; anything it still sends is an error.
    pub(crate) fn closed(mut self) {
        let mut rest = Vec::new();
        // A reset is as good as an end.
        let _ = self.stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
}

/// Sends one request; the answer to it.
pub(crate) fn request(address: SocketAddr, method: &str, target: &str, headers: &str) -> Answer {
    let mut connection = Connection::new(address);
    connection.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: gate.example\r\nConnection: close\r\n{headers}\r\n"
    ));
    connection.answer(method != "HEAD")
}

pub(crate) fn get(address: SocketAddr, target: &str) -> Answer {
    request(address, "GET", target, "")
}

/// The first line and the headers, names in lower case. `None` at the end of the connection.
pub(crate) fn read_head(stream: &mut impl BufRead) -> Option<(String, Vec<(String, String)>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        if stream.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let headers = lines[1..].iter().map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    });
    Some((lines[0].clone(), headers.collect()))
}

/// The body that goes with these headers.
pub(crate) fn read_body(stream: &mut impl BufRead, headers: &[(String, String)]) -> Vec<u8> {
    let value = |name: &str| {
        headers
            .iter()
            .find(|(it, _)| it == name)
            .map(|(_, value)| value)
    };
    let mut body = Vec::new();
    if value("transfer-encoding").is_some() {
        while let Some(chunk) = read_chunk(stream) {
            body.extend(chunk);
        }
    } else if let Some(length) = value("content-length") {
        body.resize(length.parse().unwrap(), 0);
        stream.read_exact(&mut body).unwrap();
    }
    body
}

/// One chunk; `None` for the last one, and where the connection breaks off.
pub(crate) fn read_chunk(stream: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut size = String::new();
    stream.read_line(&mut size).ok()?;
    let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).ok()?];
    stream.read_exact(&mut chunk).ok()?;
    stream.read_line(&mut String::new()).ok()?;
    (!chunk.is_empty()).then_some(chunk)
}
