//! The body of a request on its way to the upstream: watched, bounded, never held.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::Instant;

/// The body of a request on its way.
#[derive(Debug)]
pub(super) enum Upload {
    /// There is none.
    None,
    /// A client's body that tells how it gets on.
    Watched {
        body: Incoming,
        progress: Arc<Progress>,
        left: u64,
        /// hyper takes a stream of HTTP/2 that is reset without an error for one that has ended.
        may_be_reset: bool,
    },
}

/// How a body gets on; what decides whether the upstream is late or the client is.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
    /// Milliseconds from `start` to the latest part that was passed on.
    latest: AtomicU64,
    waits_for_client: AtomicBool,
    fault: AtomicU8,
}

/// Why a body could not be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is larger than allowed.
    TooLarge,
    /// The client broke off, or sent no valid body.
    Client,
}

/// The body broke off; [`Progress::fault`] says why.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request broke off")]
pub(super) struct BrokenOff;

impl Upload {
    /// Watches a body of at most `most` bytes, of a request that began at `start`.
    pub(super) fn new(
        body: Incoming,
        version: Version,
        most: Option<u64>,
        start: Instant,
    ) -> (Self, Option<Arc<Progress>>) {
        if body.is_end_stream() {
            return (Self::None, None);
        }
        let progress = Arc::new(Progress {
            start,
            latest: AtomicU64::new(0),
            waits_for_client: AtomicBool::new(false),
            fault: AtomicU8::new(0),
        });
        let watched = Arc::clone(&progress);
        let left = most.unwrap_or(u64::MAX);
        let upload = Self::Watched {
            body,
            progress,
            left,
            may_be_reset: version >= Version::HTTP_2,
        };
        (upload, Some(watched))
    }

    /// How many bytes it has, if that is known.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::None => Some(0),
            Self::Watched { body, .. } => body.size_hint().exact(),
        }
    }

    /// The next part.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let Self::Watched {
            body,
            progress,
            left,
            may_be_reset,
        } = self
        else {
            return Poll::Ready(None);
        };
        progress.waits_for_client.store(true, Ordering::Relaxed);
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        progress.waits_for_client.store(false, Ordering::Relaxed);
        progress.passed();
        Poll::Ready(match frame {
            None if *may_be_reset && !body.is_end_stream() => {
                Some(Err(progress.fail(Fault::Client)))
            }
            None => None,
            Some(Err(_)) => Some(Err(progress.fail(Fault::Client))),
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                match left.checked_sub(length) {
                    Some(rest) => {
                        *left = rest;
                        Some(Ok(frame))
                    }
                    None => Some(Err(progress.fail(Fault::TooLarge))),
                }
            }
        })
    }
}

impl Progress {
    /// When the latest part was passed on; the start, before any was.
    pub(super) fn latest(&self) -> Instant {
        self.start + Duration::from_millis(self.latest.load(Ordering::Relaxed))
    }

    /// Whether the next part has yet to come from the client.
    pub(super) fn waits_for_client(&self) -> bool {
        self.waits_for_client.load(Ordering::Relaxed)
    }

    /// Why the body broke off, if it did.
    pub(super) fn fault(&self) -> Option<Fault> {
        match self.fault.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Fault::TooLarge),
            _ => Some(Fault::Client),
        }
    }

    fn passed(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.latest.store(millis, Ordering::Relaxed);
    }

    fn fail(&self, fault: Fault) -> BrokenOff {
        let number = match fault {
            Fault::TooLarge => 1,
            Fault::Client => 2,
        };
        self.fault.store(number, Ordering::Relaxed);
        BrokenOff
    }
}
