//! WebSockets of axum: closing with a reason where HTTP has no room for a status.

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::response::IntoResponse;
use http::header::UPGRADE;
use http::{Response, request};
use tollgate_core::Origin;

use crate::{Limited, ResponseBody};

/// A limit was met: policy violation.
pub const CLOSE_LIMITED: u16 = 1008;
/// No slot is free, or the limit cannot be checked: try again later.
pub const CLOSE_FULL: u16 = 1013;

/// Closes with 1008: the client sent more than its limit.
///
/// A socket that is gone already is closed.
///
/// ```
/// use std::time::Duration;
/// use axum::extract::ws::WebSocket;
/// use tollgate_http::ws;
///
/// async fn talk(mut socket: WebSocket, wait: Option<Duration>) {
///     if let Some(wait) = wait {
///         return ws::close_limited(socket, wait).await;
///     }
///     // ..
/// }
/// ```
pub async fn close_limited(socket: WebSocket, wait: std::time::Duration) {
    let seconds = crate::seconds::ceil(wait).max(1);
    close(
        socket,
        CLOSE_LIMITED,
        &format!("rate limit exceeded, retry after {seconds}s"),
    )
    .await;
}

/// Closes with 1013: there is no room at the moment.
///
/// A socket that is gone already is closed.
pub async fn close_full(socket: WebSocket) {
    close(socket, CLOSE_FULL, "no slot is free, try again later").await;
}

async fn close(mut socket: WebSocket, code: u16, reason: &str) {
    let frame = CloseFrame {
        code,
        reason: reason.into(),
    };
    if socket.send(Message::Close(Some(frame))).await.is_ok() {
        // Until the other side has said goodbye too; else the reason may be lost with a reset.
        let goodbye = async { while let Some(Ok(_)) = socket.recv().await {} };
        let _ = tokio::time::timeout(PATIENCE, goodbye).await;
    }
}

/// How long a client may take to close.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// Whether a request asks for a WebSocket.
pub(crate) fn is_handshake(request: &request::Parts) -> bool {
    let named = request.headers.get(UPGRADE);
    named.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Accepts the handshake and closes the socket.
pub(crate) fn closed<B>(
    request: &mut request::Parts,
    limited: &Limited,
) -> Response<ResponseBody<B>> {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use axum::extract::FromRequestParts;

    let decision = limited.decision().clone();
    let upgrade = pin!(WebSocketUpgrade::from_request_parts(request, &()))
        .poll(&mut Context::from_waker(Waker::noop()));
    let response = match upgrade {
        Poll::Ready(Ok(upgrade)) => upgrade.on_upgrade(move |socket| async move {
            if decision.origin() == Origin::FailClosed {
                close(
                    socket,
                    CLOSE_FULL,
                    "limits cannot be checked, try again later",
                )
                .await;
            } else {
                close_limited(socket, decision.retry_after().unwrap_or_default()).await;
            }
        }),
        Poll::Ready(Err(rejection)) => rejection.into_response(),
        Poll::Pending => unreachable!("a handshake is all in the request"),
    };
    response.map(|_| ResponseBody::empty())
}
