//! The layer for clients, which waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tollgate::Limiter;
use tollgate::http::Limited;
use tollgate::http::outbound::WaitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{memory, stores};

fn request(url: &str) -> Request<Full<Bytes>> {
    Request::get(url).body(Full::default()).unwrap()
}

type Answered = Response<Full<Bytes>>;

/// A server that answers these statuses in turn, then 200; the first with `Retry-After`.
fn server(
    statuses: &'static [u16],
    retry_after: &'static str,
) -> (
    impl Service<Request<Full<Bytes>>, Response = Answered, Error = std::io::Error, Future: Send>
    + Clone
    + Send
    + 'static,
    Arc<AtomicUsize>,
) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let service = service_fn(move |_| {
        let call = counter.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut response = Response::new(Full::from("answered"));
            if let Some(status) = statuses.get(call) {
                *response.status_mut() = StatusCode::from_u16(*status).unwrap();
                let value = retry_after.parse().unwrap();
                response.headers_mut().insert("retry-after", value);
            }
            Ok::<_, std::io::Error>(response)
        }
    });
    (service, calls)
}

/// The runtime's clock moves by itself when all sleep; the store counts by it, too.
#[tokio::test(start_paused = true)]
async fn a_request_waits_until_it_fits() {
    let limiter = Limiter::builder(tollgate::connect("memory://").await.unwrap())
        .clock(Paused(Instant::now()))
        .build();
    let api = limiter
        .policy("upstream", ["2/10s".parse().unwrap()])
        .unwrap();
    let (server, calls) = server(&[], "");
    let client = WaitLayer::new(&api).layer(server);
    let start = Instant::now();
    let mut at = Vec::new();
    for _ in 0..4 {
        let response = client
            .clone()
            .oneshot(request("http://a.example/x"))
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        at.push(start.elapsed().as_secs());
    }
    assert_eq!(at, [0, 0, 5, 10]);
    // Another host has a budget of its own, in whatever case it is written.
    for (url, wait) in [
        ("http://b.example/x", 0),
        ("http://B.Example/y", 0),
        ("http://b.example/", 5),
    ] {
        let before = Instant::now();
        client.clone().oneshot(request(url)).await.unwrap();
        assert_eq!(before.elapsed().as_secs(), wait, "{url}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 7);
}

#[derive(Debug)]
struct Paused(Instant);

impl tollgate::Clock for Paused {
    fn now(&self) -> tollgate::Timestamp {
        crate::support::T0 + self.0.elapsed()
    }
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_not_begun() {
    for store in stores().await {
        let api = store.limit("upstream", "1/60s");
        let (server, calls) = server(&[], "");
        let layer = WaitLayer::new(&api).max_wait(Duration::from_secs(59));
        let client = layer.key(|_| tollgate::Key::from("all")).layer(server);
        let first = client
            .clone()
            .oneshot(request("http://a.example/"))
            .await
            .unwrap();
        assert_eq!(first.status(), 200);
        let refused = client
            .clone()
            .oneshot(request("http://b.example/z"))
            .await
            .unwrap();
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "60");
        let limited = refused.extensions().get::<Limited>().unwrap();
        assert_eq!(limited.policy().name(), "upstream");
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["instance"], "/z");
        assert_eq!(calls.load(Ordering::SeqCst), 1, "{}", store.name);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answered_retry_after_is_honoured_by_later_requests() {
    for status in [&[429][..], &[503]] {
        let (server, calls) = server(status, "7");
        let client = WaitLayer::polite().layer(server);
        let start = Instant::now();
        let told = client
            .clone()
            .oneshot(request("http://a.example/"))
            .await
            .unwrap();
        assert_eq!(told.status(), status[0], "it is passed on");
        assert_eq!(told.headers()["retry-after"], "7");
        // Another host is not concerned.
        client
            .clone()
            .oneshot(request("http://b.example/"))
            .await
            .unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
        client
            .clone()
            .oneshot(request("http://a.example/"))
            .await
            .unwrap();
        assert_eq!(start.elapsed().as_secs(), 7);
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    }
    // Longer than it is ready to wait: not sent.
    let (server, calls) = server(&[429], "100");
    let client = WaitLayer::polite().layer(server);
    client
        .clone()
        .oneshot(request("http://a.example/"))
        .await
        .unwrap();
    let unsent = client
        .clone()
        .oneshot(request("http://a.example/"))
        .await
        .unwrap();
    assert_eq!(
        (unsent.status().as_u16(), &unsent.headers()["retry-after"]),
        (429, &"100".parse().unwrap())
    );
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_waits_has_charged_nothing() {
    let store = memory().await;
    let api = store.limit("upstream", "2/60s");
    let layer = WaitLayer::new(&api)
        .cost(2)
        .max_wait(Duration::from_secs(600));
    let (server, calls) = server(&[], "");
    let client = layer.key(|_| tollgate::Key::from("all")).layer(server);
    client
        .clone()
        .oneshot(request("http://a.example/"))
        .await
        .unwrap();
    let mut waiting = Box::pin(client.clone().oneshot(request("http://a.example/")));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    drop(waiting);
    store.clock.advance(Duration::from_secs(60));
    assert_eq!(api.peek("all").await.unwrap().remaining(), Some(2));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}
