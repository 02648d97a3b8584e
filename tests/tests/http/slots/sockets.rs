//! WebSockets hold a slot while they are connected, whatever their handler does.

use axum::Router;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::any;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tollgate::http::ConcurrencyLayer;

use super::{in_use, limit};
use crate::support::{Server, Store, stores};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Knows nothing of slots.
async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|mut socket| async move {
        let _ = socket.send(Message::Text("welcome".into())).await;
        while let Some(Ok(message)) = socket.recv().await {
            match message {
                Message::Text(text) if text == "bye" => return,
                message @ (Message::Text(_) | Message::Binary(_)) => {
                    let sent = socket.send(message).await;
                    if sent.is_err() {
                        return;
                    }
                }
                _ => {}
            }
        }
    })
}

async fn start(layer: ConcurrencyLayer) -> Server {
    Server::start(Router::new().route("/ws", any(echo)).layer(layer)).await
}

async fn connect(server: &Server) -> Result<Socket, tungstenite::Error> {
    let url = format!("ws://{}/ws", server.address);
    connect_async(url).await.map(|(socket, _)| socket)
}

async fn receive(socket: &mut Socket) -> tungstenite::Message {
    socket.next().await.unwrap().unwrap()
}

async fn closed(server: &Server) -> (u16, String) {
    let mut socket = connect(server).await.unwrap();
    match receive(&mut socket).await {
        tungstenite::Message::Close(Some(frame)) => (frame.code.into(), frame.reason.to_string()),
        other => panic!("{other:?}"),
    }
}

async fn refused(server: &Server) -> (u16, String) {
    match connect(server).await {
        Err(tungstenite::Error::Http(response)) => (
            response.status().as_u16(),
            response.headers()["retry-after"].to_str().unwrap().into(),
        ),
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[tokio::test]
async fn s107_a_socket_has_its_slot_while_it_is_connected() {
    for store in stores().await {
        let ocr = limit(&store, 1);
        let server = start(ConcurrencyLayer::new(&ocr)).await;
        let mut socket = connect(&server).await.unwrap();
        assert_eq!(receive(&mut socket).await.into_text().unwrap(), "welcome");
        // Through the pipe and back, in pieces and at once.
        let large = vec![7; 3 << 20];
        socket.send(large.clone().into()).await.unwrap();
        assert_eq!(receive(&mut socket).await.into_data(), large);
        assert_eq!(ocr.in_use(ConcurrencyLayer::KEY).await.unwrap(), 1);
        assert_eq!(refused(&server).await, (503, "1".into()), "{}", store.name);

        // The client closes; the client vanishes; the handler returns.
        socket.close(None).await.unwrap();
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
        in_use(&ocr, 0).await;
        let mut socket = connect(&server).await.unwrap();
        receive(&mut socket).await;
        drop(socket);
        in_use(&ocr, 0).await;
        let mut socket = connect(&server).await.unwrap();
        receive(&mut socket).await;
        socket.send("bye".into()).await.unwrap();
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
        in_use(&ocr, 0).await;
        drop(connect(&server).await.unwrap());
    }
}

#[tokio::test]
async fn s107_a_handshake_that_is_refused_by_the_handler_holds_nothing() {
    let [store, _] = stores().await;
    let ocr = limit(&store, 1);
    let app = Router::new()
        .route("/ws", any(async || "no socket"))
        .layer(ConcurrencyLayer::new(&ocr));
    let server = Server::start(app).await;
    for _ in 0..5 {
        assert!(matches!(
            connect(&server).await,
            Err(tungstenite::Error::Http(response)) if response.status() == 200
        ));
    }
    in_use(&ocr, 0).await;
}

fn per_client(store: &Store) -> ConcurrencyLayer {
    let mine = store.limiter.concurrency("mine", 1).per_client();
    mine.layer().unwrap()
}

#[tokio::test]
async fn s107_by_setting_sockets_are_accepted_and_closed_with_1013_or_1008() {
    for store in stores().await {
        let server = start(ConcurrencyLayer::new(&limit(&store, 1)).ws_close()).await;
        let mut held = connect(&server).await.unwrap();
        receive(&mut held).await;
        assert_eq!(
            closed(&server).await,
            (1013, "no slot is free, try again later".into())
        );
        // What is no handshake is answered as ever.
        assert_eq!(server.get("/ws").await.status, 503);

        let server = start(per_client(&store)).await;
        let mut mine = connect(&server).await.unwrap();
        receive(&mut mine).await;
        assert_eq!(refused(&server).await.0, 429);
        let server = start(per_client(&store).ws_close()).await;
        let (code, reason) = closed(&server).await;
        assert_eq!(code, 1008);
        assert!(reason.starts_with("too many connections"), "{reason}");
        drop((held, mine));
    }
}
