//! A connection of HTTP/1 whose known requests are answered before a server understands them: a
//! client that is refused again and again sends the same bytes again and again, and should cost
//! next to nothing.
//!
//! It looks only at what is read while no request is under way and nothing is left to be written or
//! read of those before: there a request begins. Where that cannot be known any more, such as behind
//! a body or half a head, the connection is left to the server from there on.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::gateway::AtOnce;
use super::known::is_one_head;
use super::peer::Peer;
use super::worker::Shared;

/// A connection that answers what it knows.
pub(super) struct Early<I> {
    io: I,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    /// All that was read were whole requests without bodies.
    whole: bool,
    /// How many.
    requests: usize,
    /// All that was written was taken.
    written: bool,
    /// What is left of an answer of ours.
    unsent: Vec<u8>,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Early<I> {
    pub(super) const fn new(io: I, peer: Arc<Peer>, shared: Arc<Shared>) -> Self {
        Self {
            io,
            peer,
            shared,
            whole: true,
            requests: 0,
            written: true,
            unsent: Vec::new(),
        }
    }

    /// Whether what is read now begins a request, and an answer to it would be in its turn.
    fn is_between(&self) -> bool {
        self.whole
            && self.written
            && !self.peer.may_send()
            && self.peer.idle_after() == Some(self.requests)
    }

    /// Looks at what was read. True: it is answered.
    fn answers(&mut self, cx: &mut Context<'_>, read: &[u8]) -> io::Result<bool> {
        if !self.is_between() || read.is_empty() {
            self.whole = false;
            return Ok(false);
        }
        let address = self.peer.address();
        let mut memo = self.shared.memo.lock();
        if let Some((known, date)) = memo.find(read, address) {
            match self.shared.gateway.at_once(known, date) {
                AtOnce::Refused(answer) => {
                    drop(memo);
                    self.requests += 1;
                    self.peer.answered();
                    self.send(cx, answer)?;
                    return Ok(true);
                }
                AtOnce::Decided(verdict) => {
                    drop(memo);
                    self.requests += 1;
                    self.peer.decide(verdict);
                    return Ok(false);
                }
                AtOnce::Later => {
                    self.requests += 1;
                    return Ok(false);
                }
                AtOnce::Unknown => {}
            }
        }
        if !is_one_head(read) {
            self.whole = false;
            return Ok(false);
        }
        self.requests += 1;
        if self.peer.was_refused() {
            memo.offer(read, self.peer.offer(self.requests));
        }
        Ok(false)
    }

    /// Writes an answer, or as much of it as the client takes.
    fn send(&mut self, cx: &mut Context<'_>, answer: Vec<u8>) -> io::Result<()> {
        self.unsent = answer;
        match self.poll_send(cx) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Writes what is left of an answer.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent if sent == self.unsent.len() => {
                    self.unsent = Vec::new();
                    // Nothing of a server waits for it: who encrypts keeps what is written.
                    ready!(Pin::new(&mut self.io).poll_flush(cx))?;
                }
                sent => {
                    self.unsent.drain(..sent);
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for Early<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            ready!(this.poll_send(cx))?;
            let start = into.filled().len();
            ready!(Pin::new(&mut this.io).poll_read(cx, into))?;
            if !this.whole || !this.answers(cx, &into.filled()[start..])? {
                return Poll::Ready(Ok(()));
            }
            into.set_filled(start);
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Early<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written = false;
        ready!(self.poll_send(cx))?;
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.written = matches!(written, Poll::Ready(Ok(taken)) if taken == bytes.len());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.written = false;
        ready!(self.poll_send(cx))?;
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        self.written = matches!(written, Poll::Ready(Ok(taken)) if taken == all);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
