//! Connections to an upstream that wait for their next request: of one worker, so that what a
//! client's connection and the upstream's do happens in one thread.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::connection::Connection;

/// The most idle connections that are kept. All of them were in use at once, and not long ago.
const MOST: usize = 1024;

/// A connection that nobody needed for so long is closed rather than used: something on the way
/// may have forgotten it.
const LONGEST_IDLE: Duration = Duration::from_secs(90);

/// Idle connections are looked at so often, for those that the upstream has closed.
const LOOK: Duration = Duration::from_secs(1);

/// Idle connections, the oldest first.
#[derive(Debug, Default)]
pub(in crate::serve) struct Pool {
    idle: Mutex<VecDeque<(Instant, Connection)>>,
    /// There is one that was not there.
    filled: Notify,
}

impl Pool {
    /// The connection that was used last and can be used again, if one is there.
    pub(super) fn take(&self, now: Instant) -> Option<Connection> {
        let mut idle = self.idle();
        while let Some((since, mut connection)) = idle.pop_back() {
            if is_old(now, since) {
                // All others are older.
                idle.clear();
            } else if connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection that was given a request at `since`, and has answered it.
    pub(super) fn put(&self, since: Instant, connection: Connection) {
        let mut idle = self.idle();
        if idle.len() >= MOST
            && let Some((_, oldest)) = idle.pop_front()
        {
            oldest.close();
        }
        idle.push_back((since, connection));
        if idle.len() == 1 {
            self.filled.notify_one();
        }
    }

    /// Closes those that nobody needed for too long or the upstream has closed, for ever.
    pub(in crate::serve) async fn sweep(&self) {
        loop {
            if self.idle().is_empty() {
                self.filled.notified().await;
            }
            sleep(LOOK).await;
            self.look(Instant::now());
        }
    }

    fn look(&self, now: Instant) {
        let mut idle = self.idle();
        while let Some((_, old)) = idle.pop_front_if(|(since, _)| is_old(now, *since)) {
            old.close();
        }
        // The others were looked at when they were used.
        let is_recent = |since| now.saturating_duration_since(since) < LOOK;
        idle.retain_mut(|(since, connection)| is_recent(*since) || connection.is_quiet());
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<(Instant, Connection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_old(now: Instant, since: Instant) -> bool {
    now.saturating_duration_since(since) > LONGEST_IDLE
}
