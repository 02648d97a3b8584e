//! The chunks of a body (RFC 9112, 7.1).

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue};

use super::unreadable::Unreadable;
use crate::serve::forwarding::{Field, field};

/// The most bytes of all that extends the sizes of chunks.
const MOST_EXTENSIONS: usize = 16 * 1024;

/// The most bytes of all that comes after the last chunk.
const MOST_TRAILERS: usize = 16 * 1024;

/// The most fields after the last chunk.
const MOST_FIELDS: usize = 100;

/// Where in a body its bytes have come to an end.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    state: State,
    /// How much of the chunk is to come.
    left: u64,
    /// How many digits its size had.
    digits: u8,
    /// How many bytes have extended sizes.
    extensions: usize,
    trailers: Vec<u8>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    /// Blanks after a size, which some senders pad it with.
    Blank,
    Extension,
    SizeEnd,
    Data,
    DataEnd,
    DataEndLf,
    Trailers,
}

/// A part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Data(Bytes),
    /// The last part, of a body that has fields after it.
    Trailers(HeaderMap),
    End,
}

impl Chunks {
    /// How much of the chunk is to come, as far as that is known.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// The next part of a body, taken from `bytes`. None: more have to come.
    pub(super) fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Part>, Unreadable> {
        loop {
            if self.state == State::Data {
                let length = bytes
                    .len()
                    .min(usize::try_from(self.left).unwrap_or(usize::MAX));
                if length == 0 {
                    return Ok(None);
                }
                self.left -= length as u64;
                if self.left == 0 {
                    self.state = State::DataEnd;
                }
                return Ok(Some(Part::Data(bytes.split_to(length))));
            }
            if !bytes.has_remaining() {
                return Ok(None);
            }
            let byte = bytes.get_u8();
            if self.state == State::Trailers {
                if let Some(last) = self.trailer(byte)? {
                    return Ok(Some(last));
                }
            } else {
                self.state = self.step(byte)?;
            }
        }
    }

    /// A byte before or behind the data of a chunk.
    fn step(&mut self, byte: u8) -> Result<State, Unreadable> {
        match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                // As many as make 64 bits.
                if self.digits == 16 {
                    return Err(Unreadable::Chunks);
                }
                self.digits += 1;
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                self.left = self.left << 4 | u64::from(digit);
                Ok(State::Size)
            }
            (State::Size, _) if self.digits == 0 => Err(Unreadable::Chunks),
            (State::Size | State::Blank | State::Extension, b'\r') => Ok(State::SizeEnd),
            (State::Size | State::Blank, b';') => Ok(State::Extension),
            (State::Size | State::Blank, b' ' | b'\t') => {
                self.extend()?;
                Ok(State::Blank)
            }
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => {
                self.extend()?;
                Ok(State::Extension)
            }
            (State::SizeEnd, b'\n') => {
                self.digits = 0;
                Ok(match self.left {
                    0 => State::Trailers,
                    _ => State::Data,
                })
            }
            (State::DataEnd, b'\r') => Ok(State::DataEndLf),
            (State::DataEndLf, b'\n') => Ok(State::Size),
            _ => Err(Unreadable::Chunks),
        }
    }

    fn extend(&mut self) -> Result<(), Unreadable> {
        self.extensions += 1;
        match self.extensions {
            ..=MOST_EXTENSIONS => Ok(()),
            _ => Err(Unreadable::TooLarge),
        }
    }

    /// A byte behind the last chunk.
    fn trailer(&mut self, byte: u8) -> Result<Option<Part>, Unreadable> {
        if (self.trailers.last() == Some(&b'\r')) != (byte == b'\n') {
            return Err(Unreadable::Chunks);
        }
        self.trailers.push(byte);
        if self.trailers == b"\r\n" {
            return Ok(Some(Part::End));
        }
        if self.trailers.ends_with(b"\r\n\r\n") {
            return fields(&self.trailers).map(|it| Some(Part::Trailers(it)));
        }
        match self.trailers.len() {
            ..=MOST_TRAILERS => Ok(None),
            _ => Err(Unreadable::TooLarge),
        }
    }
}

/// The fields behind a body, without those that are the connection's or would frame it anew.
fn fields(text: &[u8]) -> Result<HeaderMap, Unreadable> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut headers = HeaderMap::new();
    match httparse::parse_headers(text, &mut fields)? {
        httparse::Status::Complete((length, fields)) if length == text.len() => {
            for it in fields {
                let name = HeaderName::from_bytes(it.name.as_bytes());
                let value = HeaderValue::from_bytes(it.value);
                let (Ok(name), Ok(value)) = (name, value) else {
                    return Err(Unreadable::Field);
                };
                if field(name.as_str()) != Field::Hop && name != CONTENT_LENGTH && name != HOST {
                    headers.append(name, value);
                }
            }
            Ok(headers)
        }
        _ => Err(Unreadable::Chunks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of a body, and what it ended with, if it has come to its end.
    type Whole = (Vec<u8>, Option<Part>);

    /// Reads a body that comes in these pieces; what is left must be of the last.
    fn read(pieces: &[&[u8]]) -> Result<(Whole, usize), Unreadable> {
        let (mut chunks, mut data) = (Chunks::default(), Vec::new());
        for piece in pieces {
            let mut bytes = Bytes::copy_from_slice(piece);
            while let Some(part) = chunks.next(&mut bytes)? {
                match part {
                    Part::Data(part) => data.extend(part),
                    last => return Ok(((data, Some(last)), bytes.len())),
                }
            }
            assert!(bytes.is_empty());
        }
        Ok(((data, None), 0))
    }

    #[test]
    fn a_body_is_read_however_it_is_cut() {
        let trailers = |fields: &[(&'static str, &'static str)]| {
            let fields = fields.iter().map(|(name, value)| {
                let value = HeaderValue::from_static(value);
                (HeaderName::from_static(name), value)
            });
            Some(Part::Trailers(fields.collect()))
        };
        for (text, data, last) in [
            (&b"0\r\n\r\n"[..], &b""[..], Some(Part::End)),
            (b"5\r\nhello\r\n0\r\n\r\n", b"hello", Some(Part::End)),
            (
                b"5\r\nhello\r\n00A;a=\"b c\"\r\n, you all!\r\n0000\r\n\r\n",
                b"hello, you all!",
                Some(Part::End),
            ),
            (b"1 \t\r\n\r\r\n1 ; x\r\n\n\r\n0;last\r\n\r\n", b"\r\n", Some(Part::End)),
            (
                b"1\r\nx\r\n0\r\nx-sum: 1\r\nX-Sum2: 2\r\nConnection: x\r\nContent-Length: 3\r\n\r\n",
                b"x",
                trailers(&[("x-sum", "1"), ("x-sum2", "2")]),
            ),
            (b"2\r\nx", b"x", None),
        ] {
            let whole = (data.to_vec(), last);
            for first in 0..=text.len() {
                for second in first..=text.len() {
                    let pieces = [&text[..first], &text[first..second], &text[second..]];
                    let (got, left) = read(&pieces).unwrap();
                    assert_eq!((&got, left), (&whole, 0), "{first}, {second}");
                }
            }
        }
        let (_, left) = read(&[b"0\r\n\r\nHTTP"]).unwrap();
        assert_eq!(left, 4, "what comes behind is left");
    }

    #[test]
    fn what_is_no_chunk_is_refused_however_it_is_cut() {
        for text in [
            &b"\r\n"[..],
            b"x\r\n",
            b"-1\r\n",
            b"+1\r\nx\r\n",
            b"0x1\r\n",
            b" 1\r\nx\r\n",
            b"1\nx\r\n",
            b"1\r\rx",
            b"1\rx",
            b"1 1\r\nx\r\n",
            b";a\r\n",
            b"1;a\n",
            b"1;a\0\r\n",
            b"1;a\rb\r\n",
            b"1\r\nxy",
            b"1\r\nx\n",
            b"1\r\nx\r\r",
            b"10000000000000000\r\n",
            b"00000000000000001\r\n",
            b"0\r\n\n",
            b"0\r\n\r\r",
            b"0\r\na: b\n\n",
            b"0\r\na: b\rc\r\n\r\n",
            b"0\r\na: b\r\n c\r\n\r\n",
            b"0\r\na b: c\r\n\r\n",
            b"0\r\na : c\r\n\r\n",
            b"0\r\nabc\r\n\r\n",
            b"0\r\na: b\0\r\n\r\n",
        ] {
            for cut in 0..=text.len() {
                let got = read(&[&text[..cut], &text[cut..]]);
                assert!(got.is_err(), "{:?}: {got:?}", String::from_utf8_lossy(text));
            }
        }
    }

    #[test]
    fn what_comes_besides_data_has_a_bound() {
        let extended = |length| [b"1;", &*vec![b'a'; length], b"\r\nx\r\n0\r\n\r\n"].concat();
        assert!(read(&[&extended(MOST_EXTENSIONS)]).is_ok());
        assert!(read(&[&extended(MOST_EXTENSIONS + 1)]).is_err());
        let small = b"1;aaaaaaa\r\nx\r\n".repeat(MOST_EXTENSIONS / 7 + 1);
        assert!(read(&[&small]).is_err());
        let trailer = |length| [b"0\r\na: ", &*vec![b'a'; length], b"\r\n\r\n"].concat();
        assert!(read(&[&trailer(MOST_TRAILERS - 7)]).is_ok());
        assert!(read(&[&trailer(MOST_TRAILERS)]).is_err());
        let many = |count| [b"0\r\n", &*b"a: b\r\n".repeat(count), b"\r\n"].concat();
        assert!(read(&[&many(MOST_FIELDS)]).is_ok());
        assert!(read(&[&many(MOST_FIELDS + 1)]).is_err());
    }
}
