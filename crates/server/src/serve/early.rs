//! A connection of HTTP/1 whose known requests are answered before a server understands them: a
//! client that is refused again and again sends the same bytes again and again, and should cost
//! next to nothing.
//!
//! It looks only at what is read while no request is under way and nothing is left to be written or
//! read of those before: there a request begins. Where that cannot be known any more, such as behind
//! a body or half a head, the connection is left to the server from there on.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::gateway::{AtOnce, Gateway};
use super::known::{Memo, head_length, heads};
use super::peer::Peer;
use super::unsent::Unsent;
use super::worker::Shared;

/// As much is read at once where the server is not asked.
const ROOM: usize = 8 * 1024;

/// As much is written at once, and one answer more.
const BATCH: usize = 64 * 1024;

/// So often it is read before others have their turn.
const READS: usize = 16;

/// A connection that answers what it knows. The server reads and writes one; a clone of it answers
/// what comes while the server has nothing to do.
pub(super) struct Early<I>(Arc<Mutex<Connection<I>>>);

struct Connection<I> {
    io: I,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    /// All that the server was given were whole requests without bodies.
    whole: bool,
    /// How many.
    requests: usize,
    /// All that it wrote was taken.
    written: bool,
    /// What is left of answers of ours.
    unsent: Unsent,
    /// When the latest of them was written.
    answered: Option<Instant>,
    /// It was to the latest request of all.
    refusing: bool,
    /// What was read for the server.
    unread: Vec<u8>,
    /// Why nothing more can be read.
    failed: Option<io::Error>,
}

/// What becomes of the request that is next.
enum Next {
    /// Its so many bytes are answered.
    Answered(usize),
    /// It is known, and the server's.
    Known,
    /// It is the server's to find out.
    Unknown,
}

impl<I> Clone for Early<I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> Early<I> {
    pub(super) fn new(io: I, peer: Arc<Peer>, shared: Arc<Shared>) -> Self {
        Self(Arc::new(Mutex::new(Connection {
            io,
            peer,
            shared,
            whole: true,
            requests: 0,
            written: true,
            unsent: Unsent::default(),
            answered: None,
            refusing: false,
            unread: Vec::new(),
            failed: None,
        })))
    }

    /// Answers what comes as long as that is known. Ready: it is the server's turn.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let connection = &mut *self.0.lock();
        if !connection.refusing {
            return Poll::Ready(());
        }
        connection.poll(cx).map(|read| {
            connection.refusing = false;
            connection.failed = read.err();
        })
    }

    /// When the latest request was answered of which the server knows nothing.
    pub(super) fn answered(&self) -> Option<Instant> {
        self.0.lock().answered
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> Connection<I> {
    /// Reads what is the server's where the server does not.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut room = [MaybeUninit::uninit(); ROOM];
        let mut read = ReadBuf::uninit(&mut room);
        ready!(self.poll_read(cx, &mut read))?;
        self.unread.extend_from_slice(read.filled());
        Poll::Ready(Ok(()))
    }

    /// Reads what is the server's: what is known is answered.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        for _ in 0..READS {
            if !self.unsent.is_empty() {
                ready!(self.unsent.poll(&mut self.io, cx))?;
            }
            let start = into.filled().len();
            ready!(Pin::new(&mut self.io).poll_read(cx, into))?;
            if !self.whole {
                return Poll::Ready(Ok(()));
            }
            let answered = self.answer(cx, &into.filled()[start..])?;
            let left = into.filled().len() - answered;
            self.refusing = answered > 0 && left == start;
            if !self.refusing {
                into.filled_mut().copy_within(start + answered.., start);
                into.set_filled(left);
                return Poll::Ready(Ok(()));
            }
            into.set_filled(start);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether what is read now begins a request, and an answer to it would be in its turn.
    fn is_between(&self) -> bool {
        self.whole
            && self.written
            && !self.peer.may_send()
            && self.peer.idle_after() == Some(self.requests)
    }

    /// Answers what is known at the beginning of what was read; returns how many bytes that were.
    fn answer(&mut self, cx: &mut Context<'_>, read: &[u8]) -> io::Result<usize> {
        if !self.is_between() || read.is_empty() {
            self.whole = false;
            return Ok(0);
        }
        let mut batch = Batch {
            peer: &self.peer,
            gateway: &self.shared.gateway,
            memo: self.shared.memo.lock(),
            now: Instant::now(),
            length: read.len(),
        };
        let (mut left, mut next) = (read, None);
        while next.is_none() && !left.is_empty() && self.unsent.is_empty() {
            while next.is_none() && !left.is_empty() && batch.memo.answers().len() < BATCH {
                match batch.answer(left) {
                    Next::Answered(length) => left = &left[length..],
                    other => next = Some(other),
                }
            }
            if !batch.memo.answers().is_empty() {
                self.answered = Some(batch.now);
                let sent = self.unsent.send(&mut self.io, cx, batch.memo.answers());
                batch.memo.clear_answers();
                sent?;
            }
        }
        if left.is_empty() {
            return Ok(read.len());
        }
        match heads(left) {
            Some((count, first)) => {
                self.requests += count;
                if matches!(next, Some(Next::Unknown)) && self.peer.was_refused() {
                    let number = self.requests + 1 - count;
                    batch.memo.offer(&left[..first], self.peer.offer(number));
                }
            }
            None => self.whole = false,
        }
        Ok(read.len() - left.len())
    }
}

/// Requests that came together.
struct Batch<'a> {
    peer: &'a Peer,
    gateway: &'a Gateway,
    memo: MutexGuard<'a, Memo>,
    /// When the one before was answered, or the first came.
    now: Instant,
    /// As long it was, or is all that came: mostly the next one is, too.
    length: usize,
}

impl Batch<'_> {
    /// Answers the first of those that are left, if it is known, and that takes no waiting.
    fn answer(&mut self, left: &[u8]) -> Next {
        let peer = self.peer.address();
        let likely = left.get(..self.length);
        let mut place = likely.and_then(|head| self.memo.find(head, peer));
        if place.is_none()
            && let Some(length) = head_length(left)
        {
            self.length = length;
            place = self.memo.find(&left[..length], peer);
        }
        let Some(found) = place.and_then(|place| self.memo.at(place)) else {
            return Next::Unknown;
        };
        match self.gateway.at_once(found, self.now) {
            AtOnce::Refused(end) => {
                self.now = end;
                Next::Answered(self.length)
            }
            AtOnce::Decided(verdict) => {
                self.peer.decide(verdict);
                Next::Known
            }
            AtOnce::Later => Next::Known,
            AtOnce::Unknown => Next::Unknown,
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for Early<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let connection = &mut *self.0.lock();
        if let Some(failed) = connection.failed.take() {
            return Poll::Ready(Err(failed));
        }
        let unread = &mut connection.unread;
        if unread.is_empty() {
            return connection.poll_read(cx, into);
        }
        let taken = unread.len().min(into.remaining());
        into.put_slice(&unread[..taken]);
        unread.drain(..taken);
        if unread.is_empty() {
            *unread = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Early<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let connection = &mut *self.0.lock();
        connection.written = false;
        ready!(connection.unsent.poll(&mut connection.io, cx))?;
        let written = Pin::new(&mut connection.io).poll_write(cx, bytes);
        connection.written = matches!(written, Poll::Ready(Ok(taken)) if taken == bytes.len());
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let connection = &mut *self.0.lock();
        connection.written = false;
        ready!(connection.unsent.poll(&mut connection.io, cx))?;
        let written = Pin::new(&mut connection.io).poll_write_vectored(cx, slices);
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        connection.written = matches!(written, Poll::Ready(Ok(taken)) if taken == all);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = &mut *self.0.lock();
        ready!(connection.unsent.poll(&mut connection.io, cx))?;
        Pin::new(&mut connection.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = &mut *self.0.lock();
        ready!(connection.unsent.poll(&mut connection.io, cx))?;
        Pin::new(&mut connection.io).poll_shutdown(cx)
    }
}
