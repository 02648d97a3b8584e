//! A slot is held to the last byte, and not for longer.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tollgate::Concurrency;
use tollgate::http::ConcurrencyLayer;

use super::{in_use, limit};
use crate::support::{Server, Store, stores};

type Chunks = Arc<Mutex<mpsc::Receiver<Result<&'static str, &'static str>>>>;

/// Streams what the test sends.
async fn streamed(State(chunks): State<Chunks>) -> Body {
    let chunks = stream::unfold(chunks, |chunks| async move {
        let next = chunks.lock().await.recv().await?;
        Some((next, chunks))
    });
    Body::from_stream(chunks)
}

struct Streaming {
    server: Server,
    chunks: mpsc::Sender<Result<&'static str, &'static str>>,
    slots: Concurrency,
}

async fn streaming(
    store: &Store,
    change: impl FnOnce(ConcurrencyLayer) -> ConcurrencyLayer,
) -> Streaming {
    let slots = limit(store, 1);
    let (chunks, received) = mpsc::channel(16);
    let app = Router::new()
        .route("/stream", get(streamed))
        .route("/text", get(async || "text"))
        .route("/empty", get(async || ()))
        .route("/nothing", get(async || StatusCode::NO_CONTENT))
        .route("/panic", get(|| async { panic!("the handler") as () }))
        .route("/never", get(std::future::pending::<()>))
        .layer(change(ConcurrencyLayer::new(&slots)))
        .with_state(Arc::new(Mutex::new(received)));
    Streaming {
        server: Server::start(app).await,
        chunks,
        slots,
    }
}

impl Streaming {
    /// A request on a connection of its own, of which the head has been read.
    async fn open(&self, path: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.server.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        connection
    }
}

async fn read_until(connection: &mut TcpStream, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let mut buffer = [0; 1_024];
        let length = connection.read(&mut buffer).await.unwrap();
        assert!(length > 0, "closed after {read:?}");
        read.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    read
}

#[tokio::test]
async fn b115_s110_a_streamed_response_has_its_slot_to_the_last_byte() {
    for store in stores().await {
        let it = streaming(&store, |layer| layer).await;
        let mut response = it.open("/stream").await;
        it.chunks.send(Ok("first")).await.unwrap();
        let head = read_until(&mut response, "first").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(it.server.get("/text").await.status, 503, "{}", store.name);
        it.chunks.send(Ok("second")).await.unwrap();
        read_until(&mut response, "second").await;
        assert_eq!(it.server.get("/text").await.status, 503);
        drop(it.chunks);
        // Whoever has read the end may ask at once.
        read_until(&mut response, "0\r\n\r\n").await;
        assert_eq!(it.server.get("/text").await.status, 200);
        in_use(&it.slots, 0).await;
    }
}

#[tokio::test]
async fn s110_by_setting_the_slot_is_free_when_the_handler_returns() {
    for store in stores().await {
        let it = streaming(&store, ConcurrencyLayer::until_handler_returns).await;
        let mut response = it.open("/stream").await;
        it.chunks.send(Ok("first")).await.unwrap();
        read_until(&mut response, "first").await;
        assert_eq!(it.server.get("/text").await.status, 200);
        in_use(&it.slots, 0).await;
    }
}

#[tokio::test]
async fn b115_responses_without_a_body_and_short_ones_are_done_at_once() {
    for store in stores().await {
        let it = streaming(&store, |layer| layer).await;
        let client = it.server.client(1);
        for turn in 0..25 {
            let head = client.send(Method::HEAD, "/text", &[]).await;
            assert_eq!(head.status, 200, "turn {turn} on {}", store.name);
            for (path, status) in [("/nothing", 204), ("/empty", 200), ("/text", 200)] {
                let answer = client.get(path).await;
                assert_eq!(
                    answer.status, status,
                    "{path}, turn {turn} on {}",
                    store.name
                );
            }
        }
    }
}

#[tokio::test]
async fn b115_a_body_that_fails_or_whose_client_is_gone_frees_the_slot() {
    for store in stores().await {
        let it = streaming(&store, |layer| layer).await;
        let mut response = it.open("/stream").await;
        it.chunks.send(Ok("first")).await.unwrap();
        read_until(&mut response, "first").await;
        assert_eq!(it.slots.in_use(ConcurrencyLayer::KEY).await.unwrap(), 1);
        it.chunks.send(Err("broken")).await.unwrap();
        in_use(&it.slots, 0).await;

        let mut response = it.open("/stream").await;
        it.chunks.send(Ok("first")).await.unwrap();
        read_until(&mut response, "first").await;
        assert_eq!(it.slots.in_use(ConcurrencyLayer::KEY).await.unwrap(), 1);
        drop(response);
        in_use(&it.slots, 0).await;
        assert_eq!(it.server.get("/text").await.status, 200);
    }
}

#[tokio::test]
async fn b114_a_client_that_leaves_and_a_handler_that_panics_free_the_slot() {
    for store in stores().await {
        let it = streaming(&store, |layer| layer).await;
        let request = it.open("/never").await;
        in_use(&it.slots, 1).await;
        assert_eq!(it.server.get("/text").await.status, 503);
        drop(request);
        in_use(&it.slots, 0).await;
        assert_eq!(it.server.get("/text").await.status, 200, "{}", store.name);

        let mut request = it.open("/panic").await;
        let mut rest = Vec::new();
        let _ = request.read_to_end(&mut rest).await;
        assert!(rest.is_empty());
        in_use(&it.slots, 0).await;
        assert_eq!(it.server.get("/text").await.status, 200);
    }
}

#[tokio::test]
async fn frames_pass_as_they_are_trailers_and_lengths_too() {
    use tower::{ServiceExt as _, service_fn};
    let [store, _] = stores().await;
    let slots = limit(&store, 1);
    let service = tower::ServiceBuilder::new()
        .layer(ConcurrencyLayer::new(&slots))
        .service(service_fn(|_: http::Request<()>| async {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let body = http_body_util::Full::<Bytes>::from("data")
                .with_trailers(async { Some(Ok::<_, Infallible>(trailers)) })
                .boxed();
            Ok::<_, Infallible>(http::Response::new(body))
        }));
    let response = service.oneshot(http::Request::new(())).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(format!("{body:?}"), "ResponseBody(held)");
    let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(data, "data");
    // The trailers are part of it.
    assert_eq!(slots.in_use(ConcurrencyLayer::KEY).await.unwrap(), 1);
    let trailers = body
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_trailers()
        .unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    assert!(body.frame().await.is_none());
    in_use(&slots, 0).await;
}
