//! A connection to an upstream. It has no task of its own: whoever waits for the answer drives it,
//! so that a request goes out and its answer comes in without a switch to another task.
//!
//! HTTP/1.1 is spoken here, and not by hyper's client: that took 23,000 instructions a request,
//! which are 9,000 now, for queues and channels that one request at a time does not need
//! (docs/adr/0010-http-to-upstreams.md).

use super::stream::Stream;
use crate::serve::patience::Patience;

/// A connection on which nothing is on its way.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    /// Of those who wait for answers.
    pub(super) patience: Patience,
}

impl Connection {
    /// One over a stream that is open.
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            patience: Patience::default(),
        }
    }

    /// Whether it can take a request: nothing has come for which nobody asked, not even the end.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet()
    }

    /// Closes it as its protocol wants it.
    pub(super) fn close(self) {
        self.stream.close();
    }
}
