//! Sending an admitted request to the upstream and its answer back, both as they come.

mod connection;
mod dial;
mod exchange;
mod pool;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tollgate_http::RequestId;

use super::answer::{Failure, declares_more_than};
use super::body::Body;
use super::forwarding::{Origin, forward_request, join_cookies, strip_hop_by_hop};
use super::upload::{Fault, Progress, Upload};
use super::validity::is_plain_chunked;
use super::websocket::{self, Tunnel};
use crate::config::{Settings, Upstream};
use crate::traces;
use connection::Connection;
use dial::Dial;

pub(crate) use dial::connector;
pub(super) use exchange::{Broken, Exchange};
pub(super) use pool::Pool;

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
#[expect(
    clippy::large_enum_variant,
    reason = "it is looked at where it is made, and a box would cost more"
)]
enum Attempt {
    /// Not a byte was sent, and here the request is again.
    Unsent(Request<Upload>),
    /// It was sent, in whole or in part, and there is no answer.
    Lost,
    /// Asking again would not help.
    Over(Failure),
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

    /// Forwards a request, whose headers go along. Dropping the future gives the request up.
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
        let (upload, progress) = Upload::new(body, self.max_body, start);
        let handshake = websocket::is_handshake(parts);
        let client = websocket::client_of(parts).filter(|_| handshake);
        let mut request = self.request(parts, upload, origin, id)?;
        if handshake {
            websocket::agree(request.headers_mut());
        }
        let end = self.times.total.map(|total| start + total);
        let waiting = Waiting {
            start,
            end,
            head: self.times.head,
            progress: progress.as_deref(),
        };
        let (mut response, mut connection) = self.ask(request, &waiting, pool, id).await?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        // What the request still sends must not wait until the client takes the answer.
        if switched || progress.as_deref().is_some_and(|it| !it.is_over()) {
            connection.detach();
        }
        if switched {
            return match client {
                Some(client) if websocket::agrees(response.headers()) => {
                    let upstream = hyper::upgrade::on(&mut response);
                    let tunnel = Tunnel::new(client, upstream, self.times.idle);
                    strip_hop_by_hop(response.headers_mut());
                    websocket::agree(response.headers_mut());
                    Ok(response.map(|_| Body::tunnel(tunnel)))
                }
                _ => Err(UPSTREAM_FAILED),
            };
        }
        let (idle, pool) = (self.times.idle, Arc::clone(pool));
        answered(response, id, |body| {
            Exchange::new(body, connection, pool, start, idle, end)
        })
    }

    /// The request as the upstream gets it.
    fn request(
        &self,
        parts: &mut Parts,
        upload: Upload,
        origin: &Origin<'_>,
        id: &RequestId,
    ) -> Result<Request<Upload>, Failure> {
        let mut headers = std::mem::take(&mut parts.headers);
        if parts.version >= Version::HTTP_2 {
            join_cookies(&mut headers);
        }
        forward_request(&mut headers, origin);
        headers.insert(HOST, self.host.clone());
        id.write(&mut headers);
        traces::pass_on(parts, &mut headers);
        let mut request = Request::new(upload);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = self.upstream.target(&parts.uri).ok_or(BAD_TARGET)?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Asks until there is an answer, or no use in asking.
    async fn ask(
        &self,
        mut request: Request<Upload>,
        waiting: &Waiting<'_>,
        pool: &Pool,
        id: &RequestId,
    ) -> Result<(Response<Incoming>, Connection), Failure> {
        let mut left = self.retries;
        let repeatable = left > 0 && waiting.progress.is_none() && is_idempotent(request.method());
        loop {
            let spare = repeatable.then(|| Spare::of(&request));
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
            request = match attempt(&mut connection, request, waiting, id).await {
                Ok(response) => return Ok((response, connection)),
                // It was closed while nobody looked.
                Err(Attempt::Unsent(request)) if !fresh => request,
                Err(Attempt::Unsent(request)) if left > 0 => {
                    left -= 1;
                    request
                }
                Err(Attempt::Lost)
                    if left > 0
                        && let Some(spare) = spare =>
                {
                    left -= 1;
                    spare.request()
                }
                Err(Attempt::Unsent(_) | Attempt::Lost) => return Err(UPSTREAM_FAILED),
                Err(Attempt::Over(failure)) => return Err(failure),
            };
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

/// What it takes to send a request without a body once more.
struct Spare(Method, Uri, HeaderMap);

impl Spare {
    fn of(request: &Request<Upload>) -> Self {
        Self(
            request.method().clone(),
            request.uri().clone(),
            request.headers().clone(),
        )
    }

    fn request(self) -> Request<Upload> {
        let Self(method, uri, headers) = self;
        let mut request = Request::new(Upload::None);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request
    }
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
    request: Request<Upload>,
    waiting: &Waiting<'_>,
    id: &RequestId,
) -> Result<Response<Incoming>, Attempt> {
    let mut answer = std::pin::pin!(connection.send(request));
    let answer = poll_fn(|cx| {
        if let Poll::Ready(answer) = connection.poll_for(cx, |cx| answer.as_mut().poll(cx)) {
            return Poll::Ready(Some(answer));
        }
        loop {
            let deadline = waiting.deadline();
            if connection.poll_late(cx, deadline).is_pending() {
                return Poll::Pending;
            }
            if waiting.deadline() <= deadline {
                return Poll::Ready(None);
            }
        }
    });
    let mut error = match answer.await {
        Some(Ok(response)) => return Ok(response),
        Some(Err(error)) => error,
        None if waiting.progress.is_some_and(Progress::waits_for_client) => {
            return Err(Attempt::Over(CLIENT_LATE));
        }
        None => {
            tracing::warn!(request_id = %id, "the upstream did not answer in time");
            return Err(Attempt::Over(UPSTREAM_LATE));
        }
    };
    if let Some(request) = error.take_message() {
        return Err(Attempt::Unsent(request));
    }
    Err(match waiting.progress.and_then(Progress::fault) {
        Some(Fault::TooLarge) => Attempt::Over(TOO_LARGE),
        Some(Fault::Client) => Attempt::Over(BROKEN_OFF),
        None => {
            let error = error.into_error();
            let error = &error as &dyn std::error::Error;
            tracing::warn!(request_id = %id, error, "the upstream failed");
            Attempt::Lost
        }
    })
}

/// The answer as the client gets it.
fn answered(
    mut response: Response<Incoming>,
    id: &RequestId,
    exchange: impl FnOnce(Incoming) -> Exchange,
) -> Result<Response<Body>, Failure> {
    let headers = response.headers_mut();
    if headers.contains_key(TRANSFER_ENCODING) {
        if !is_plain_chunked(headers) {
            tracing::warn!(request_id = %id, "the upstream used a transfer coding but chunked");
            return Err(UPSTREAM_FAILED);
        }
        // The body was read by chunks, so a length beside them says nothing true.
        headers.remove(CONTENT_LENGTH);
    }
    strip_hop_by_hop(headers);
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(|body| Body::streamed(exchange(body))))
}
