//! Sending an admitted request to the upstream and its answer back, both as they come.

mod chunks;
mod connection;
mod dial;
mod exchange;
mod framing;
mod head;
mod outgoing;
mod pool;
mod reading;
mod stream;
mod unreadable;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tollgate_http::RequestId;

use super::answer::{Failure, declares_more_than};
use super::body::Body;
use super::forwarding::{Origin, forward_request, write};
use super::upload::{Fault, Progress, Upload};
use super::websocket::{self, Tunnel};
use crate::config::{Settings, Upstream};
use crate::traces;
use connection::Connection;
use dial::Dial;
use exchange::Source;
use head::Head;
use outgoing::{Outgoing, Unsent};
use reading::Beginning;

pub(crate) use dial::connector;
pub(super) use exchange::{Broken, Exchange};
pub(super) use pool::Pool;
pub(super) use stream::Switched;

/// An upstream, and how it is treated.
#[derive(Debug)]
pub(super) struct Target {
    upstream: Upstream,
    host: HeaderValue,
    dial: Dial,
    times: Times,
    retries: u32,
    max_body: Option<u64>,
}

/// How long what may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// From the last part of the request to the head of the answer.
    head: Duration,
    /// Between two parts of the answer.
    idle: Duration,
    /// All of it.
    total: Option<Duration>,
}

const TOO_LARGE: Failure = Failure(
    StatusCode::PAYLOAD_TOO_LARGE,
    "The body of the request is too large",
);
const BROKEN_OFF: Failure = Failure(StatusCode::BAD_REQUEST, "The body of the request broke off");
const CLIENT_LATE: Failure = Failure(
    StatusCode::REQUEST_TIMEOUT,
    "The body of the request did not come in time",
);
const UPSTREAM_LATE: Failure = Failure(
    StatusCode::GATEWAY_TIMEOUT,
    "The upstream did not answer in time",
);
const UPSTREAM_FAILED: Failure = Failure(
    StatusCode::BAD_GATEWAY,
    "The upstream could not be reached, or its answer not be read",
);
const BAD_TARGET: Failure = Failure(
    StatusCode::BAD_REQUEST,
    "The path of the request cannot be forwarded",
);

/// Why an attempt came to nothing.
enum Attempt {
    /// Not a byte was sent.
    Unsent,
    /// It was sent, in whole or in part, and there is no answer.
    Lost,
    /// Asking again would not help.
    Over(Failure),
}

/// An answer as far as it came with its head, and the connection it comes by.
struct Begun {
    head: Head,
    unread: Bytes,
    connection: Connection,
}

impl Target {
    /// `tls` is what encrypted upstreams are met with.
    pub(super) fn new(upstream: Upstream, settings: &Settings, tls: Option<&TlsConnector>) -> Self {
        Self {
            host: upstream.host(),
            dial: Dial::new(&upstream, &settings.proxy, tls),
            times: Times {
                head: settings.upstream_timeout,
                idle: settings.proxy.idle_timeout,
                total: settings.proxy.request_timeout,
            },
            retries: settings.proxy.retries,
            max_body: settings.max_body,
            upstream,
        }
    }

    /// Forwards a request, which has no headers after that. Dropping the future gives the request
    /// up.
    pub(super) async fn forward(
        &self,
        parts: &mut Parts,
        body: Incoming,
        origin: &Origin<'_>,
        id: &RequestId,
        pool: &Arc<Pool>,
    ) -> Result<Response<Body>, Failure> {
        if self
            .max_body
            .is_some_and(|most| declares_more_than(&parts.headers, most))
        {
            return Err(TOO_LARGE);
        }
        let start = Instant::now();
        let end = self.times.total.map(|total| start + total);
        let (upload, progress) = Upload::new(body, parts.version, self.max_body, start);
        let client = match websocket::is_handshake(parts) {
            true => Some(websocket::client_of(parts)),
            false => None,
        };
        let head = self.head(parts, client.is_some(), origin, id)?;
        let mut outgoing = Outgoing::new(head, &parts.headers, origin, upload);
        let waiting = Waiting {
            start,
            end,
            head: self.times.head,
            progress: progress.as_deref(),
        };
        let asking = self.ask(&mut outgoing, parts, &waiting, pool, id);
        let Begun {
            head,
            unread,
            connection,
        } = asking.await?;
        let mut headers = std::mem::take(&mut parts.headers);
        let (status, reason) = (head.status, head.reason);
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return match client.flatten() {
                Some(client) if head.is_websocket && outgoing.is_over() => {
                    websocket::agree(&mut headers);
                    let upstream = Switched::new(unread, connection.stream);
                    let tunnel = Tunnel::new(client, upstream, self.times.idle);
                    Ok(answered(status, reason, headers, Body::tunnel(tunnel)))
                }
                _ => Err(UPSTREAM_FAILED),
            };
        }
        let times = exchange::Times {
            start: waiting.start,
            idle: self.times.idle,
            end: waiting.end,
        };
        let keep = (head.keeps_alive && outgoing.is_sent_whole()).then(|| Arc::clone(pool));
        let connection = match progress {
            Some(progress) if !outgoing.is_over() => {
                Source::shared(connection, outgoing, progress, &times)
            }
            _ => Source::Whole(connection),
        };
        let mut exchange = Exchange::new(connection, head.framing, unread, keep, times);
        let body = match exchange.take_whole() {
            Some(body) => Body::whole(body),
            None => Body::streamed(exchange),
        };
        Ok(answered(status, reason, headers, body))
    }

    /// The head of the request as the upstream gets it, but for the framing of its body.
    fn head(
        &self,
        parts: &Parts,
        is_handshake: bool,
        origin: &Origin<'_>,
        id: &RequestId,
    ) -> Result<Vec<u8>, Failure> {
        // Most heads fit.
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(parts.method.as_str().as_bytes());
        out.push(b' ');
        if !self.upstream.write_target(&parts.uri, &mut out) {
            return Err(BAD_TARGET);
        }
        out.extend_from_slice(b" HTTP/1.1\r\n");
        write(&mut out, "host", self.host.as_bytes());
        write(&mut out, RequestId::HEADER.as_str(), id.as_str().as_bytes());
        let traced = traces::pass_on(parts, |name, value| {
            write(&mut out, name.as_str(), value.as_bytes());
        });
        let other = |name: &HeaderName| traced && traces::is_context(name);
        forward_request(parts, origin, other, &mut out);
        if is_handshake {
            write(&mut out, "connection", b"Upgrade");
            write(&mut out, "upgrade", b"websocket");
        }
        Ok(out)
    }

    /// Asks until there is an answer, whose fields take the place and the room of the request's, or
    /// no use in asking.
    async fn ask(
        &self,
        outgoing: &mut Outgoing,
        parts: &mut Parts,
        waiting: &Waiting<'_>,
        pool: &Pool,
        id: &RequestId,
    ) -> Result<Begun, Failure> {
        let mut left = self.retries;
        let repeatable = waiting.progress.is_none() && is_idempotent(&parts.method);
        loop {
            let idle = pool.take(waiting.start);
            let fresh = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                // Rare, and large: what every request has room for stays small.
                None => match Box::pin(self.dial.connect(waiting.end)).await {
                    Ok(connection) => connection,
                    Err(error) => {
                        let error = &*error as &dyn std::error::Error;
                        tracing::warn!(request_id = %id, error, "the upstream was not reached");
                        if left == 0 {
                            return Err(UPSTREAM_FAILED);
                        }
                        left -= 1;
                        continue;
                    }
                },
            };
            parts.headers.clear();
            let asked = attempt(&mut connection, outgoing, parts, waiting, id);
            match asked.await {
                Ok((head, unread)) => {
                    return Ok(Begun {
                        head,
                        unread,
                        connection,
                    });
                }
                // It was closed while nobody looked.
                Err(Attempt::Unsent) if !fresh => {}
                Err(Attempt::Unsent) if left > 0 => left -= 1,
                Err(Attempt::Lost) if left > 0 && repeatable => left -= 1,
                Err(Attempt::Unsent | Attempt::Lost) => return Err(UPSTREAM_FAILED),
                Err(Attempt::Over(failure)) => return Err(failure),
            }
            outgoing.rewind();
        }
    }
}

/// Whether a request may be sent twice (RFC 9110, 9.2.2).
fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

/// What decides how long to wait for the head of the answer.
struct Waiting<'a> {
    start: Instant,
    end: Option<Instant>,
    head: Duration,
    /// Of the body of the request, if it has one.
    progress: Option<&'a Progress>,
}

impl Waiting<'_> {
    /// The time by which the answer must have begun, as it is known now.
    fn deadline(&self) -> Instant {
        let latest = self.progress.map_or(self.start, Progress::latest);
        let head = latest + self.head;
        self.end.map_or(head, |end| end.min(head))
    }
}

/// Sends a request over a connection, and waits for the head of the answer.
async fn attempt(
    connection: &mut Connection,
    outgoing: &mut Outgoing,
    parts: &mut Parts,
    waiting: &Waiting<'_>,
    id: &RequestId,
) -> Result<(Head, Bytes), Attempt> {
    let Connection { stream, patience } = connection;
    let Parts {
        method, headers, ..
    } = parts;
    let mut beginning = Beginning::default();
    let mut sending = true;
    let answer = poll_fn(|cx| {
        if sending && let Poll::Ready(sent) = outgoing.poll_send(stream, cx) {
            sending = false;
            match sent {
                Ok(()) => {}
                Err(Unsent::Body) => return Poll::Ready(Err(Attempt::Over(broken(waiting)))),
                Err(Unsent::Connection(error)) => {
                    tracing::debug!(request_id = %id, %error, "the request was not sent whole");
                    if !outgoing.has_begun() {
                        return Poll::Ready(Err(Attempt::Unsent));
                    }
                    // It may have been answered all the same.
                    outgoing.give_up();
                }
            }
        }
        // What comes before a request is no answer to it.
        if outgoing.has_begun()
            && let Poll::Ready(read) = beginning.poll_head(stream, cx, method, headers)
        {
            return Poll::Ready(read.map_err(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(request_id = %id, error, "the upstream failed");
                Attempt::Lost
            }));
        }
        loop {
            let deadline = waiting.deadline();
            if patience.poll(cx, deadline).is_pending() {
                return Poll::Pending;
            }
            if waiting.deadline() <= deadline {
                return Poll::Ready(Err(Attempt::Over(late(waiting, id))));
            }
        }
    });
    answer.await
}

/// The body of the request broke off.
fn broken(waiting: &Waiting<'_>) -> Failure {
    match waiting.progress.and_then(Progress::fault) {
        Some(Fault::TooLarge) => TOO_LARGE,
        Some(Fault::Client) | None => BROKEN_OFF,
    }
}

/// The answer does not come.
fn late(waiting: &Waiting<'_>, id: &RequestId) -> Failure {
    if waiting.progress.is_some_and(Progress::waits_for_client) {
        return CLIENT_LATE;
    }
    tracing::warn!(request_id = %id, "the upstream did not answer in time");
    UPSTREAM_LATE
}

/// The answer as the client gets it.
fn answered(
    status: StatusCode,
    reason: Option<ReasonPhrase>,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Some(reason) = reason {
        response.extensions_mut().insert(reason);
    }
    response
}
