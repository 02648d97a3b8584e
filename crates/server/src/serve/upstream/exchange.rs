//! One request on a connection to the upstream, while its answer comes.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::pool::{Connection, Pool};

/// The connection that an answer comes by. If the answer does not come to its end, the connection
/// ends with it.
#[derive(Debug)]
pub(in crate::serve) struct Exchange {
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

/// The answer did not go on in time.
#[derive(Debug, thiserror::Error)]
#[error("the upstream did not go on with its answer in time")]
pub(in crate::serve) struct Stalled;

impl Exchange {
    pub(super) const fn new(
        connection: Connection,
        pool: Arc<Pool>,
        start: Instant,
        idle: Duration,
        end: Option<Instant>,
    ) -> Self {
        Self {
            connection: Some(connection),
            pool,
            start,
            idle,
            end,
            waiting: None,
        }
    }

    /// A part of the answer came.
    pub(in crate::serve) const fn goes_on(&mut self) {
        self.waiting = None;
    }

    /// The next part is not there: ready if that has been so for too long.
    pub(in crate::serve) fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Stalled> {
        let Some(connection) = &mut self.connection else {
            return Poll::Pending;
        };
        let waiting = *self.waiting.get_or_insert_with(Instant::now);
        let idle = waiting + self.idle;
        let deadline = self.end.map_or(idle, |end| end.min(idle));
        connection.patience.poll(cx, deadline).map(|()| Stalled)
    }

    /// The answer is there to its last byte: the connection is free for another request.
    pub(in crate::serve) fn complete(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.put(self.start, connection);
        }
    }
}
