//! A request on its way to an upstream: its head, and its body as it comes from the client.

use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    COOKIE, HOST, HeaderMap, HeaderName, MAX_FORWARDS, SET_COOKIE, TRAILER,
};
use tokio::io::AsyncWrite;

use crate::serve::forwarding::{Field, Origin, field, tokens, write};
use crate::serve::upload::Upload;

/// What is to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The head of the request, or what frames the part of its body that comes next.
    before: Vec<u8>,
    part: Bytes,
    /// Whether the end of a line follows.
    is_chunk: bool,
    /// How many bytes of these three are sent.
    sent: usize,
    /// Whether anything was sent.
    has_begun: bool,
    is_given_up: bool,
    upload: Upload,
    rest: Rest,
}

/// How the rest of the body is framed.
#[derive(Debug)]
enum Rest {
    /// There is none.
    None,
    /// So many bytes, and more than none.
    Length(u64),
    /// Chunks, and behind them any of these fields.
    Chunks(Vec<HeaderName>),
}

/// Why a request was not sent whole.
#[derive(Debug)]
pub(super) enum Unsent {
    /// Its body broke off; its progress says why.
    Body,
    /// The connection broke.
    Connection(io::Error),
}

impl Outgoing {
    /// One with a body. `head` is written all but for how the body is framed, and the line that
    /// ends it.
    ///
    /// The framing is of our own making, whatever the client said of it: what is sent is what is
    /// told.
    pub(super) fn new(
        mut head: Vec<u8>,
        headers: &HeaderMap,
        origin: &Origin<'_>,
        upload: Upload,
    ) -> Self {
        let rest = match &upload {
            // That there is none is said where the client says so.
            Upload::None if headers.contains_key(CONTENT_LENGTH) => {
                write(&mut head, "content-length", b"0");
                Rest::None
            }
            Upload::None => Rest::None,
            Upload::Watched { .. } => match upload.length() {
                Some(length) => {
                    let _ = write!(head, "content-length: {length}\r\n");
                    Rest::Length(length)
                }
                None => {
                    write(&mut head, "transfer-encoding", b"chunked");
                    Rest::Chunks(declared(headers, origin))
                }
            },
        };
        head.extend_from_slice(b"\r\n");
        let mut outgoing = Self {
            before: head,
            part: Bytes::new(),
            is_chunk: false,
            sent: 0,
            has_begun: false,
            is_given_up: false,
            upload,
            rest,
        };
        if matches!(outgoing.rest, Rest::None | Rest::Length(0)) {
            outgoing.end();
        }
        outgoing
    }

    /// Whether anything was sent.
    pub(super) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether all of it was sent, or is given up.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.rest, Rest::None) && self.is_sent()
    }

    /// Whether all of it was sent. Where an early answer left a part of it behind, another request
    /// would be read as the rest of this one.
    pub(super) fn is_sent_whole(&self) -> bool {
        self.is_over() && !self.is_given_up
    }

    /// Sends no more.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
        self.end();
        self.sent = self.length();
    }

    /// Begins again, on another connection. It has no body, or nothing of it was sent.
    pub(super) const fn rewind(&mut self) {
        self.sent = 0;
        self.has_begun = false;
        self.is_given_up = false;
    }

    /// Sends, until all is sent or the client has sent no more.
    pub(super) fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        let mut starved = false;
        loop {
            // The first part goes along with the head, if it is there.
            let is_free = self.is_sent() || (self.sent == 0 && self.part.is_empty());
            if is_free && !starved && !matches!(self.rest, Rest::None) {
                match self.poll_part(cx) {
                    Poll::Ready(taken) => taken?,
                    Poll::Pending => starved = true,
                }
            }
            if self.is_sent() {
                if self.is_over() || starved {
                    ready!(Pin::new(&mut *stream).poll_flush(cx)).map_err(Unsent::Connection)?;
                    return if starved {
                        Poll::Pending
                    } else {
                        Poll::Ready(Ok(()))
                    };
                }
            } else {
                ready!(self.poll_write(stream, cx)).map_err(Unsent::Connection)?;
            }
        }
    }

    /// Takes a part of the body, and frames it.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        let next = ready!(self.upload.poll_frame(cx));
        if self.is_sent() {
            self.before.clear();
            self.part = Bytes::new();
            self.is_chunk = false;
            self.sent = 0;
        }
        let Some(Ok(frame)) = next else {
            return Poll::Ready(match (next, &self.rest) {
                (None, Rest::Chunks(_)) => {
                    self.before.extend_from_slice(b"0\r\n\r\n");
                    self.end();
                    Ok(())
                }
                // It is shorter than the client said, at best.
                _ => Err(Unsent::Body),
            });
        };
        match (frame.into_data(), &mut self.rest) {
            (Ok(part), _) if part.is_empty() => {}
            (Ok(part), Rest::Chunks(_)) => {
                let _ = write!(self.before, "{:x}\r\n", part.len());
                self.part = part;
                self.is_chunk = true;
            }
            (Ok(part), Rest::Length(left)) => {
                let Some(rest) = left.checked_sub(part.len() as u64) else {
                    return Poll::Ready(Err(Unsent::Body));
                };
                *left = rest;
                self.part = part;
                if rest == 0 {
                    self.end();
                }
            }
            (Err(frame), Rest::Chunks(declared)) => {
                self.before.extend_from_slice(b"0\r\n");
                let trailers = frame.into_trailers().unwrap_or_default();
                for (name, value) in &trailers {
                    if declared.contains(name) {
                        write(&mut self.before, name.as_str(), value.as_bytes());
                    }
                }
                self.before.extend_from_slice(b"\r\n");
                self.end();
            }
            // There is no place for fields behind a body of a known length.
            (Err(_), _) | (_, Rest::None) => {}
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = Pin::new(stream);
        let written = if self.part.is_empty() {
            stream.poll_write(cx, &self.before[self.sent..])
        } else {
            let mut slices = [&*self.before, &self.part, self.after()].map(IoSlice::new);
            let mut slices = &mut slices[..];
            IoSlice::advance_slices(&mut slices, self.sent);
            stream.poll_write_vectored(cx, slices)
        };
        match ready!(written)? {
            0 => Poll::Ready(Err(ErrorKind::WriteZero.into())),
            written => {
                self.sent += written;
                self.has_begun = true;
                Poll::Ready(Ok(()))
            }
        }
    }

    const fn after(&self) -> &'static [u8] {
        match self.is_chunk {
            true => b"\r\n",
            false => b"",
        }
    }

    fn length(&self) -> usize {
        self.before.len() + self.part.len() + self.after().len()
    }

    fn is_sent(&self) -> bool {
        self.sent == self.length()
    }

    /// There is no more of the body, and its progress is told.
    fn end(&mut self) {
        self.rest = Rest::None;
        self.upload = Upload::None;
    }
}

/// The fields that a client says will come behind a body, but for those that must not (RFC 9110,
/// 6.5.1), that say who sent the request on or that a client may not write: many an upstream takes
/// them for fields of the head.
fn declared(headers: &HeaderMap, origin: &Origin<'_>) -> Vec<HeaderName> {
    const NEVER: [HeaderName; 11] = [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        COOKIE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TRAILER,
    ];
    tokens(headers, &TRAILER)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .filter(|name| field(name.as_str()) == Field::Message && !NEVER.contains(name))
        .filter(|name| origin.leaves(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http::HeaderValue;
    use tokio::io::duplex;

    use super::*;
    use crate::serve::open::Slot;
    use crate::serve::peer::Peer;

    fn peer() -> Peer {
        Peer::new([192, 0, 2, 1].into(), false, Slot::default())
    }

    fn of<'a>(peer: &'a Peer, named: &'a HeaderName, identity: &'a HeaderName) -> Origin<'a> {
        Origin {
            peer,
            client: peer.address(),
            trusted: false,
            named: Some(named),
            host: None,
            identity: Some((identity, None)),
        }
    }

    const NAMED: HeaderName = HeaderName::from_static("cf-connecting-ip");
    const IDENTITY: HeaderName = HeaderName::from_static("x-user-id");

    #[test]
    fn what_is_not_sent_whole_is_told_from_what_is() {
        let (peer, named, identity) = (peer(), NAMED, IDENTITY);
        let origin = of(&peer, &named, &identity);
        let head = vec![b'a'; 100];
        let mut outgoing = Outgoing::new(head, &HeaderMap::new(), &origin, Upload::None);
        // An upstream that takes no more, and may answer all the same.
        let (mut narrow, _upstream) = duplex(64);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(outgoing.poll_send(&mut narrow, &mut cx).is_pending());
        assert!(outgoing.has_begun() && !outgoing.is_sent_whole());
        let (mut wide, _upstream) = duplex(1024);
        assert!(outgoing.poll_send(&mut wide, &mut cx).is_ready());
        assert!(outgoing.is_sent_whole());
        outgoing.give_up();
        assert!(outgoing.is_over() && !outgoing.is_sent_whole());
    }

    #[test]
    fn b137_what_a_client_may_not_say_before_a_body_it_may_not_say_behind() {
        let (peer, named, identity) = (peer(), NAMED, IDENTITY);
        let mut headers = HeaderMap::new();
        let names = "X-Sum, X-User-Id, x_user_id, CF-Connecting-IP, X-Forwarded-For, Host, a b";
        headers.insert(TRAILER, HeaderValue::from_static(names));
        assert_eq!(declared(&headers, &of(&peer, &named, &identity)), ["x-sum"]);
    }
}
