//! WebSockets: a handshake that is passed on becomes a tunnel, and one that is refused may be
//! accepted and closed, so that a browser's script learns why.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{Method, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional};
use tokio::time::{Instant, timeout};

use super::forwarding::tokens;
use super::patience::Patience;
use super::upstream::Switched;

/// Whether a request asks for a WebSocket.
pub(super) fn is_handshake(parts: &Parts) -> bool {
    parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && parts.headers.contains_key(UPGRADE)
        && agrees(&parts.headers)
}

/// The client's end of what a request's connection becomes.
pub(super) fn client_of(parts: &mut Parts) -> Option<OnUpgrade> {
    parts.extensions.remove()
}

/// Whether a message says that the connection is to become a WebSocket.
pub(super) fn agrees(headers: &HeaderMap) -> bool {
    let says = |name: &HeaderName, word: &str| {
        tokens(headers, name).any(|token| token.eq_ignore_ascii_case(word.as_bytes()))
    };
    says(&CONNECTION, "upgrade") && says(&UPGRADE, "websocket")
}

/// Writes what says so.
pub(super) fn agree(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

/// Both ends of a WebSocket, once their handshakes are over.
#[derive(Debug)]
pub(super) struct Tunnel {
    client: OnUpgrade,
    to: To,
}

#[derive(Debug)]
enum To {
    Upstream(Switched, Duration),
    Close(Close),
}

/// Why a WebSocket is closed as soon as it is open.
#[derive(Clone, Copy, Debug)]
pub(super) enum Close {
    /// Too many requests, or too many at once by one client.
    Limited,
    /// All places are taken.
    Full,
}

/// So long a client may take to close its side.
const CLOSING: Duration = Duration::from_secs(2);

impl Tunnel {
    /// A tunnel that ends when nothing passes for so long.
    pub(super) const fn new(client: OnUpgrade, upstream: Switched, idle: Duration) -> Self {
        Self {
            client,
            to: To::Upstream(upstream, idle),
        }
    }

    pub(super) const fn closing(client: OnUpgrade, close: Close) -> Self {
        Self {
            client,
            to: To::Close(close),
        }
    }

    /// Passes everything on, until one side ends; then drops what was held.
    pub(super) async fn run<T: Send>(self, held: T) {
        if let Err(error) = self.serve().await {
            tracing::debug!(
                error = &*error as &dyn std::error::Error,
                "a WebSocket ended"
            );
        }
        drop(held);
    }

    async fn serve(self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match self.to {
            To::Upstream(upstream, idle) => {
                let client = self.client.await?;
                pass(TokioIo::new(client), upstream, idle).await?;
            }
            To::Close(close) => {
                let mut client = TokioIo::new(self.client.await?);
                client.write_all(&close.frame()).await?;
                client.flush().await?;
                // Until the client closes, too: it may have to read the frame, yet.
                let mut rest = (&mut client).take(1 << 16);
                let mut nowhere = tokio::io::sink();
                let _ = timeout(CLOSING, tokio::io::copy(&mut rest, &mut nowhere)).await;
                client.shutdown().await?;
            }
        }
        Ok(())
    }
}

impl Close {
    /// A close frame with its code and reason (RFC 6455, 5.5.1).
    fn frame(self) -> Vec<u8> {
        let (code, reason): (u16, &str) = match self {
            Self::Limited => (1008, "Rate limit exceeded"),
            Self::Full => (1013, "Try again later"),
        };
        let length = u8::try_from(2 + reason.len()).expect("the reasons are short");
        let mut frame = vec![0x88, length];
        frame.extend(code.to_be_bytes());
        frame.extend(reason.as_bytes());
        frame
    }
}

/// The answer to the key of a handshake, if that is a proper one (RFC 6455, 4.2.1).
pub(super) fn accept(headers: &HeaderMap) -> Option<HeaderValue> {
    const SALT: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let key = headers.get(SEC_WEBSOCKET_KEY)?.as_bytes();
    let proper = BASE64_STANDARD.decode(key).is_ok_and(|key| key.len() == 16)
        && headers.get(SEC_WEBSOCKET_VERSION)? == "13";
    if !proper {
        return None;
    }
    let digest = ring::digest::digest(
        &ring::digest::SHA1_FOR_LEGACY_USE_ONLY,
        &[key, SALT].concat(),
    );
    HeaderValue::from_str(&BASE64_STANDARD.encode(digest)).ok()
}

/// Writes the answer to a handshake.
pub(super) fn accepted(headers: &mut HeaderMap, accept: HeaderValue) {
    agree(headers);
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
}

/// Copies both ways until both have ended, or nothing has come for `idle`.
async fn pass<A, B>(client: A, upstream: B, idle: Duration) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let moved = AtomicBool::new(false);
    let mut client = Noting(client, &moved);
    let mut upstream = Noting(upstream, &moved);
    let mut patience = Patience::default();
    let mut latest = Instant::now();
    let mut copying = pin!(copy_bidirectional(&mut client, &mut upstream));
    poll_fn(|cx| {
        if let Poll::Ready(ended) = copying.as_mut().poll(cx) {
            return Poll::Ready(ended.map(|_| ()));
        }
        if moved.swap(false, Ordering::Relaxed) {
            latest = Instant::now();
        }
        ready!(patience.poll(cx, latest + idle));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "nothing was sent for too long",
        )))
    })
    .await
}

/// One end of a tunnel, which notes when something comes from there.
struct Noting<'a, T>(T, &'a AtomicBool);

impl<T: AsyncRead + Unpin> AsyncRead for Noting<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.0).poll_read(cx, into);
        if read.is_ready() {
            self.1.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Noting<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_answered_as_rfc_6455_says() {
        let mut headers = HeaderMap::new();
        assert_eq!(accept(&headers), None);
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        headers.insert(SEC_WEBSOCKET_KEY, key);
        assert_eq!(accept(&headers), None, "no version");
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        let answer = accept(&headers).unwrap();
        assert_eq!(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("c2hvcnQ="));
        assert_eq!(accept(&headers), None, "too short");
    }

    #[tokio::test]
    async fn a_tunnel_in_which_nothing_passes_ends() {
        tokio::time::pause();
        let (client, mut far) = tokio::io::duplex(64);
        let (upstream, mut other) = tokio::io::duplex(64);
        let start = Instant::now();
        let passing = pass(client, upstream, Duration::from_secs(60));
        let talking = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                far.write_all(b"x").await.unwrap();
                other.read_exact(&mut [0; 1]).await.unwrap();
            }
        };
        let (ended, ()) = tokio::join!(passing, talking);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // The runtime's timers are late by a millisecond or two, each.
        let late = start.elapsed().checked_sub(Duration::from_secs(150 + 60));
        assert!(
            late.is_some_and(|late| late < Duration::from_millis(50)),
            "{late:?}"
        );
    }
}
