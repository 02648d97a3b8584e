//! The bytes between us and a server: TCP, a unix socket, or TLS over TCP.
//!
//! What many callers send at the same time goes out in one write. The task that writes is woken by
//! the first of them and runs at once, so it would write each request by itself; it lets the others
//! run first instead. That is worth more than all else in a busy client: a write costs several
//! times what preparing a request does.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tollgate_core::{BackendError, ErrorKind};

use crate::url::Address;

/// So much goes out at once, so that the server has something to do while the rest is prepared.
pub(crate) const BATCH: usize = 2048;

/// An open stream that writes what has come together.
pub(crate) struct Stream {
    wire: Wire,
    /// What has not been written yet: from `written` on.
    out: Vec<u8>,
    written: usize,
    /// Whether the others have been let run since the last write.
    yielded: bool,
}

enum Wire {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// What is needed to encrypt; nothing is built in without the feature.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug)]
pub(crate) enum Encryption {}
#[cfg(feature = "tls")]
pub(crate) use crate::tls::Encryption;

/// Connects. The caller bounds how long it takes.
pub(crate) async fn open(
    address: &Address,
    encryption: Option<&Encryption>,
) -> Result<Stream, BackendError> {
    Ok(Stream {
        wire: wire(address, encryption).await?,
        out: Vec::new(),
        written: 0,
        yielded: false,
    })
}

async fn wire(address: &Address, encryption: Option<&Encryption>) -> Result<Wire, BackendError> {
    let failed = |error: io::Error| {
        BackendError::new(
            ErrorKind::Unavailable,
            format!("cannot connect to {address}: {error}"),
        )
    };
    match address {
        Address::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port))
                .await
                .map_err(failed)?;
            // Requests are small, and each waits for an answer.
            stream.set_nodelay(true).map_err(failed)?;
            match encryption {
                None => Ok(Wire::Tcp(stream)),
                #[cfg(feature = "tls")]
                Some(encryption) => encryption
                    .connect(host, stream)
                    .await
                    .map(|stream| Wire::Tls(Box::new(stream))),
                #[cfg(not(feature = "tls"))]
                Some(never) => match *never {},
            }
        }
        #[cfg(unix)]
        Address::Unix(path) => UnixStream::connect(path)
            .await
            .map(Wire::Unix)
            .map_err(failed),
        #[cfg(not(unix))]
        Address::Unix(_) => Err(BackendError::new(
            ErrorKind::Unsupported,
            "this system has no unix sockets",
        )),
    }
}

/// The same call on whichever stream it is.
macro_rules! each {
    ($stream:expr, $s:ident => $call:expr) => {
        match $stream {
            Wire::Tcp($s) => $call,
            #[cfg(unix)]
            Wire::Unix($s) => $call,
            #[cfg(feature = "tls")]
            Wire::Tls($s) => $call,
        }
    };
}

impl Stream {
    /// Writes what is there.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            let count = ready!(each!(&mut self.wire, s => Pin::new(s).poll_write(cx, rest)))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        self.out.clear();
        self.written = 0;
        self.yielded = false;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(&mut self.get_mut().wire, s => Pin::new(s).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.out.len() >= BATCH {
            ready!(this.drain(cx))?;
        }
        this.out.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.out.is_empty() && this.out.len() < BATCH && !this.yielded {
            this.yielded = true;
            // Goes to the end of the queue.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(this.drain(cx))?;
        each!(&mut this.wire, s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.drain(cx))?;
        each!(&mut this.wire, s => Pin::new(s).poll_shutdown(cx))
    }
}
