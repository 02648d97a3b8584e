//! A listener of its own for the admin surface, HTTP/1.1.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The most connections at once; operators need few.
const CONNECTIONS: usize = 256;

/// How long a request's head may take, and a connection may be idle.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait when the system has no more files for a connection.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Serves until it is dropped: connections end with it.
pub(crate) async fn serve<H, F, B>(listener: TcpListener, handle: H)
where
    H: Fn(Request<Incoming>, IpAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let handle = Arc::new(handle);
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await;
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::error!(%error, "no connection to the admin surface can be accepted");
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let _ = stream.set_nodelay(true);
        let handle = Arc::clone(&handle);
        connections.spawn(async move {
            let service = service_fn(|request| {
                let answer = handle(request, peer.ip().to_canonical());
                async { Ok::<_, Infallible>(answer.await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "a connection to the admin surface ended");
            }
            drop(slot);
        });
    }
}
