//! Serving one connection to its end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::body::Body;
use super::client_stream::ClientStream;
use super::early::Early;
use super::patience::Patience;
use super::peer::Peer;
use super::tls::HTTP2;
use super::worker::{Accepted, Shared};

/// Serves a connection.
pub(super) async fn serve(accepted: Accepted, shared: Arc<Shared>) {
    let Accepted {
        stream,
        address,
        slot,
    } = accepted;
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::error!(%error, "a connection could not be served");
            return;
        }
    };
    let tls = shared.tls.as_ref().map(|tls| tls.acceptor());
    let peer = Arc::new(Peer::new(address, tls.is_some(), slot));
    let mut stream = ClientStream::new(stream, shared.patience, Arc::clone(&peer));
    let ended = match tls {
        None => match begun(stream.begins_http2(), &shared).await {
            // In boxes: what most connections have room for stays small.
            Some(true) => Box::pin(http2(stream, peer, &shared)).await,
            Some(false) => http1(stream, peer, &shared).await,
            None => return,
        },
        Some(tls) => match Box::pin(begun(tls.accept(stream), &shared)).await {
            Some(stream) if stream.get_ref().1.alpn_protocol() == Some(HTTP2) => {
                Box::pin(http2(stream, peer, &shared)).await
            }
            Some(stream) => Box::pin(http1(stream, peer, &shared)).await,
            None => return,
        },
    };
    if let Err(error) = ended {
        // Clients that break off, speak no HTTP or are too slow.
        let error = &error as &dyn std::error::Error;
        tracing::debug!(error, "a connection ended");
    }
}

/// What a connection begins with, within the time for it. None of it is lost when draining begins:
/// nothing has been asked for yet.
async fn begun<T>(beginning: impl Future<Output = io::Result<T>>, shared: &Shared) -> Option<T> {
    let told = shared.drain.told();
    if shared.drain.begun() {
        return None;
    }
    tokio::select! {
        begun = timeout(shared.patience, beginning) => match begun {
            Ok(Ok(begun)) => Some(begun),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection did not begin");
                None
            }
            Err(_) => None,
        },
        () = told => None,
    }
}

async fn http1<I>(stream: I, peer: Arc<Peer>, shared: &Arc<Shared>) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service(&peer, shared);
    let stream = Early::new(stream, Arc::clone(&peer), Arc::clone(shared));
    let io = TokioIo::new(stream.clone());
    let connection = pin!(shared.http1.serve_connection(io, service).with_upgrades());
    let early = Some(stream);
    bounded(
        connection,
        |it| it.graceful_shutdown(),
        early,
        &peer,
        shared,
    )
    .await
}

async fn http2<I>(stream: I, peer: Arc<Peer>, shared: &Arc<Shared>) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service(&peer, shared);
    let connection = pin!(shared.http2.serve_connection(TokioIo::new(stream), service));
    let early = None::<Early<I>>;
    bounded(
        connection,
        |it| it.graceful_shutdown(),
        early,
        &peer,
        shared,
    )
    .await
}

/// What answers the requests of a peer.
fn service(
    peer: &Arc<Peer>,
    shared: &Arc<Shared>,
) -> impl Service<
    Request<Incoming>,
    Response = Response<Body>,
    Error = Infallible,
    Future: Future<Output = Result<Response<Body>, Infallible>> + Send,
> + use<> {
    let (peer, shared) = (Arc::clone(peer), Arc::clone(shared));
    service_fn(move |request: Request<Incoming>| {
        let (peer, shared) = (Arc::clone(&peer), Arc::clone(&shared));
        let (mut parts, body) = request.into_parts();
        peer.set_sending(!body.is_end_stream());
        async move {
            let gateway = &shared.gateway;
            Ok::<_, Infallible>(gateway.handle(&mut parts, body, &peer, &shared).await)
        }
    })
}

/// Serves until the connection ends, or is idle for too long; once draining begins it ends with
/// its next answer.
#[expect(clippy::future_not_send, reason = "it is, for a connection that is")]
async fn bounded<C: Future<Output = hyper::Result<()>>, I: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Pin<&mut C>,
    end: impl Fn(Pin<&mut C>),
    early: Option<Early<I>>,
    peer: &Peer,
    shared: &Shared,
) -> hyper::Result<()> {
    let mut told = pin!(shared.drain.told());
    let mut idle = Idle::new(shared.patience);
    let (mut listening, mut ending) = (false, false);
    poll_fn(|cx| {
        // Once is enough: the task is the same at every poll.
        if !listening {
            let _ = told.as_mut().poll(cx);
            listening = true;
        }
        if !ending && shared.drain.begun() {
            ending = true;
            end(connection.as_mut());
        }
        if let Some(early) = &early
            && !ending
            && early.poll(cx).is_pending()
            && idle.is_waiting()
        {
            return Poll::Pending;
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        let answered = early.as_ref().and_then(Early::answered);
        ready!(idle.poll(cx, peer, answered));
        // HTTP/2 says goodbye; the first version just closes.
        end(connection.as_mut());
        match connection.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    })
    .await
}

/// How long a peer asks for nothing: for its first request, and between two of them.
struct Idle {
    limit: Duration,
    since: Instant,
    /// How many requests there had been then.
    requests: usize,
    patience: Patience,
}

impl Idle {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            since: Instant::now(),
            requests: 0,
            patience: Patience::default(),
        }
    }

    /// Whether it will be polled when it may be too long.
    fn is_waiting(&self) -> bool {
        self.patience.is_waiting()
    }

    /// Ready if it is too long. The latest request that the server does not know of was `answered`
    /// then.
    fn poll(&mut self, cx: &mut Context<'_>, peer: &Peer, answered: Option<Instant>) -> Poll<()> {
        let Some(requests) = peer.idle_after() else {
            return Poll::Pending;
        };
        if requests != self.requests {
            self.requests = requests;
            self.since = Instant::now();
        }
        self.since = answered.map_or(self.since, |at| at.max(self.since));
        self.patience.poll(cx, self.since + self.limit)
    }
}
