//! Connections to an upstream that wait for their next request: of one worker, so that what a
//! client's connection and the upstream's do happens in one thread.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use crate::serve::patience::Patience;
use crate::serve::upload::Upload;

/// The most idle connections that are kept.
const MOST: usize = 256;

/// A connection that nobody needed for so long is closed rather than used: something on the way
/// may have forgotten it.
const LONGEST_IDLE: Duration = Duration::from_secs(90);

/// A connection to the upstream.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<Upload>,
    pub(super) patience: Patience,
}

/// Idle connections, the oldest first.
#[derive(Debug, Default)]
pub(in crate::serve) struct Pool(Mutex<VecDeque<(Instant, Connection)>>);

impl Pool {
    /// The connection that was used last, if one is there.
    pub(super) fn take(&self, now: Instant) -> Option<Connection> {
        let mut idle = self.idle();
        while let Some((since, connection)) = idle.pop_back() {
            if now.saturating_duration_since(since) > LONGEST_IDLE {
                // All others are older.
                idle.clear();
                return None;
            }
            if connection.sender.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection that was given a request at `since`, and has answered it.
    pub(super) fn put(&self, since: Instant, connection: Connection) {
        // One whose request is still being sent, though it is answered, is not ready.
        if !connection.sender.is_ready() {
            return;
        }
        let mut idle = self.idle();
        if idle
            .front()
            .is_some_and(|(oldest, _)| since.saturating_duration_since(*oldest) > LONGEST_IDLE)
            || idle.len() >= MOST
        {
            idle.pop_front();
        }
        idle.push_back((since, connection));
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<(Instant, Connection)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
