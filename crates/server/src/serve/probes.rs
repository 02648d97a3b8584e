//! `/health` and `/ready`, which are never limited.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tollgate::{Health, Limiter};

use super::answer::{Body, json};

/// So long an answer of the store stands, so that probes cannot be used to flood it.
const FRESH: Duration = Duration::from_millis(250);

/// What is asked by probes.
#[derive(Debug)]
pub(super) struct Probes {
    limiter: Limiter,
    store: String,
    asked: Mutex<Option<Instant>>,
}

impl Probes {
    pub(super) fn new(limiter: Limiter, store: &str) -> Self {
        Self {
            limiter,
            store: store.into(),
            asked: Mutex::new(None),
        }
    }

    /// What holds now: without traffic nobody else would have noticed a change.
    async fn health(&self) -> Health {
        // Held while the store is asked: those who come meanwhile wait for the same answer, for
        // as long as a decision may take.
        let mut asked = self.asked.lock().await;
        if asked.is_none_or(|asked| asked.elapsed() >= FRESH) {
            // The limiter keeps the answer, and tells of a change.
            let _ = self.limiter.ping().await;
            *asked = Some(Instant::now());
        }
        drop(asked);
        self.limiter.health()
    }

    /// Whether the program runs: always 200. The body says whether the store answers.
    pub(super) async fn alive(&self) -> Response<Body> {
        let health = self.health().await;
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
    /// whether limits are being enforced.
    pub(super) async fn ready(&self, draining: bool) -> Response<Body> {
        let health = self.health().await;
        let status = match (draining, health.enforcing) {
            (true, _) => "draining",
            (false, true) => "ok",
            (false, false) => "degraded",
        };
        let document = Ready {
            status,
            checks: Checks {
                ratelimit: Check {
                    healthy: health.enforcing,
                    critical: false,
                    detail: health.detail(),
                    meta: Meta {
                        enforcing: health.enforcing,
                    },
                },
            },
        };
        let code = if draining {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::OK
        };
        json(code, &document)
    }
}

#[derive(Serialize)]
struct Alive<'a> {
    status: &'static str,
    #[serde(flatten)]
    store: BTreeMap<&'a str, &'static str>,
}

#[derive(Serialize)]
struct Ready {
    status: &'static str,
    checks: Checks,
}

#[derive(Serialize)]
struct Checks {
    ratelimit: Check,
}

#[derive(Serialize)]
struct Check {
    healthy: bool,
    critical: bool,
    detail: &'static str,
    meta: Meta,
}

#[derive(Serialize)]
struct Meta {
    enforcing: bool,
}
