//! The connection to a client, with an end to patience: a client that takes no part of its answer
//! must not hold a place for ever, and one that is still sending must get to read its answer.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::peer::Peer;

/// So long what a client still sends is read, and thrown away, after the last answer.
const LINGER: Duration = Duration::from_secs(2);

/// What an HTTP/2 connection begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection to a client.
#[derive(Debug)]
pub(super) struct ClientStream {
    stream: TcpStream,
    patience: Duration,
    peer: Arc<Peer>,
    /// What was read to find out the protocol, and not yet read again.
    beginning: [u8; PREFACE.len()],
    unread: Range<u8>,
    /// Runs while a write waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Runs once nothing more is written.
    lingering: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    /// `patience` is how long the client may take nothing while there is something for it.
    pub(super) const fn new(stream: TcpStream, patience: Duration, peer: Arc<Peer>) -> Self {
        Self {
            stream,
            patience,
            peer,
            beginning: [0; PREFACE.len()],
            unread: 0..0,
            stalled: None,
            lingering: None,
        }
    }

    /// Whether the client begins as one that speaks HTTP/2 without being asked. What was read for
    /// that is read again.
    pub(super) async fn begins_http2(&mut self) -> io::Result<bool> {
        let mut length = 0;
        while length < PREFACE.len() && self.beginning[..length] == PREFACE[..length] {
            match self.stream.read(&mut self.beginning[length..]).await? {
                0 => break,
                more => length += more,
            }
        }
        self.unread = 0..length as u8;
        Ok(self.beginning == *PREFACE)
    }

    fn watched(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(stalled.as_mut().poll(cx));
        let late = io::Error::new(ErrorKind::TimedOut, "the client does not read its answer");
        Poll::Ready(Err(late))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let end = usize::from(self.unread.end);
            let start = usize::from(self.unread.start);
            let end = end.min(start + into.remaining());
            into.put_slice(&self.beginning[start..end]);
            self.unread.start = end as u8;
            // And what came with it, so that a request is read as a whole. A connection that fails
            // now does so again, or ends.
            if self.unread.is_empty() {
                let _ = Pin::new(&mut self.stream).poll_read(cx, into);
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watched(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Ends the answers, and then reads on for a moment: closing while the client sends would reset
    /// the connection, and many systems then throw away the answer that it has not read yet
    /// (RFC 9112, 9.6).
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let lingering = this
            .lingering
            .get_or_insert_with(|| Box::pin(sleep(LINGER)));
        loop {
            if lingering.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut thrown_away = [0; 4096];
            let mut buffer = ReadBuf::new(&mut thrown_away);
            match Pin::new(&mut this.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => this.peer.set_sending(true),
                Poll::Pending if this.peer.may_send() => return Poll::Pending,
                // The client has ended, too, or has nothing to send.
                Poll::Ready(_) | Poll::Pending => return Poll::Ready(Ok(())),
            }
        }
    }
}
