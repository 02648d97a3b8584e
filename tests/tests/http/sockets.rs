//! WebSockets: a handshake is refused, or accepted and closed; messages are counted.

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::any;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tollgate::http::{RateLimitLayer, ws};
use tollgate::{FailurePolicy, RateLimit};

use crate::answers::down;
use crate::support::{Server, stores};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn echo(State(messages): State<RateLimit>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|mut socket| async move {
        while let Some(Ok(Message::Text(text))) = socket.recv().await {
            if let Ok(Some(wait)) = messages.hit("all").cost(text.len() as u64).await {
                return ws::close_limited(socket, wait).await;
            }
            if text == "full" {
                return ws::close_full(socket).await;
            }
            if socket.send(Message::Text(text)).await.is_err() {
                return;
            }
        }
    })
}

async fn connect(server: &Server) -> Result<Socket, tungstenite::Error> {
    let url = format!("ws://{}/ws", server.address);
    connect_async(url).await.map(|(socket, _)| socket)
}

async fn receive(socket: &mut Socket) -> tungstenite::Message {
    socket.next().await.unwrap().unwrap()
}

fn closed(message: tungstenite::Message) -> (u16, String) {
    match message {
        tungstenite::Message::Close(Some(frame)) => (frame.code.into(), frame.reason.to_string()),
        other => panic!("{other:?}"),
    }
}

fn app(messages: RateLimit, layer: RateLimitLayer) -> Router {
    Router::new()
        .route("/ws", any(echo))
        .layer(layer)
        .with_state(messages)
}

#[tokio::test]
async fn s97_connections_are_limited_by_the_handshake_or_closed_with_1008() {
    for store in stores().await {
        let messages = store.limit("messages", "100/60s");
        let connections = RateLimitLayer::new(&store.limit("connections", "2/60s"));
        let server = Server::start(app(messages.clone(), connections.clone())).await;
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(connect(&server).await.unwrap());
        }
        let refused = match connect(&server).await {
            Err(tungstenite::Error::Http(response)) => response,
            other => panic!("{:?}", other.map(|_| ())),
        };
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "30");

        let server = Server::start(app(messages, connections.ws_close())).await;
        let mut socket = connect(&server).await.unwrap();
        let (code, reason) = closed(receive(&mut socket).await);
        assert_eq!(
            (code, &*reason),
            (1008, "rate limit exceeded, retry after 30s")
        );
        // What is no handshake is answered as ever.
        assert_eq!(server.get("/ws").await.status, 429);
    }
}

#[tokio::test]
async fn s97_where_nobody_can_tell_the_socket_is_closed_with_1013() {
    let quotas = || tollgate::Quota::parse_list("9/60s").unwrap();
    let limiter = down(FailurePolicy::Closed).await;
    let limit = limiter.policy("connections", quotas()).unwrap();
    let layer = RateLimitLayer::new(&limit).ws_close();
    let server = Server::start(app(limit, layer)).await;
    let mut socket = connect(&server).await.unwrap();
    let (code, reason) = closed(receive(&mut socket).await);
    let told = "limits cannot be checked, try again later";
    assert_eq!((code, &*reason), (1013, told));
}

#[tokio::test]
async fn s98_messages_are_counted_by_their_cost_and_the_answer_is_the_wait() {
    for store in stores().await {
        let messages = store.limit("messages", "10/60s");
        assert_eq!(messages.hit("other").cost(10).await.unwrap(), None);
        let wait = messages.hit("other").cost(2).await.unwrap();
        assert_eq!(
            wait,
            Some(std::time::Duration::from_secs(12)),
            "{}",
            store.name
        );

        let connections = RateLimitLayer::new(&store.limit("connections", "9/60s"));
        let server = Server::start(app(messages, connections)).await;
        let mut socket = connect(&server).await.unwrap();
        for _ in 0..2 {
            socket.send("hello".into()).await.unwrap();
            assert_eq!(receive(&mut socket).await.into_text().unwrap(), "hello");
        }
        socket.send("hi".into()).await.unwrap();
        let (code, reason) = closed(receive(&mut socket).await);
        assert_eq!(
            (code, &*reason),
            (1008, "rate limit exceeded, retry after 12s")
        );
        store.clock.advance(std::time::Duration::from_secs(60));
        let mut socket = connect(&server).await.unwrap();
        socket.send("full".into()).await.unwrap();
        assert_eq!(closed(receive(&mut socket).await).0, 1013);
    }
}
