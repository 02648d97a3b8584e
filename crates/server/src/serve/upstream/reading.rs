//! Reading an upstream's answer.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::head::{Head, MOST_BYTES, Parsed, parse};
use super::unreadable::Unreadable;

/// So much is read at once where no more is expected.
pub(super) const LITTLE: usize = 16 * 1024;

/// So much is read at once at most.
pub(super) const MUCH: usize = 64 * 1024;

/// The most heads before the one that counts.
const MOST_INTERIM: usize = 16;

thread_local! {
    /// What is read first goes here, so that a connection that waits holds no memory for it.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; LITTLE].into());
}

/// What has come; nothing once the connection has ended. `expected` is how much to come is known
/// of.
pub(super) fn poll_bytes<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    expected: u64,
) -> Poll<std::io::Result<Bytes>> {
    if expected > LITTLE as u64 {
        let room = usize::try_from(expected).unwrap_or(MUCH).min(MUCH);
        let mut buffer = BytesMut::with_capacity(room);
        let length = ready!(pin!(stream.read_buf(&mut buffer)).poll(cx))?;
        // Who takes it slowly holds what came, not what there was room for.
        return Poll::Ready(Ok(match length < room / 2 {
            true => Bytes::copy_from_slice(&buffer),
            false => buffer.freeze(),
        }));
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let mut buffer = ReadBuf::new(scratch);
        ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
    })
}

/// The beginning of an answer, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    /// A head that is not whole; nearly always none.
    part: Vec<u8>,
    /// How many bytes there were before it.
    before: usize,
    /// How many heads there were before it.
    interim: usize,
}

impl Beginning {
    /// The head of the answer to a request by this method, and what came with it. Its fields are
    /// added to `headers`.
    pub(super) fn poll_head<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        method: &Method,
        headers: &mut HeaderMap,
    ) -> Poll<Result<(Head, Bytes), Unreadable>> {
        loop {
            let bytes = ready!(poll_bytes(stream, cx, 0))?;
            if bytes.is_empty() {
                return Poll::Ready(Err(Unreadable::Ended));
            }
            if let Some(whole) = self.add(bytes, method, headers)? {
                return Poll::Ready(Ok(whole));
            }
        }
    }

    fn add(
        &mut self,
        bytes: Bytes,
        method: &Method,
        headers: &mut HeaderMap,
    ) -> Result<Option<(Head, Bytes)>, Unreadable> {
        let mut text = if self.part.is_empty() {
            bytes
        } else {
            self.part.extend_from_slice(&bytes);
            // It is whole with the end of a line, and not looked at before.
            if !bytes.contains(&b'\n') {
                return self.part_is_small().map(|()| None);
            }
            std::mem::take(&mut self.part).into()
        };
        while !text.is_empty() {
            match parse(&text, method, headers)? {
                Parsed::Part => {
                    self.part = text.into();
                    return self.part_is_small().map(|()| None);
                }
                Parsed::Interim(length) => {
                    text.advance(length);
                    self.before += length;
                    self.interim += 1;
                    if self.interim > MOST_INTERIM || self.before > MOST_BYTES {
                        return Err(Unreadable::TooLarge);
                    }
                }
                Parsed::Whole(head, length) => {
                    text.advance(length);
                    return match self.before + length {
                        ..=MOST_BYTES => Ok(Some((head, text))),
                        _ => Err(Unreadable::TooLarge),
                    };
                }
            }
        }
        Ok(None)
    }

    fn part_is_small(&self) -> Result<(), Unreadable> {
        match self.before + self.part.len() {
            ..=MOST_BYTES => Ok(()),
            _ => Err(Unreadable::TooLarge),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    /// Reads an answer that comes in these pieces: its status, and what came with its head.
    fn read(pieces: &[&[u8]]) -> Result<Option<(StatusCode, Vec<u8>)>, Unreadable> {
        let (mut beginning, mut headers) = (Beginning::default(), HeaderMap::new());
        let pieces = pieces.iter().filter(|it| !it.is_empty());
        let mut pieces = pieces.map(|it| Bytes::copy_from_slice(it));
        while let Some(piece) = pieces.next() {
            if let Some((head, rest)) = beginning.add(piece, &Method::GET, &mut headers)? {
                assert_eq!(headers["etag"], "a");
                assert_eq!(headers.len(), 1);
                let rest = std::iter::once(rest).chain(pieces);
                return Ok(Some((head.status, rest.flatten().collect())));
            }
        }
        Ok(None)
    }

    #[test]
    fn an_answer_is_read_however_it_is_cut() {
        let text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 So\r\nETag: b\r\n\r\n\
            HTTP/1.1 206 Partial Content\r\nETag: a\r\n\r\nbody";
        let expected = (StatusCode::PARTIAL_CONTENT, b"body".to_vec());
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                let got = read(&pieces).unwrap();
                assert_eq!(got.as_ref(), Some(&expected), "{first}, {second}");
            }
        }
        let bytes: Vec<_> = text.chunks(1).collect();
        assert_eq!(read(&bytes).unwrap(), Some(expected));
        assert_eq!(read(&[&text[..text.len() - 5]]).unwrap(), None);
    }

    #[test]
    fn what_comes_before_a_body_has_a_bound() {
        let answer = b"HTTP/1.1 200 OK\r\nETag: a\r\n\r\n";
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        let after = |count: usize| read(&[&interim.repeat(count), answer]);
        assert!(after(MOST_INTERIM).unwrap().is_some());
        assert!(matches!(after(MOST_INTERIM + 1), Err(Unreadable::TooLarge)));
        let long = |length: usize| {
            let line = [b"HTTP/1.1 103 So\r\na: ", &*vec![b'a'; length], b"\r\n\r\n"].concat();
            let pieces: Vec<_> = line.chunks(1000).collect();
            read(&[&*pieces, &[answer]].concat())
        };
        assert!(long(MOST_BYTES - 100).unwrap().is_some());
        assert!(matches!(long(MOST_BYTES - 40), Err(Unreadable::TooLarge)));
        assert!(matches!(long(2 * MOST_BYTES), Err(Unreadable::TooLarge)));
        let endless = [&b"HTTP/1.1 200 OK\r\na: "[..], &vec![b'a'; MOST_BYTES]];
        assert!(matches!(read(&endless), Err(Unreadable::TooLarge)));
    }
}
