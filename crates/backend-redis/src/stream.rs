//! The bytes between us and a server: TCP, a unix socket, or TLS over TCP.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tollgate_core::{BackendError, ErrorKind};

use crate::url::Address;

/// An open stream.
pub(crate) enum Stream {
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
                None => Ok(Stream::Tcp(stream)),
                #[cfg(feature = "tls")]
                Some(encryption) => encryption
                    .connect(host, stream)
                    .await
                    .map(|stream| Stream::Tls(Box::new(stream))),
                #[cfg(not(feature = "tls"))]
                Some(never) => match *never {},
            }
        }
        #[cfg(unix)]
        Address::Unix(path) => UnixStream::connect(path)
            .await
            .map(Stream::Unix)
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
            Stream::Tcp($s) => $call,
            #[cfg(unix)]
            Stream::Unix($s) => $call,
            #[cfg(feature = "tls")]
            Stream::Tls($s) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), s => Pin::new(s).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), s => Pin::new(s).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), s => Pin::new(s).poll_shutdown(cx))
    }
}
