//! Accepting connections, and letting them end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::gateway::Gateway;
use super::open::Drain;
use super::signals::{Signals, Stop};
use super::tls::Tls;
use super::worker::Worker;
use crate::config::Settings;

/// How long to wait when the system has no more files or memory for a connection.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// How often certificates are compared with their files.
const RENEWAL: Duration = Duration::from_secs(1);

/// Serves until a signal, and then as long as it takes, within the settings' bounds.
///
/// After SIGTERM it keeps accepting for a while, so that a balancer sees `/ready` fail before
/// connections are refused; then it listens no more, and requests in flight finish. A second signal
/// ends each of these phases at once.
pub(super) async fn serve(
    listener: TcpListener,
    workers: Vec<Worker>,
    gateway: &Gateway,
    drain: &Drain,
    tls: Option<&Tls>,
    settings: &Settings,
    signals: &mut Signals,
) {
    let slots = Arc::new(Semaphore::new(
        settings.max_connections.min(Semaphore::MAX_PERMITS),
    ));
    let mut closing: Option<Instant> = None;
    let mut renewal = tokio::time::interval(RENEWAL);
    loop {
        tokio::select! {
            (stream, peer, slot) = accept(&listener, &slots) => give(&workers, stream, peer, slot),
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
            _ = renewal.tick(), if tls.is_some() => tls.into_iter().for_each(Tls::refresh),
            () = at(closing) => break,
        }
    }
    drop(listener);
    drain.begin();
    finish(&workers, settings.shutdown_timeout, signals).await;
    for worker in workers {
        worker.stop();
    }
}

/// Gives a connection to the worker that has the fewest.
fn give(workers: &[Worker], stream: TcpStream, peer: SocketAddr, slot: OwnedSemaphorePermit) {
    // Answers are written whole; without this a small one would wait for the client's next packet.
    let _ = stream.set_nodelay(true);
    // One that has ended must not look idle.
    let running = workers
        .iter()
        .filter_map(|worker| Some((worker.load()?, worker)));
    let worker = running.min_by_key(|(load, _)| *load);
    match (stream.into_std(), worker) {
        (Ok(stream), Some((_, worker))) => worker.give(stream, peer.ip(), slot),
        (Err(error), _) => tracing::debug!(%error, "a connection was lost"),
        (_, None) => tracing::error!("a connection was lost: all workers have ended"),
    }
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

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Lets requests in flight finish.
async fn finish(workers: &[Worker], within: Duration, signals: &mut Signals) {
    let outcome = tokio::select! {
        () = all_idle(workers) => return,
        () = tokio::time::sleep(within) => "timed out",
        _ = signals.next() => "interrupted",
    };
    let open: usize = workers.iter().filter_map(Worker::load).sum();
    tracing::warn!(open, outcome, "connections were cut");
}

async fn all_idle(workers: &[Worker]) {
    for worker in workers {
        worker.idle().await;
    }
}
