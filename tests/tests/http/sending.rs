//! What a response cost where that is known only when its last byte has gone, or its client.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::error_handling::HandleError;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use futures_util::{StreamExt, stream};
use http::{Method, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tollgate::RateLimit;
use tollgate::http::{CostMeter, Identity, RateLimitLayer, Rule, Sent, SentEnd, Settle};
use tower::{Layer, service_fn};

use crate::support::{PATIENT, Server, Store, stores};

/// What is left for the client at 127.0.0.1.
async fn left(limit: &RateLimit) -> u64 {
    let key = Identity::new("ip", "127.0.0.1").into_key();
    let peek = limit.peek(&key).await.unwrap();
    peek.remaining().unwrap()
}

/// Waits until so much is left: nobody waits for a settlement, so neither does the client.
async fn settled(store: &Store, limit: &RateLimit, remaining: u64) {
    let until = tokio::time::Instant::now() + PATIENT;
    while left(limit).await != remaining {
        let late = tokio::time::Instant::now() > until;
        assert!(
            !late,
            "{}: {} and not {remaining}",
            store.name,
            left(limit).await
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// All that the hook was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Sent>>>);

impl Told {
    fn hear(&self, sent: &Sent) {
        self.0.lock().unwrap().push(*sent);
    }

    /// The bytes and the end of each.
    fn all(&self) -> Vec<(u64, SentEnd)> {
        let all = self.0.lock().unwrap();
        all.iter().map(|sent| (sent.bytes, sent.end)).collect()
    }
}

/// So many chunks of ten bytes.
fn chunks(count: usize) -> Body {
    let chunk = || Ok::<_, Infallible>(Bytes::from_static(b"0123456789"));
    Body::from_stream(stream::iter((0..count).map(move |_| chunk())))
}

/// A body that goes on as long as the sender does.
fn endless() -> (mpsc::Sender<Result<Bytes, io::Error>>, Body) {
    let (send, mut receive) = mpsc::channel(1);
    let chunks = stream::poll_fn(move |cx| receive.poll_recv(cx));
    (send, Body::from_stream(chunks))
}

/// Asks, reads until this is there, and goes away.
async fn ask_and_leave(server: &Server, path: &str, seen: &[u8]) {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !read.windows(seen.len().max(1)).any(|it| it == seen) && !seen.is_empty() {
        assert!(socket.read_buf(&mut read).await.unwrap() > 0, "{read:?}");
    }
}

#[tokio::test]
async fn a_response_costs_the_bytes_that_were_sent() {
    for store in stores().await {
        let limit = store.limit("bytes", "1000/h");
        let told = Told::default();
        let hear = told.clone();
        let layer = RateLimitLayer::new(Rule::new(&limit).cost(100)).when_sent(move |sent| {
            hear.hear(sent);
            Settle::Cost(sent.bytes)
        });
        let app = Router::new()
            .route("/less", get(|| async { chunks(7) }))
            .route("/more", get(|| async { chunks(25) }))
            .route("/text", get(|| async { "twenty bytes of text" }))
            .route("/none", get(|| async { StatusCode::NO_CONTENT }))
            .layer(layer);
        let server = Server::start(app).await;
        let client = server.client(1);
        let mut remaining = 1000;
        for (path, bytes) in [("/less", 70), ("/more", 250), ("/text", 20), ("/none", 0)] {
            let answer = client.get(path).await;
            assert_eq!(answer.body.len(), bytes, "{path}");
            // The fields have gone before the bytes, and tell what was charged in advance.
            let field = answer.field("ratelimit");
            assert!(
                field.contains(&format!("r={};", remaining - 100)),
                "{field}"
            );
            remaining -= bytes as u64;
            settled(&store, &limit, remaining).await;
        }
        // A body that was not asked for is sent whole at once.
        assert_eq!(client.send(Method::HEAD, "/more", &[]).await.status, 200);
        settled(&store, &limit, remaining).await;
        let sizes = [70, 250, 20, 0, 0].map(|bytes| (bytes, SentEnd::Whole));
        assert_eq!(told.all(), sizes, "{}", store.name);
    }
}

#[tokio::test]
async fn a_handler_counts_what_its_stream_costs() {
    for store in stores().await {
        let limit = store.limit("tokens", "1000/h");
        let complete = || async {
            let meter = CostMeter::new();
            let counting = meter.clone();
            let words = stream::iter(0..42).map(move |_| {
                counting.add(2);
                Ok::<_, Infallible>("word ")
            });
            (Extension(meter), Body::from_stream(words))
        };
        // It goes before the hooks, and needs none.
        let layer = RateLimitLayer::new(Rule::new(&limit).cost(10));
        let hooked = layer
            .clone()
            .refund_when(|_| true)
            .when_sent(|_| Settle::Refund);
        for (layer, remaining) in [(layer, 916), (hooked, 832)] {
            let app = Router::new().route("/a", get(complete)).layer(layer);
            let answer = Server::start(app).await.get("/a").await;
            assert_eq!(answer.body.len(), 42 * 5);
            settled(&store, &limit, remaining).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_goes_away_pays_what_it_was_sent() {
    for store in stores().await {
        let limit = store.limit("bytes", "1000/h");
        let told = Told::default();
        let hear = told.clone();
        let layer = RateLimitLayer::new(Rule::new(&limit).cost(100)).when_sent(move |sent| {
            hear.hear(sent);
            match sent.end {
                SentEnd::Failed => Settle::Refund,
                _ => Settle::Cost(sent.bytes),
            }
        });
        let (waits, mut waiting) = mpsc::channel(1);
        let stream = move |failing: bool| async move {
            let (send, body) = endless();
            send.send(Ok(Bytes::from_static(b"0123456789")))
                .await
                .unwrap();
            if failing {
                tokio::spawn(async move { send.send(Err(io::Error::other("broken"))).await });
            } else {
                // Open until the client is gone.
                tokio::spawn(async move { send.closed().await });
            }
            body
        };
        let wait = move || async move {
            waits.send(()).await.unwrap();
            std::future::pending::<&'static str>().await
        };
        let app = Router::new()
            .route("/stream", get(move || stream(false)))
            .route("/fails", get(move || stream(true)))
            .route("/waits", get(wait))
            .layer(layer);
        let server = Server::start(app).await;
        ask_and_leave(&server, "/stream", b"0123456789").await;
        settled(&store, &limit, 990).await;
        assert_eq!(told.all(), [(10, SentEnd::Left)]);
        // The service fails amid the body.
        ask_and_leave(&server, "/fails", b"0123456789").await;
        settled(&store, &limit, 990).await;
        assert_eq!(told.all()[1], (10, SentEnd::Failed));
        // Gone before there is a response.
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let request = b"GET /waits HTTP/1.1\r\nhost: localhost\r\n\r\n";
        socket.write_all(request).await.unwrap();
        waiting.recv().await.unwrap();
        assert_eq!(left(&limit).await, 890, "it is charged while it runs");
        drop(socket);
        settled(&store, &limit, 990).await;
        assert_eq!(told.all()[2..], [(0, SentEnd::Left)], "{}", store.name);
    }
}

#[tokio::test]
async fn an_error_of_the_service_is_given_back_as_a_5xx_is() {
    for store in stores().await {
        let limit = store.limit("api", "5/h");
        let plain = RateLimitLayer::new(&limit);
        let service = service_fn(|request: Request<Body>| async move {
            match request.uri().path() {
                "/fails" => Err(io::Error::other("the upstream is gone")),
                _ => Ok(Response::new(Body::from("fine"))),
            }
        });
        let serve = |layer: RateLimitLayer| {
            let told = |error: io::Error| async move {
                (StatusCode::BAD_GATEWAY, error.to_string()).into_response()
            };
            let service = HandleError::new(layer.layer(service), told);
            Server::start(Router::new().route_service("/{path}", service))
        };
        let refunding = serve(plain.clone().refund_server_errors()).await;
        for _ in 0..3 {
            let answer = refunding.get("/fails").await;
            assert_eq!(answer.status, 502);
            assert_eq!(&answer.body[..], b"the upstream is gone");
        }
        assert_eq!(left(&limit).await, 5, "{}", store.name);
        assert_eq!(refunding.get("/fine").await.status, 200);
        assert_eq!(left(&limit).await, 4);
        // Unless that was said it stays, and by a hook it is told as failed.
        assert_eq!(serve(plain.clone()).await.get("/fails").await.status, 502);
        assert_eq!(left(&limit).await, 3);
        let hooked = plain.when_sent(|sent| match sent.end {
            SentEnd::Failed => Settle::Refund,
            _ => Settle::Keep,
        });
        assert_eq!(serve(hooked).await.get("/fails").await.status, 502);
        settled(&store, &limit, 3).await;
    }
}

#[tokio::test]
async fn what_the_head_settles_is_not_settled_again() {
    for store in stores().await {
        let limit = store.limit("api", "100/h");
        let layer = RateLimitLayer::new(Rule::new(&limit).cost(10))
            .refund_when(|response| response.status == StatusCode::NOT_FOUND)
            .when_sent(|_| Settle::Cost(50));
        let app = Router::new()
            .route("/none", get(|| async { (StatusCode::NOT_FOUND, "none") }))
            .route("/a", get(|| async { "a" }))
            .layer(layer);
        let server = Server::start(app).await;
        assert_eq!(server.get("/none").await.status, 404);
        assert_eq!(left(&limit).await, 100, "{}", store.name);
        assert_eq!(server.get("/a").await.status, 200);
        settled(&store, &limit, 50).await;
    }
}
