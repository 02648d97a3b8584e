//! A thread that serves connections, with its own connections to the upstreams: all that one
//! request needs happens in one thread.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::connection;
use super::gateway::Gateway;
use super::known::Memo;
use super::open::{Drain, Open, Slot};
use super::tls::Tls;
use super::upstream::Pool;
use crate::config::Settings;

/// The most bytes of a connection that are held at once; the head of a request must fit.
const BUFFER: usize = 72 * 1024;

/// The most requests of one HTTP/2 connection at once.
const STREAMS: u32 = 128;

/// How many bytes of bodies an HTTP/2 client may be ahead.
const WINDOW: u32 = 1 << 20;

/// What the connections of one thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) gateway: Arc<Gateway>,
    pub(super) drain: Arc<Drain>,
    /// One for each of the gateway's upstreams.
    pub(super) pools: Box<[Arc<Pool>]>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) http1: http1::Builder,
    pub(super) http2: http2::Builder<TokioExecutor>,
    /// How long a client may take to send the head of a request, or take no part of an answer.
    pub(super) patience: Duration,
    /// The requests that were refused here.
    pub(super) memo: Mutex<Memo>,
}

impl Shared {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        drain: Arc<Drain>,
        tls: Option<Arc<Tls>>,
        settings: &Settings,
    ) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            // `Peer` and `connection` see to it, with a timer that is set less often.
            .header_read_timeout(None)
            .max_buf_size(BUFFER);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(BUFFER as u32)
            // Of all streams together: what a client may send that no upstream has taken yet.
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW / 4);
        Self {
            pools: gateway.targets().iter().map(|_| Arc::default()).collect(),
            gateway,
            drain,
            tls,
            http1,
            http2,
            patience: settings.header_timeout,
            memo: Mutex::new(Memo::new()),
        }
    }
}

/// A connection that was accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) address: IpAddr,
    pub(super) slot: Slot,
}

/// A running thread.
#[derive(Debug)]
pub(super) struct Worker {
    inbox: UnboundedSender<Accepted>,
    open: Arc<Open>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts one.
    pub(super) fn start(number: usize, shared: Shared) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (inbox, accepted) = unbounded_channel();
        let thread = std::thread::Builder::new()
            .name(format!("tollgate-{number}"))
            .spawn(move || {
                runtime.block_on(serve(accepted, Arc::new(shared)));
                runtime.shutdown_background();
            })?;
        Ok(Self {
            inbox,
            open: Arc::default(),
            thread,
        })
    }

    /// How many connections it has; `None` if it has ended, which none does before the program.
    pub(super) fn load(&self) -> Option<usize> {
        (!self.inbox.is_closed()).then(|| self.open.count())
    }

    /// Gives it a connection.
    pub(super) fn give(&self, stream: TcpStream, address: IpAddr, permit: OwnedSemaphorePermit) {
        let slot = self.open.enter(permit);
        let accepted = Accepted {
            stream,
            address,
            slot,
        };
        if self.inbox.send(accepted).is_err() {
            tracing::error!("a connection was lost: its worker has ended");
        }
    }

    /// Waits until it has no connection.
    pub(super) async fn idle(&self) {
        self.open.none().await;
    }

    /// Ends it, and the connections that are left.
    pub(super) fn stop(self) {
        drop(self.inbox);
        if self.thread.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}

async fn serve(mut accepted: UnboundedReceiver<Accepted>, shared: Arc<Shared>) {
    for pool in &shared.pools {
        let pool = Arc::clone(pool);
        tokio::spawn(async move { pool.sweep().await });
    }
    while let Some(accepted) = accepted.recv().await {
        tokio::spawn(connection::serve(accepted, Arc::clone(&shared)));
    }
}
