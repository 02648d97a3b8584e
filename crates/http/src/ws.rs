//! WebSockets of axum: closing with a reason where HTTP has no room for a status.

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::response::IntoResponse;
use http::header::UPGRADE;
use http::{Response, request};
use tollgate_core::{NoSlot, Origin};

use crate::{Limited, ResponseBody};

/// A limit was met: policy violation.
pub const CLOSE_LIMITED: u16 = 1008;
/// No slot is free, or the limit cannot be checked: try again later.
pub const CLOSE_FULL: u16 = 1013;

const FULL: &str = "no slot is free, try again later";
const UNCHECKED: &str = "limits cannot be checked, try again later";

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
    close(socket, CLOSE_LIMITED, &rate_reason(wait)).await;
}

fn rate_reason(wait: std::time::Duration) -> String {
    let seconds = crate::seconds::ceil(wait).max(1);
    format!("rate limit exceeded, retry after {seconds}s")
}

/// Closes with 1013: there is no room at the moment.
///
/// A socket that is gone already is closed.
pub async fn close_full(socket: WebSocket) {
    close(socket, CLOSE_FULL, FULL).await;
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
    let decision = limited.decision();
    if decision.origin() == Origin::FailClosed {
        return close_at_once(request, CLOSE_FULL, UNCHECKED.into());
    }
    let reason = rate_reason(decision.retry_after().unwrap_or_default());
    close_at_once(request, CLOSE_LIMITED, reason)
}

/// The same where there is no slot.
pub(crate) fn closed_without_slot<B>(
    request: &mut request::Parts,
    no_slot: &NoSlot,
) -> Response<ResponseBody<B>> {
    let (code, reason) = match no_slot {
        NoSlot::Full {
            per_client: true, ..
        } => (
            CLOSE_LIMITED,
            "too many connections at the same time, close one first",
        ),
        NoSlot::Full { .. } => (CLOSE_FULL, FULL),
        _ => (CLOSE_FULL, UNCHECKED),
    };
    close_at_once(request, code, reason.into())
}

fn close_at_once<B>(
    request: &mut request::Parts,
    code: u16,
    reason: String,
) -> Response<ResponseBody<B>> {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use axum::extract::FromRequestParts;

    let upgrade = pin!(WebSocketUpgrade::from_request_parts(request, &()))
        .poll(&mut Context::from_waker(Waker::noop()));
    let response = match upgrade {
        Poll::Ready(Ok(upgrade)) => {
            upgrade.on_upgrade(move |socket| async move { close(socket, code, &reason).await })
        }
        Poll::Ready(Err(rejection)) => rejection.into_response(),
        Poll::Pending => unreachable!("a handshake is all in the request"),
    };
    response.map(|_| ResponseBody::empty())
}
