//! What is measured, as Prometheus reads it at `/metrics`. Labels come only from what is configured
//! (names of rules) and from fixed words, never from what a client sent.
//!
//! The library measures through the `metrics` facade; what is said here besides is about requests
//! and rules. With metrics off no recorder is there, and measuring is a test of a pointer.

mod recorder;
mod requests;

use std::sync::Arc;

use recorder::{Recorder, Registry};
pub(crate) use requests::{Outcome, Requests};

/// What Prometheus calls its text format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Bounds of the buckets of times, in seconds.
const SECONDS: [f64; 16] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5,
    10.0, 30.0,
];

/// Bounds of the buckets of numbers.
const NUMBERS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Name, kind, labels, meaning. `docs/metrics.md` is compared with it.
pub(crate) const ALL: &[(&str, Kind, &str, &str)] = &[
    (
        "tollgate_requests_total",
        Kind::Counter,
        "method, outcome",
        "Requests that were answered; methods that are not common are other",
    ),
    (
        "tollgate_request_seconds",
        Kind::Seconds,
        "outcome",
        "How long requests took, from their head to the head of their answer",
    ),
    (
        "tollgate_requests_in_flight",
        Kind::Gauge,
        "",
        "Requests whose answer has not begun",
    ),
    (
        "tollgate_decisions_total",
        Kind::Counter,
        "limiter, policy, outcome, origin",
        "Decisions, by rule, what they were and who made them",
    ),
    (
        "tollgate_unenforced_decisions_total",
        Kind::Counter,
        "limiter, policy, reason",
        "Decisions that the backend did not make, and why",
    ),
    (
        "tollgate_backend_seconds",
        Kind::Seconds,
        "limiter",
        "How long the backend took to decide",
    ),
    (
        "tollgate_enforcing",
        Kind::Gauge,
        "limiter",
        "1 while limits are enforced, else 0",
    ),
    (
        "tollgate_breaker_state",
        Kind::Gauge,
        "limiter",
        "The circuit breaker: 0 closed, 1 half open, 2 open",
    ),
    (
        "tollgate_coalesced_charges",
        Kind::Numbers,
        "limiter",
        "Charges that went to the backend in one trip",
    ),
    (
        "tollgate_coalesced_waiting",
        Kind::Gauge,
        "limiter",
        "Charges that wait for the next trip",
    ),
    (
        "tollgate_rules",
        Kind::Gauge,
        "",
        "Rules that are there, those that are switched off included",
    ),
    (
        "tollgate_rules_healthy",
        Kind::Gauge,
        "source",
        "1 while the rules of the file, and those of the store, can be used, else 0",
    ),
    (
        "tollgate_rules_refreshed_timestamp_seconds",
        Kind::Gauge,
        "",
        "When the rules in force were last read, in seconds since 1970",
    ),
    (
        "tollgate_rules_refreshes_total",
        Kind::Counter,
        "",
        "How often the rules were read",
    ),
    (
        "tollgate_rules_refresh_failures_total",
        Kind::Counter,
        "",
        "How often the rules could not be read from the store",
    ),
    (
        "tollgate_rules_file_failures_total",
        Kind::Counter,
        "",
        "How often the rule file could not be used",
    ),
    (
        "tollgate_rule_limit",
        Kind::Gauge,
        "rule, plan, algorithm, window",
        "How much a rule allows within so many seconds, or at the same time; of the 1,000 limits that go first",
    ),
    (
        "tollgate_shadow_refusals_total",
        Kind::Counter,
        "rule",
        "Requests that a rule would have refused, if it did not just watch",
    ),
];

/// Kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    /// A histogram of times.
    Seconds,
    /// A histogram of numbers.
    Numbers,
}

/// The recorder of this process.
#[derive(Debug)]
pub(crate) struct Metrics {
    on: Option<Arc<Registry>>,
}

impl Metrics {
    /// Begins to measure, if it is wanted. Before a limiter is made: handles are taken then.
    ///
    /// # Errors
    /// When something in this process measures already.
    pub(crate) fn start(wanted: bool) -> Result<Self, String> {
        if !wanted {
            return Ok(Self { on: None });
        }
        let registry = Arc::<Registry>::default();
        metrics::set_global_recorder(Recorder(Arc::clone(&registry)))
            .map_err(|_| "metrics: something in this process measures already")?;
        Ok(Self { on: Some(registry) })
    }

    /// The text; empty where nothing is measured.
    pub(crate) fn text(&self) -> String {
        let on = self.on.as_ref();
        on.map(|registry| registry.text()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_metrics_has_every_metric() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(path).expect("the page is there");
        for (name, kind, labels, help) in ALL {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Seconds => "histogram of seconds",
                Kind::Numbers => "histogram",
            };
            let labels = match *labels {
                "" => String::new(),
                labels => format!("`{}`", labels.replace(", ", "`, `")),
            };
            let row = format!("| `{name}` | {kind} | {labels} | {help} |");
            assert!(page.contains(&row), "docs/metrics.md lacks {row}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `tollgate_"));
        assert_eq!(rows.count(), ALL.len());
    }
}
