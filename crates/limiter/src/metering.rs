//! Metrics, through the `metrics` facade. Labels come only from what is configured: the name of the
//! limiter, names of policies, and fixed words.
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `tollgate_enforcing` | gauge, 1 or 0 | limiter |
//! | `tollgate_breaker_state` | gauge, 0 closed, 1 half-open, 2 open | limiter |
//! | `tollgate_decisions_total` | counter | limiter, policy, outcome, origin |
//! | `tollgate_unenforced_decisions_total` | counter | limiter, policy, reason |
//! | `tollgate_backend_seconds` | histogram of the calls that had to wait | limiter |
//! | `tollgate_coalesced_charges` | histogram of the charges in a trip of those that waited | limiter |
//! | `tollgate_coalesced_waiting` | gauge of the charges left waiting when a trip leaves | limiter |
//!
//! Handles are made when a limiter or a policy is, so the recorder must be installed before.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tollgate_core::{Decision, ErrorKind, Origin};

use crate::BreakerState;
use crate::coalesced::Meters;

pub(crate) fn enforcing(limiter: &str) -> Gauge {
    gauge!("tollgate_enforcing", "limiter" => limiter.to_owned())
}

pub(crate) fn breaker_state(limiter: &str) -> Gauge {
    gauge!("tollgate_breaker_state", "limiter" => limiter.to_owned())
}

pub(crate) const fn breaker_value(state: BreakerState) -> f64 {
    match state {
        BreakerState::Closed => 0.0,
        BreakerState::HalfOpen => 1.0,
        BreakerState::Open => 2.0,
    }
}

pub(crate) fn waited(limiter: &str) -> Histogram {
    histogram!("tollgate_backend_seconds", "limiter" => limiter.to_owned())
}

/// Only where there is something to measure.
pub(crate) fn coalesced(limiter: &str, on: bool) -> Meters {
    if !on {
        return Meters::none();
    }
    Meters {
        charges: histogram!("tollgate_coalesced_charges", "limiter" => limiter.to_owned()),
        waiting: gauge!("tollgate_coalesced_waiting", "limiter" => limiter.to_owned()),
    }
}

pub(crate) fn unenforced(limiter: &str, policy: &str, reason: ErrorKind) -> Counter {
    counter!(
        "tollgate_unenforced_decisions_total",
        "limiter" => limiter.to_owned(),
        "policy" => policy.to_owned(),
        "reason" => reason.as_str(),
    )
}

/// The counters of one policy, one for each way a decision can come about.
pub(crate) struct Decisions {
    shared: [Counter; 2],
    remembered: Counter,
    local: [Counter; 2],
    open: Counter,
    closed: Counter,
}

impl Decisions {
    pub(crate) fn new(limiter: &str, policy: &str) -> Self {
        let counter = |allowed: bool, origin: Origin| {
            counter!(
                "tollgate_decisions_total",
                "limiter" => limiter.to_owned(),
                "policy" => policy.to_owned(),
                "outcome" => if allowed { "admitted" } else { "refused" },
                "origin" => origin.as_str(),
            )
        };
        Self {
            shared: [false, true].map(|allowed| counter(allowed, Origin::Shared)),
            remembered: counter(false, Origin::RememberedRefusal),
            local: [false, true].map(|allowed| counter(allowed, Origin::LocalFallback)),
            open: counter(true, Origin::FailOpen),
            closed: counter(false, Origin::FailClosed),
        }
    }

    pub(crate) fn count(&self, decision: &Decision) {
        let allowed = usize::from(decision.allowed());
        let counter = match decision.origin() {
            Origin::RememberedRefusal => &self.remembered,
            Origin::LocalFallback => &self.local[allowed],
            Origin::FailOpen => &self.open,
            Origin::FailClosed => &self.closed,
            _ => &self.shared[allowed],
        };
        counter.increment(1);
    }
}
