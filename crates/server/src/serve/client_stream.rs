//! The connection to a client, with an end to patience: a client that takes no part of its answer
//! must not hold a place for ever, and one that is still sending must get to read its answer.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// So long what a client still sends is read, and thrown away, after the last answer.
const LINGER: Duration = Duration::from_secs(2);

/// A connection to a client.
#[derive(Debug)]
pub(super) struct ClientStream {
    stream: TcpStream,
    patience: Duration,
    /// Runs while a write waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
    sending: Sending,
    /// Runs once nothing more is written.
    lingering: Option<Pin<Box<Sleep>>>,
}

/// Whether the client may still be sending the body of a request that is answered already.
#[derive(Clone, Debug, Default)]
pub(super) struct Sending(Arc<AtomicBool>);

impl Sending {
    pub(super) fn set(&self, may_send: bool) {
        self.0.store(may_send, Ordering::Relaxed);
    }
}

impl ClientStream {
    /// `patience` is how long the client may take nothing while there is something for it.
    pub(super) const fn new(stream: TcpStream, patience: Duration, sending: Sending) -> Self {
        Self {
            stream,
            patience,
            stalled: None,
            sending,
            lingering: None,
        }
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
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => this.sending.set(true),
                Poll::Pending if this.sending.0.load(Ordering::Relaxed) => return Poll::Pending,
                // The client has ended, too, or has nothing to send.
                Poll::Ready(_) | Poll::Pending => return Poll::Ready(Ok(())),
            }
        }
    }
}
