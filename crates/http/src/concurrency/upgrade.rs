//! A connection that is upgraded, to a WebSocket say, has its slot for as long as its handler has
//! the connection.
//!
//! A handler is given the connection long after the layer has seen its response, in a task of its
//! own, and nothing tells the layer when it lets go. So the handler is given the other end of a
//! pipe, and a task carries bytes between that and the connection. hyper makes connections only of
//! handshakes, so the pipe has one of its own.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode, request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, split};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Slot;

/// How many bytes the pipe holds in each direction.
const ROOM: usize = 16 * 1_024;

const HANDSHAKE: &[u8] = b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: relay\r\n\r\n";

/// What will carry bytes, should the connection be upgraded. Dropped: it will not.
pub(super) struct Relay {
    connection: OnUpgrade,
    near: DuplexStream,
    go: oneshot::Sender<()>,
    pipe: AbortOnDrop,
}

/// The pipe's own handshake ends with it.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Relay {
    /// Puts a pipe in the place of the connection that the request could have.
    pub(super) async fn instead_of(request: &mut request::Parts) -> Option<Self> {
        let connection = request.extensions.remove::<OnUpgrade>()?;
        let (mut near, far) = tokio::io::duplex(ROOM);
        let (give, given) = oneshot::channel();
        let (go, gone) = oneshot::channel();
        // The service is asked once: nobody else writes into the pipe before.
        let once = Mutex::new(Some((give, gone)));
        let service = service_fn(move |mut request: Request<Incoming>| {
            let once = once.lock().unwrap_or_else(PoisonError::into_inner).take();
            async move {
                let mut response = Response::new(String::new());
                if let Some((give, gone)) = once
                    && give.send(hyper::upgrade::on(&mut request)).is_ok()
                    && gone.await.is_ok()
                {
                    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                    let headers = response.headers_mut();
                    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                    headers.insert(UPGRADE, HeaderValue::from_static("relay"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let served = http1::Builder::new()
            .serve_connection(TokioIo::new(far), service)
            .with_upgrades();
        let pipe = AbortOnDrop(tokio::spawn(async move {
            // A pipe that is not used is cut short.
            let _ = served.await;
        }));
        let asked = async {
            near.write_all(HANDSHAKE).await.ok()?;
            given.await.ok()
        };
        let Some(far) = asked.await else {
            request.extensions.insert(connection);
            return None;
        };
        request.extensions.insert(far);
        Some(Self {
            connection,
            near,
            go,
            pipe,
        })
    }

    /// Carries bytes until the handler lets go of its end, in a task that ends then.
    pub(super) fn run(self, slot: Slot) {
        tokio::spawn(async move {
            let _slot = slot;
            let Self {
                connection,
                mut near,
                go,
                pipe,
            } = self;
            let Ok(connection) = connection.await else {
                return;
            };
            if go.send(()).is_err() || !answered(&mut near).await {
                return;
            }
            let (mut from_client, mut to_client) = split(TokioIo::new(connection));
            let (mut from_handler, mut to_handler) = split(near);
            let up = async {
                let _ = copy(&mut from_client, &mut to_handler).await;
                // The handler reads that the client is gone, and may finish.
                let _ = to_handler.shutdown().await;
                std::future::pending::<()>().await;
            };
            let down = async {
                let _ = copy(&mut from_handler, &mut to_client).await;
                let _ = to_client.shutdown().await;
            };
            tokio::select! {
                () = down => {}
                () = up => {}
            }
            drop(pipe);
        });
    }
}

/// Reads the head of the pipe's own response, and not a byte more.
async fn answered(near: &mut DuplexStream) -> bool {
    let mut last = [0; 4];
    while last != *b"\r\n\r\n" {
        last.rotate_left(1);
        match near.read_u8().await {
            Ok(byte) => last[3] = byte,
            Err(_) => return false,
        }
    }
    true
}
