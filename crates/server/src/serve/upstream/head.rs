//! The head of an upstream's answer: read strictly, and without what belongs to the connection.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, StatusCode};
use httparse::{ParserConfig, Status};
use hyper::ext::ReasonPhrase;

use super::chunks::Chunks;
use super::framing::Framing;
use super::unreadable::Unreadable;
use crate::serve::forwarding::{Field, field, named, words};

/// The most bytes of a head, and of all that come before the one that counts.
pub(super) const MOST_BYTES: usize = 64 * 1024;

/// The most fields of a head.
const MOST_FIELDS: usize = 100;

/// So many fields are written to an answer before it goes to the client.
const OURS: usize = 10;

/// What the head of an answer says besides its fields.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    /// Where it is not the usual one of the status.
    pub(super) reason: Option<ReasonPhrase>,
    /// How the body is framed.
    pub(super) framing: Framing,
    /// Whether the connection may be used again.
    pub(super) keeps_alive: bool,
    /// Whether the connection becomes a WebSocket, if the status says that it becomes another.
    pub(super) is_websocket: bool,
}

/// What there is of a head.
#[derive(Debug)]
pub(super) enum Parsed {
    /// Not all of it.
    Part,
    /// One of so many bytes, after which another comes.
    Interim(usize),
    /// The one that counts, of so many bytes.
    Whole(Head, usize),
}

/// Reads a head of the answer to a request by this method. The fields of the message are added to
/// `headers`; those of the connection are not, nor is a length that is not the body's.
pub(super) fn parse(
    text: &Bytes,
    method: &Method,
    headers: &mut HeaderMap,
) -> Result<Parsed, Unreadable> {
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let parser = ParserConfig::default();
    let length = match parser.parse_response_with_uninit_headers(&mut head, text, &mut fields)? {
        Status::Complete(length) => length,
        Status::Partial => return Ok(Parsed::Part),
    };
    let status = head.code.map(StatusCode::from_u16);
    let Some(Ok(status)) = status else {
        return Err(Unreadable::Status);
    };
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Parsed::Interim(length));
    }
    headers.reserve(head.headers.len() + OURS);
    let mut hop = Hop::default();
    for it in head.headers.iter() {
        let name = HeaderName::from_bytes(it.name.as_bytes()).map_err(|_| Unreadable::Field)?;
        if name == CONTENT_LENGTH {
            hop.length(it.value)?;
        } else if field(name.as_str()) == Field::Hop {
            hop.note(&name, it.value)?;
        } else {
            let value = HeaderValue::from_maybe_shared(text.slice_ref(it.value));
            headers.append(name, value.map_err(|_| Unreadable::Field)?);
        }
    }
    let version_1_1 = head.version == Some(1);
    if hop.chunked && (hop.length.is_some() || !version_1_1) {
        return Err(Unreadable::TwoFramings);
    }
    if let Some(length) = hop.length {
        let value = match hop.length_text {
            Some(plain) => HeaderValue::from_maybe_shared(text.slice_ref(plain)),
            None => Ok(HeaderValue::from(length)),
        };
        headers.insert(CONTENT_LENGTH, value.map_err(|_| Unreadable::Field)?);
    }
    for name in &hop.named {
        headers.remove(name);
    }
    let framing = match status {
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => {
            Framing::Over
        }
        _ if *method == Method::HEAD => Framing::Over,
        _ if hop.chunked => Framing::Chunked(Chunks::default()),
        _ => hop.length.map_or(Framing::UntilClose, Framing::of_length),
    };
    let reason = head.reason.unwrap_or_default();
    let reason = (Some(reason) != status.canonical_reason())
        .then(|| ReasonPhrase::try_from(reason.as_bytes()))
        .transpose();
    // Who sends no content and says how much it is may send it all the same.
    let closes = hop.close || (status == StatusCode::NO_CONTENT && hop.frames());
    let parsed = Head {
        status,
        reason: reason.map_err(|_| Unreadable::Status)?,
        keeps_alive: !closes
            && (version_1_1 || hop.keep_alive)
            && status != StatusCode::SWITCHING_PROTOCOLS
            && !matches!(framing, Framing::UntilClose),
        framing,
        is_websocket: hop.upgrade && hop.websocket,
    };
    Ok(Parsed::Whole(parsed, length))
}

/// What a head says of its connection and of its framing.
#[derive(Default)]
struct Hop<'a> {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    websocket: bool,
    chunked: bool,
    length: Option<u64>,
    /// How it is written, if that is how anybody would.
    length_text: Option<&'a [u8]>,
    /// The fields that `Connection` names.
    named: Vec<HeaderName>,
}

impl<'a> Hop<'a> {
    /// Whether it says that there is a body.
    fn frames(&self) -> bool {
        self.chunked || self.length.is_some_and(|length| length > 0)
    }

    fn note(&mut self, name: &HeaderName, value: &[u8]) -> Result<(), Unreadable> {
        if *name == CONNECTION {
            for word in words(value) {
                self.close |= word.eq_ignore_ascii_case(b"close");
                self.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
                self.upgrade |= word.eq_ignore_ascii_case(b"upgrade");
            }
            self.named.extend(named(value));
        } else if *name == UPGRADE {
            self.websocket |= words(value).any(|word| word.eq_ignore_ascii_case(b"websocket"));
        } else if *name == TRANSFER_ENCODING {
            // Any other coding, or a second one, would be taken for the content.
            if self.chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(Unreadable::Coding);
            }
            self.chunked = true;
        }
        Ok(())
    }

    /// Several lengths are one only if they are the same (RFC 9112, 6.3).
    fn length(&mut self, value: &'a [u8]) -> Result<(), Unreadable> {
        let is_plain = value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
        self.length_text = Some(value).filter(|_| is_plain && !value.starts_with(b"0"));
        for word in words(value) {
            let digits = (1..=19).contains(&word.len()) && word.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(word).ok().filter(|_| digits);
            let length = length.and_then(|word| word.parse().ok());
            match (length, self.length) {
                (Some(length), None) => self.length = Some(length),
                (Some(length), Some(other)) if length == other => {}
                _ => return Err(Unreadable::Length),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, method: Method) -> Result<(Parsed, HeaderMap), Unreadable> {
        let mut headers = HeaderMap::new();
        let text = Bytes::copy_from_slice(text.as_bytes());
        parse(&text, &method, &mut headers).map(|parsed| (parsed, headers))
    }

    fn whole(text: &str) -> (Head, HeaderMap) {
        match read(text, Method::GET) {
            Ok((Parsed::Whole(head, length), headers)) => {
                assert_eq!(length, text.len());
                (head, headers)
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_head_is_read_once_all_of_it_is_there() {
        let text = "HTTP/1.1 404 Nobody Here\r\nETag: \"a\"\r\nconnection: X-Secret, close\r\n\
            X-Secret: 1\r\nKeep-Alive: 5\r\nContent-Length: 3\r\nset-cookie: a\r\nSet-Cookie: b\r\n\r\n";
        for end in 0..text.len() {
            let part = read(&text[..end], Method::GET);
            assert!(matches!(part, Ok((Parsed::Part, _))), "{end}: {part:?}");
        }
        let (head, headers) = whole(text);
        assert_eq!(head.status, 404);
        assert_eq!(head.reason.unwrap().as_bytes(), b"Nobody Here");
        assert!(matches!(head.framing, Framing::Length(3)) && !head.keeps_alive);
        let fields: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        assert_eq!(
            fields,
            [
                ("etag", &b"\"a\""[..]),
                ("content-length", b"3"),
                ("set-cookie", b"a"),
                ("set-cookie", b"b"),
            ]
        );
    }

    #[test]
    fn a_body_has_one_framing() {
        let framing = |line: &str, method| match read(&format!("{line}\r\n\r\n"), method) {
            Ok((Parsed::Whole(head, _), _)) => format!("{:?}", head.framing),
            other => panic!("{line}: {other:?}"),
        };
        let chunked = format!("{:?}", Framing::Chunked(Chunks::default()));
        for (line, expected) in [
            ("HTTP/1.1 200 OK", "UntilClose"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0", "Over"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 007", "Length(7)"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 7, 7", "Length(7)"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 7",
                "Length(7)",
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked ", &*chunked),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 7", "Over"),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 7", "Over"),
            ("HTTP/1.1 101 Switching Protocols", "Over"),
        ] {
            assert_eq!(framing(line, Method::GET), expected, "{line}");
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 7, 7";
        assert_eq!(framing(head, Method::HEAD), "Over");
        let (_, headers) = whole(&format!("{head}\r\n\r\n"));
        assert_eq!(headers[CONTENT_LENGTH], "7");
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_not_read() {
        for fields in [
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
            "Content-Length: 2\r\nContent-Length: 3\r\n",
            "Content-Length: 2, 3\r\n",
            "Content-Length: 2,\r\n",
            "Content-Length: \r\n",
            "Content-Length: +2\r\n",
            "Content-Length: -2\r\n",
            "Content-Length: 0x2\r\n",
            "Content-Length: 2 2\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked;q=1\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "X-A: a\r\n b\r\n",
            " X-A: a\r\n",
            "X-A : a\r\n",
            "X-A\r\n",
            ": a\r\n",
            "X A: a\r\n",
            "X-A: a\rb\r\n",
            "X-A: a\r\r\n",
            "X-A: a\0b\r\n",
            "X-\0A: ab\r\n",
            "X-A: a\x7f\r\n",
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            for method in [Method::GET, Method::HEAD] {
                let got = read(&text, method);
                assert!(got.is_err(), "{fields:?}: {got:?}");
            }
        }
        for line in [
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
            "HTTP/2.0 200 OK",
            "HTTP/1.1 099 Low",
            "HTTP/1.1 20 OK",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1 +20 OK",
            "HTTP/1.1 200 O\rK",
            "HTTP/1.1 200 O\0K",
            "HTTP/1.1  200 OK",
            "http/1.1 200 OK",
            "ICY 200 OK",
            "<html>",
        ] {
            let got = read(&format!("{line}\r\n\r\n"), Method::GET);
            assert!(got.is_err(), "{line:?}: {got:?}");
        }
        let many = |count: usize| {
            let fields = "a: b\r\n".repeat(count);
            read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"), Method::GET)
        };
        assert!(many(MOST_FIELDS).is_ok());
        assert!(many(MOST_FIELDS + 1).is_err());
    }

    #[test]
    fn a_connection_is_kept_as_its_version_and_its_words_say() {
        for (line, kept) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 1", true),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: Close",
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: x, close\r\nConnection: keep-alive",
                false,
            ),
            ("HTTP/1.1 200 OK", false),
            ("HTTP/1.1 204 No Content", true),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 0", true),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 1", false),
            (
                "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked",
                false,
            ),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 1", true),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1", false),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive",
                true,
            ),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive", false),
            (
                "HTTP/1.1 101 Switching Protocols\r\nConnection: keep-alive",
                false,
            ),
        ] {
            let (head, headers) = whole(&format!("{line}\r\n\r\n"));
            assert_eq!(head.keeps_alive, kept, "{line}");
            assert!(!headers.contains_key(CONNECTION));
        }
    }

    #[test]
    fn interim_answers_and_websockets_are_told() {
        let early = read(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP",
            Method::GET,
        );
        let (early, headers) = early.unwrap();
        assert!(
            matches!(early, Parsed::Interim(40)) && headers.is_empty(),
            "{early:?}"
        );
        let upgrade = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n";
        assert!(
            whole(&format!("{upgrade}Upgrade: WebSocket\r\n\r\n"))
                .0
                .is_websocket
        );
        assert!(
            !whole(&format!("{upgrade}Upgrade: h2c\r\n\r\n"))
                .0
                .is_websocket
        );
        assert!(
            !whole("HTTP/1.1 101 So\r\nUpgrade: websocket\r\n\r\n")
                .0
                .is_websocket
        );
    }
}
