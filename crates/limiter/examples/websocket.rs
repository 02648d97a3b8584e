//! Connections and messages of WebSockets: `cargo run -p tollgate --features ws --example websocket`.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::any;
use tollgate::http::{ClientIp, RateLimitLayer, ws};
use tollgate::{Limiter, Quota, RateLimit};

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn echo(
    State(messages): State<RateLimit>,
    ClientIp(client): ClientIp,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(move |socket| talk(socket, messages, client.to_string()))
}

async fn talk(mut socket: WebSocket, messages: RateLimit, client: String) {
    while let Some(Ok(message)) = socket.recv().await {
        // An error is a cost that never fits; what a store's silence means is `on_failure`.
        if let Ok(Some(wait)) = messages.hit(&client).await {
            // 1008, with the seconds to wait as the reason.
            return ws::close_limited(socket, wait).await;
        }
        if let Message::Text(_) = message
            && socket.send(message).await.is_err()
        {
            return;
        }
    }
}

/// 5 connections and 20 messages a minute for each client.
pub(crate) fn app(limiter: &Limiter) -> Result<Router, Error> {
    let messages = limiter.policy("messages", Quota::parse_list("20/minute")?)?;
    // A browser cannot see a 429 on a handshake, so it is told by a close frame.
    let connections = RateLimitLayer::new(limiter.rule("5/minute")?).ws_close();
    let app = Router::new().route("/echo", any(echo)).layer(connections);
    Ok(app.with_state(messages))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let app = app(&limiter)?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
