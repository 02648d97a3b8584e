//! Answers that a client has not taken yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// What is left of answers that were written past the server.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    bytes: Vec<u8>,
    /// It was all taken, and may wait for more: who encrypts keeps what is written.
    unflushed: bool,
}

impl Unsent {
    /// Whether the client has all of it.
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.unflushed
    }

    /// Writes answers, and keeps what the client does not take. There must be nothing else left.
    pub(super) fn send(
        &mut self,
        io: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
        answers: &[u8],
    ) -> io::Result<()> {
        let mut left = answers;
        while !left.is_empty() {
            match write(io, cx, left) {
                Poll::Ready(taken) => left = &left[taken?..],
                Poll::Pending => {
                    self.bytes = left.to_vec();
                    return Ok(());
                }
            }
        }
        self.unflushed = true;
        match self.poll(io, cx) {
            Poll::Ready(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes what is left. Ready: nothing is.
    pub(super) fn poll(
        &mut self,
        io: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            let taken = ready!(write(io, cx, &self.bytes))?;
            self.bytes.drain(..taken);
            if self.bytes.is_empty() {
                self.bytes = Vec::new();
                self.unflushed = true;
            }
        }
        if self.unflushed {
            ready!(Pin::new(io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// Writes some.
fn write(
    io: &mut (impl AsyncWrite + Unpin),
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    match ready!(Pin::new(io).poll_write(cx, bytes)) {
        Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        written => Poll::Ready(written),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, BufWriter, duplex};

    use super::*;

    #[tokio::test]
    async fn all_of_it_arrives_however_late_it_is_read() {
        let answers: Vec<_> = (0..200).collect();
        // It holds 16 bytes for the client, and 8 back.
        let (mut client, server) = duplex(16);
        let mut io = BufWriter::with_capacity(8, server);
        for length in [4, 20, 200] {
            let mut unsent = Unsent::default();
            poll_fn(|cx| Poll::Ready(unsent.send(&mut io, cx, &answers[..length])))
                .await
                .unwrap();
            assert_eq!(unsent.is_empty(), length < 16, "{length}");
            let mut read = vec![0; length];
            let left = poll_fn(|cx| unsent.poll(&mut io, cx));
            let (left, _) = tokio::join!(left, client.read_exact(&mut read));
            left.unwrap();
            assert!(unsent.is_empty());
            assert_eq!(read, answers[..length]);
        }
    }
}
