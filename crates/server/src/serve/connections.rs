//! Accepting connections, and letting them end.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client_stream::{ClientStream, Sending};
use super::gateway::Gateway;
use super::signals::{Signals, Stop};
use crate::config::Settings;

/// The most bytes of a connection that are held at once; the head of a request must fit.
const BUFFER: usize = 72 * 1024;

/// How long to wait when the system has no more files or memory for a connection.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Serves until a signal, and then as long as it takes, within the settings' bounds.
///
/// After SIGTERM it keeps accepting for a while, so that a balancer sees `/ready` fail before
/// connections are refused; then it listens no more, and requests in flight finish. A second signal
/// ends each of these phases at once.
pub(super) async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    settings: &Settings,
    signals: &mut Signals,
) {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_timeout)
        .max_buf_size(BUFFER);
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(
        settings.max_connections.min(Semaphore::MAX_PERMITS),
    ));
    let mut connections = JoinSet::new();
    let mut closing: Option<Instant> = None;
    loop {
        tokio::select! {
            (stream, peer, slot) = accept(&listener, &slots) => {
                let gateway = Arc::clone(&gateway);
                let watcher = graceful.watcher();
                let patience = settings.header_timeout;
                let connection = connection(&server, (stream, peer), patience, gateway, watcher);
                connections.spawn(async move {
                    connection.await;
                    drop(slot);
                });
            }
            Some(_) = connections.join_next() => {}
            stop = signals.next() => {
                if closing.is_some() {
                    break;
                }
                gateway.drain();
                let delay = match stop {
                    Stop::Terminate => settings.drain_delay,
                    Stop::Interrupt => Duration::ZERO,
                };
                tracing::info!(signal = ?stop, "stopping");
                closing = Some(Instant::now() + delay);
            }
            () = at(closing) => break,
        }
    }
    drop(listener);
    finish(connections, graceful, settings.shutdown_timeout, signals).await;
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let slot = Arc::clone(slots).acquire_owned().await;
    let slot = slot.expect("this semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer, slot),
            Err(error) => {
                use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
                if !matches!(
                    error.kind(),
                    ConnectionAborted | ConnectionRefused | ConnectionReset
                ) {
                    tracing::error!(%error, "no connection can be accepted");
                    tokio::time::sleep(EXHAUSTED).await;
                }
            }
        }
    }
}

/// Serves one connection to its end.
fn connection(
    server: &http1::Builder,
    (stream, peer): (TcpStream, SocketAddr),
    patience: Duration,
    gateway: Arc<Gateway>,
    watcher: Watcher,
) -> impl Future<Output = ()> + Send + use<> {
    // Answers are written whole; without this a small one would wait for the client's next packet.
    let _ = stream.set_nodelay(true);
    let sending = Sending::default();
    let stream = ClientStream::new(stream, patience, sending.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let gateway = Arc::clone(&gateway);
        sending.set(!request.body().is_end_stream());
        async move { Ok::<_, Infallible>(gateway.handle(request, peer.ip()).await) }
    });
    let connection = watcher.watch(server.serve_connection(TokioIo::new(stream), service));
    async move {
        if let Err(error) = connection.await {
            // Clients that break off, speak no HTTP or are too slow.
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "a connection ended"
            );
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Lets requests in flight finish.
async fn finish(
    mut connections: JoinSet<()>,
    graceful: GracefulShutdown,
    within: Duration,
    signals: &mut Signals,
) {
    let outcome = tokio::select! {
        () = graceful.shutdown() => "finished",
        () = tokio::time::sleep(within) => "timed out",
        _ = signals.next() => "interrupted",
    };
    if outcome != "finished" {
        while connections.try_join_next().is_some() {}
        tracing::warn!(open = connections.len(), outcome, "connections were cut");
    }
    connections.shutdown().await;
}
