//! A hello-world of axum with and without a layer, ours and another library's, for the drivers that
//! put them side by side.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use axum::routing::get;
use tokio::runtime::{Builder, Runtime};
use tollgate::Limiter;
use tollgate::http::{HeaderStyle, RateLimitLayer};
use tower::util::MapResponseLayer;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_layer::layer_fn;
use tower_service::Service;

/// All rows, by name.
#[must_use]
pub fn apps() -> Vec<(&'static str, Router)> {
    let all = HeaderStyle::IETF | HeaderStyle::TRIPLE | HeaderStyle::X_RATELIMIT;
    vec![
        ("no layer", hello()),
        (
            "a layer that does nothing",
            hello().layer(layer_fn(Nothing)),
        ),
        (
            "8 constant fields, no limit",
            hello().layer(MapResponseLayer::new(constant_fields)),
        ),
        ("tollgate, all headers", hello().layer(ours(all, FULL))),
        // Of which the number that remains is another each time.
        (
            "tollgate, headers that change",
            hello().layer(ours(all, COUNTING)),
        ),
        (
            "tollgate, default headers",
            hello().layer(ours(HeaderStyle::IETF, FULL)),
        ),
        (
            "tollgate, no headers",
            hello().layer(ours(HeaderStyle::NONE, FULL)),
        ),
        ("tower_governor, headers", governor()),
    ]
}

/// The one with this in its name.
///
/// # Panics
/// When there is none.
pub fn app(name: &str) -> Router {
    let found = apps().into_iter().find(|(full, _)| full.contains(name));
    // As a server has it.
    found.expect("there is such an app").1.with_state(())
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "Hello, World!" }))
}

/// What any layer costs, as axum puts it around a route.
#[derive(Clone)]
struct Nothing<S>(S);

impl<R, S: Service<R>> Service<R> for Nothing<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(request)
    }
}

/// What all headers cost whoever writes them: as many fields of the same names, and nobody counts.
fn constant_fields(mut response: Response) -> Response {
    const FIELDS: [(HeaderName, HeaderValue); 8] = [
        field("ratelimit-policy", "\"api\";q=1000000000;w=1"),
        field("ratelimit", "\"api\";r=999999999;t=1"),
        field("ratelimit-limit", "1000000000"),
        field("ratelimit-remaining", "999999999"),
        field("ratelimit-reset", "1"),
        field("x-ratelimit-limit", "1000000000"),
        field("x-ratelimit-remaining", "999999999"),
        field("x-ratelimit-reset", "1700000000"),
    ];
    let headers = response.headers_mut();
    headers.reserve(FIELDS.len());
    headers.extend(FIELDS);
    response
}

const fn field(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (
        HeaderName::from_static(name),
        HeaderValue::from_static(value),
    )
}

/// Limits that admit all of it.
const FULL: &str = "1000000000/s";
const COUNTING: &str = "1000000000/365d";

fn ours(style: HeaderStyle, quota: &str) -> RateLimitLayer {
    let backend = current_thread().block_on(tollgate::connect("memory://"));
    let limiter = Limiter::builder(backend.expect("memory is there")).build();
    let quota = quota.parse().expect("it is one");
    let limit = limiter.policy("api", [quota]).expect("the name is free");
    RateLimitLayer::new(&limit).headers(style)
}

fn governor() -> Router {
    let config = GovernorConfigBuilder::default()
        .per_nanosecond(1)
        .burst_size(u32::MAX)
        .use_headers()
        .finish();
    let config = Arc::new(config.expect("it is one"));
    hello().layer(GovernorLayer::new(config))
}

/// One request without any network.
///
/// # Panics
/// When the answer takes waiting, which nothing here does.
pub fn call(app: &mut Router) -> Response {
    let mut request = Request::new(Body::empty());
    let peer = SocketAddr::from(([127, 0, 0, 1], 50_000));
    request.extensions_mut().insert(ConnectInfo(peer));
    let mut answering = pin!(app.call(request));
    match answering
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(Ok(response)) => response,
        _ => unreachable!("memory answers at once"),
    }
}

/// A runtime of this thread.
///
/// # Panics
/// When the machine has no room for one.
#[must_use]
pub fn current_thread() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a thread has a runtime")
}
