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
            // The others may be younger: one with a long answer comes back late.
            if is_old(now, since) {
                connection.close();
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

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::serve::upstream::stream::Stream;

    #[tokio::test]
    async fn one_with_a_long_answer_takes_no_other_away() {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut connections = Vec::new();
        let mut others = Vec::new();
        for _ in 0..2 {
            let stream = TcpStream::connect(upstream.local_addr().unwrap()).await;
            connections.push(Connection::new(Stream::Plain(stream.unwrap())));
            others.push(upstream.accept().await.unwrap());
        }
        tokio::time::pause();
        let long_ago = Instant::now();
        tokio::time::advance(2 * LONGEST_IDLE).await;
        let now = Instant::now();
        let pool = Pool::default();
        pool.put(now, connections.remove(0));
        pool.put(long_ago, connections.remove(0));
        assert!(pool.take(now).is_some(), "the younger one");
        assert!(pool.take(now).is_none(), "the older one is closed");
    }
}
