//! Requests, as the service sees them: handles are made once, so that a request costs a few atomic
//! additions.

use std::time::Duration;

use http::{Method, StatusCode};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was let through.
    Admitted,
    /// There was no room for it: 429.
    Refused,
    /// It could not be decided or carried out: 5xx of our own.
    Failed,
    /// It was wrong: 4xx of our own.
    Rejected,
    /// It was for the service itself: probes, rules, usage.
    Local,
}

impl Outcome {
    /// Of an answer that the service gives itself in the place of the backend's.
    pub(crate) fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::TOO_MANY_REQUESTS => Self::Refused,
            status if status.is_server_error() => Self::Failed,
            _ => Self::Rejected,
        }
    }

    /// What metrics and traces call it.
    #[cfg(feature = "otlp")]
    pub(crate) fn as_str(self) -> &'static str {
        let named = OUTCOMES.iter().find(|(outcome, _)| *outcome == self);
        named.map_or("other", |(_, name)| *name)
    }
}

/// In the order of their definition.
const OUTCOMES: [(Outcome, &str); 5] = [
    (Outcome::Admitted, "admitted"),
    (Outcome::Refused, "refused"),
    (Outcome::Failed, "failed"),
    (Outcome::Rejected, "rejected"),
    (Outcome::Local, "local"),
];

/// Those that have a series of their own; a client may make up any number of others.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];
const OTHER: usize = METHODS.len();

/// The handles.
#[derive(Clone)]
pub(crate) struct Requests {
    in_flight: Gauge,
    seconds: [Histogram; OUTCOMES.len()],
    total: [[Counter; METHODS.len() + 1]; OUTCOMES.len()],
}

impl Requests {
    /// Of the recorder that is there now.
    pub(crate) fn new() -> Self {
        let method = |index: usize| {
            METHODS
                .get(index)
                .map_or("other", Method::as_str)
                .to_owned()
        };
        Self {
            in_flight: gauge!("tollgate_requests_in_flight"),
            seconds: OUTCOMES
                .map(|(_, outcome)| histogram!("tollgate_request_seconds", "outcome" => outcome)),
            total: OUTCOMES.map(|(_, outcome)| {
                std::array::from_fn(|index| {
                    counter!(
                        "tollgate_requests_total",
                        "outcome" => outcome,
                        "method" => method(index),
                    )
                })
            }),
        }
    }

    /// A request has come. What is answered counts it while it is held.
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.increment(1.0);
        InFlight(self)
    }

    /// A request was answered.
    pub(crate) fn end(&self, method: &Method, outcome: Outcome, took: Duration) {
        let row = outcome as usize;
        let column = METHODS.iter().position(|it| it == method);
        self.total[row][column.unwrap_or(OTHER)].increment(1);
        self.seconds[row].record(took.as_secs_f64());
    }
}

/// A request whose answer has not begun.
pub(crate) struct InFlight<'a>(&'a Requests);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.decrement(1.0);
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}
