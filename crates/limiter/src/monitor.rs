//! The record of whether limits are enforced: one atomic for calls that go well, the rest behind a
//! lock for those that do not.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use metrics::Gauge;
use parking_lot::Mutex;
use tokio::sync::watch;
use tollgate_core::{BackendError, ErrorKind, Timestamp};

use crate::health::degraded;
use crate::time::{Instant, wall_clock};
use crate::{FailurePolicy, metering};

/// A lasting outage is logged again after this long.
const REPEAT: Duration = Duration::from_secs(10);
/// Outages that follow each other faster than this are logged as one.
const SETTLE: Duration = Duration::from_secs(1);

pub(crate) struct Monitor {
    on_failure: FailurePolicy,
    down: AtomicBool,
    unenforced: AtomicU64,
    outage: Mutex<Outage>,
    changes: watch::Sender<u64>,
    enforcing: Gauge,
}

struct Outage {
    /// Of the present state, whichever it is.
    since: Timestamp,
    reason: Option<ErrorKind>,
    /// Whether this outage is in the log, so that its end belongs there too.
    logged: bool,
    logged_at: Option<Instant>,
}

impl Monitor {
    pub(crate) fn new(limiter: &str, on_failure: FailurePolicy) -> Self {
        let enforcing = metering::enforcing(limiter);
        enforcing.set(1.0);
        Self {
            on_failure,
            down: AtomicBool::new(false),
            unenforced: AtomicU64::new(0),
            outage: Mutex::new(Outage {
                since: wall_clock(),
                reason: None,
                logged: false,
                logged_at: None,
            }),
            changes: watch::Sender::new(0),
            enforcing,
        }
    }

    pub(crate) fn enforcing(&self) -> bool {
        !self.down.load(Ordering::Relaxed)
    }

    pub(crate) fn unenforced(&self) -> u64 {
        self.unenforced.load(Ordering::Relaxed)
    }

    /// Enforcing or not, since when, and why not.
    pub(crate) fn read(&self) -> (bool, Timestamp, Option<ErrorKind>) {
        let outage = self.outage.lock();
        (self.enforcing(), outage.since, outage.reason)
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn changed(&self) {
        self.changes.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// The store answered.
    pub(crate) fn answered(&self) {
        if self.down.load(Ordering::Relaxed) {
            self.recovered();
        }
    }

    #[cold]
    fn recovered(&self) {
        let log = {
            let mut outage = self.outage.lock();
            if !self.down.swap(false, Ordering::Relaxed) {
                return;
            }
            self.enforcing.set(1.0);
            outage.since = wall_clock();
            outage.reason = None;
            std::mem::take(&mut outage.logged)
        };
        self.changed();
        if log {
            tracing::info!(
                unenforced = self.unenforced(),
                "rate limits are enforced again: the store answers"
            );
        }
    }

    /// The store did not answer, and `decisions` were made without it.
    #[cold]
    pub(crate) fn failed(&self, error: &BackendError, decisions: u64) {
        self.unenforced.fetch_add(decisions, Ordering::Relaxed);
        let kind = error.kind();
        let (flipped, log) = {
            let mut outage = self.outage.lock();
            let flipped = !self.down.swap(true, Ordering::Relaxed);
            if flipped {
                self.enforcing.set(0.0);
                outage.since = wall_clock();
            }
            if kind != ErrorKind::CircuitOpen || outage.reason.is_none() {
                outage.reason = Some(kind);
            }
            (flipped, outage.is_news())
        };
        if flipped {
            self.changed();
        }
        if log {
            tracing::warn!(
                reason = kind.as_str(),
                %error,
                on_failure = self.on_failure.as_str(),
                unenforced = self.unenforced(),
                "{}",
                degraded(self.on_failure)
            );
        }
    }
}

impl Outage {
    /// Whether to log now.
    fn is_news(&mut self) -> bool {
        let now = Instant::now();
        let pause = if self.logged { REPEAT } else { SETTLE };
        if self.logged_at.is_some_and(|at| now - at < pause) {
            return false;
        }
        self.logged = true;
        self.logged_at = Some(now);
        true
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor")
            .field("enforcing", &self.enforcing())
            .field("unenforced", &self.unenforced())
            .finish()
    }
}
