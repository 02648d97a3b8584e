//! Sending an admitted request to the upstream and its answer back, both as they come.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode, Version};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tollgate_http::{Problem, RequestId};

use super::answer::{Body, declares_more_than};
use super::forwarding::{forward_request, strip_hop_by_hop};
use super::upload::{Fault, Progress, Upload};
use super::validity::is_plain_chunked;
use crate::config::{Settings, Upstream};

/// The upstream, and the connections to it.
#[derive(Debug)]
pub(super) struct Proxy {
    upstream: Upstream,
    client: Client<HttpConnector, Upload>,
    timeout: Duration,
    max_body: Option<u64>,
}

/// The most idle connections that are kept.
const IDLE_CONNECTIONS: usize = 256;

/// Why there is no answer of the upstream.
struct Failure {
    status: StatusCode,
    detail: &'static str,
}

const fn failure(status: StatusCode, detail: &'static str) -> Failure {
    Failure { status, detail }
}

const TOO_LARGE: Failure = failure(
    StatusCode::PAYLOAD_TOO_LARGE,
    "The body of the request is too large",
);
const BROKEN_OFF: Failure = failure(StatusCode::BAD_REQUEST, "The body of the request broke off");
const CLIENT_LATE: Failure = failure(
    StatusCode::REQUEST_TIMEOUT,
    "The body of the request did not come in time",
);
const UPSTREAM_LATE: Failure = failure(
    StatusCode::GATEWAY_TIMEOUT,
    "The upstream did not answer in time",
);
const UPSTREAM_FAILED: Failure = failure(
    StatusCode::BAD_GATEWAY,
    "The upstream could not be reached, or its answer not be read",
);
const BAD_TARGET: Failure = failure(
    StatusCode::BAD_REQUEST,
    "The path of the request cannot be forwarded",
);

impl Proxy {
    pub(super) fn new(upstream: Upstream, settings: &Settings) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(settings.upstream_timeout));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Self {
            upstream,
            client,
            timeout: settings.upstream_timeout,
            max_body: settings.max_body,
        }
    }

    /// Forwards a request. Dropping the future gives the request up.
    pub(super) async fn forward(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        host: Option<HeaderValue>,
        id: &RequestId,
    ) -> Result<Response<Body>, Problem> {
        match self.try_forward(request, peer, host, id).await {
            Ok(response) => Ok(response),
            Err(Failure { status, detail }) => Err(Problem::new(status, detail)),
        }
    }

    async fn try_forward(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        host: Option<HeaderValue>,
        id: &RequestId,
    ) -> Result<Response<Body>, Failure> {
        if self
            .max_body
            .is_some_and(|most| declares_more_than(request.headers(), most))
        {
            return Err(TOO_LARGE);
        }
        let (mut parts, body) = request.into_parts();
        parts.uri = self
            .upstream
            .target(parts.uri.path_and_query())
            .ok_or(BAD_TARGET)?;
        parts.version = Version::HTTP_11;
        parts.extensions.clear();
        forward_request(&mut parts.headers, peer, host.as_ref());
        id.write(&mut parts.headers);

        let (upload, progress) = Upload::new(body, self.max_body);
        let mut response = self
            .send(Request::from_parts(parts, upload), &progress, id)
            .await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(UPSTREAM_FAILED);
        }
        let headers = response.headers_mut();
        if !is_plain_chunked(headers) {
            tracing::warn!(request_id = %id, "the upstream used a transfer coding but chunked");
            return Err(UPSTREAM_FAILED);
        }
        if headers.contains_key(TRANSFER_ENCODING) {
            // The body was read by chunks, so a length beside them says nothing true.
            headers.remove(CONTENT_LENGTH);
        }
        *response.version_mut() = Version::HTTP_11;
        strip_hop_by_hop(response.headers_mut());
        Ok(response.map(Either::Right))
    }

    /// Waits for the head of the answer: `timeout` from the last part of the request that the
    /// upstream took.
    async fn send(
        &self,
        request: Request<Upload>,
        progress: &Arc<Progress>,
        id: &RequestId,
    ) -> Result<Response<Incoming>, Failure> {
        let mut answer = std::pin::pin!(self.client.request(request));
        loop {
            let deadline = progress.latest() + self.timeout;
            match tokio::time::timeout_at(deadline, &mut answer).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => {
                    return Err(match progress.fault() {
                        Some(Fault::TooLarge) => TOO_LARGE,
                        Some(Fault::Client) => BROKEN_OFF,
                        None => {
                            let error = &error as &dyn std::error::Error;
                            tracing::warn!(request_id = %id, error, "the upstream failed");
                            UPSTREAM_FAILED
                        }
                    });
                }
                Err(_) if progress.latest() + self.timeout > deadline => {}
                Err(_) if progress.waits_for_client() => return Err(CLIENT_LATE),
                Err(_) => {
                    tracing::warn!(request_id = %id, "the upstream did not answer in time");
                    return Err(UPSTREAM_LATE);
                }
            }
        }
    }
}
