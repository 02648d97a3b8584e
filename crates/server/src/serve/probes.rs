//! `/health` and `/ready`, which are never limited.

use std::collections::BTreeMap;

use http::{Response, StatusCode};
use serde::Serialize;
use tollgate::{Limiter, Probe};
use tollgate_http::{HealthReport, ready_document};

use super::answer::{json, json_text};
use super::body::Body;

/// What is asked by probes.
#[derive(Debug)]
pub(super) struct Probes {
    probe: Probe,
    store: String,
}

impl Probes {
    pub(super) fn new(limiter: Limiter, store: &str) -> Self {
        Self {
            probe: Probe::new(limiter),
            store: store.into(),
        }
    }

    /// Whether the program runs: always 200. The body says whether the store answers.
    pub(super) async fn alive(&self) -> Response<Body> {
        let health = self.probe.health().await;
        let (status, store) = if health.enforcing {
            ("ok", "ok")
        } else {
            ("degraded", "down")
        };
        // An ordered document: "status", then the store's own name.
        let document = Alive {
            status,
            store: BTreeMap::from([(&*self.store, store)]),
        };
        json(StatusCode::OK, &document)
    }

    /// Whether requests should be sent here: 503 while the program is stopping, else 200, and
    /// whether limits are being enforced. `rules` is what is wrong with the rules.
    pub(super) async fn ready(&self, rules: Option<&str>, draining: bool) -> Response<Body> {
        let report = HealthReport::from(&self.probe.health().await);
        let (code, document) = ready_document(&report, rules, draining);
        json_text(code, document)
    }
}

#[derive(Serialize)]
struct Alive<'a> {
    status: &'static str,
    #[serde(flatten)]
    store: BTreeMap<&'a str, &'static str>,
}
