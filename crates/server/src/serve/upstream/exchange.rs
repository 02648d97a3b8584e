//! One request on a connection to the upstream, while its answer comes.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::Instant;

use super::connection::Connection;
use super::pool::Pool;

/// An answer's body that comes, and the connection it comes by, which ends with it if it does not
/// come to its end.
#[derive(Debug)]
pub(in crate::serve) struct Exchange {
    body: Incoming,
    connection: Option<Connection>,
    pool: Arc<Pool>,
    start: Instant,
    /// How long the next part may take.
    idle: Duration,
    /// When all of it must be there.
    end: Option<Instant>,
    /// Since when the next part is awaited.
    waiting: Option<Instant>,
}

/// Why an answer did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum Broken {
    /// The upstream broke off.
    #[error("the upstream broke off")]
    Off(#[source] hyper::Error),
    /// The next part, or all of it, did not come in time.
    #[error("the upstream did not go on with its answer, or end it, in time")]
    Stalled,
}

impl Exchange {
    pub(super) const fn new(
        body: Incoming,
        connection: Connection,
        pool: Arc<Pool>,
        start: Instant,
        idle: Duration,
        end: Option<Instant>,
    ) -> Self {
        Self {
            body,
            connection: Some(connection),
            pool,
            start,
            idle,
            end,
            waiting: None,
        }
    }

    /// The next part.
    pub(in crate::serve) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(None);
        };
        match connection.poll_frame(&mut self.body, cx) {
            Poll::Ready(None) => {
                self.complete();
                Poll::Ready(None)
            }
            // Where there is always more, nothing is waited for.
            Poll::Ready(Some(Ok(_))) if self.end.is_some_and(|end| Instant::now() >= end) => {
                Poll::Ready(Some(Err(Broken::Stalled)))
            }
            Poll::Ready(frame) => {
                self.waiting = None;
                Poll::Ready(frame.map(|frame| frame.map_err(Broken::Off)))
            }
            Poll::Pending => {
                let waiting = *self.waiting.get_or_insert_with(Instant::now);
                let idle = waiting + self.idle;
                let deadline = self.end.map_or(idle, |end| end.min(idle));
                ready!(connection.poll_late(cx, deadline));
                Poll::Ready(Some(Err(Broken::Stalled)))
            }
        }
    }

    /// What the body knows of itself.
    pub(in crate::serve) const fn body(&self) -> &Incoming {
        &self.body
    }

    /// The answer is there to its last byte: the connection is free for another request.
    fn complete(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.put(self.start, connection);
        }
    }
}

/// Who takes the last byte need not ask for more.
impl Drop for Exchange {
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            self.complete();
        }
    }
}
