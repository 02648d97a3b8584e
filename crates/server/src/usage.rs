//! `/usage`: what an identity has used, and what an operator does about it.

mod change;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use http::{Method, StatusCode, Uri};
use serde::Deserialize;
use tollgate::{Key, Timestamp};

use crate::admin::{Failed, Shared, query};
use crate::engine::Engine;
use crate::identity::{Identity, IdentityType};
use crate::rules::{DEFAULT_ID, Facts, LiveRule};
pub(crate) use change::{BlockRequest, Blocked, RefundRequest, Refunded, Reset};
pub(crate) use view::Usage;

/// The routes below `/usage`.
pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/usage/{identity}", get(view::show))
        .route("/usage/{identity}/reset", post(change::reset))
        .route("/usage/{identity}/refund", post(change::refund))
        .route(
            "/usage/{identity}/block",
            post(change::block).delete(change::unblock),
        )
}

/// What says which rule and whose usage is meant.
#[derive(Debug, Deserialize)]
struct Which {
    identity_type: Option<String>,
    rule_id: Option<String>,
    path: Option<String>,
    method: Option<String>,
}

/// Whose usage is meant, and of what.
struct Subject {
    identity: Identity,
    key: Key<'static>,
    /// The rule that was named, or `None` for whatever is of the type.
    rule: Option<Arc<LiveRule>>,
    path: String,
    method: Method,
}

impl Subject {
    /// What a request names.
    fn of(engine: &Engine, uri: &Uri) -> Result<Self, Failed> {
        let which: Which = query(uri)?;
        let kind = which
            .identity_type
            .map(|text| text.parse::<IdentityType>())
            .transpose()
            .map_err(|error| Failed::bad(format!("identity_type: {error}")))?;
        let table = engine.table();
        let rule = match which.rule_id.as_deref() {
            None => None,
            Some(DEFAULT_ID) => {
                let kind = kind.ok_or_else(|| {
                    Failed::bad(
                        "rule_id: the default rule is for every type; give identity_type, too",
                    )
                })?;
                Some(Arc::clone(table.default_rule(kind)))
            }
            Some(id) => Some(Arc::clone(table.get(id).ok_or_else(|| {
                Failed::new(StatusCode::NOT_FOUND, "There is no rule of this id")
            })?)),
        };
        let kind = match (kind, &rule) {
            (None, None) => {
                return Err(Failed::bad("identity_type or rule_id must be given"));
            }
            (Some(kind), Some(rule)) if rule.rule().identity_type != kind => {
                return Err(Failed::bad(
                    "identity_type: the rule is for another type; leave one of them out",
                ));
            }
            (Some(kind), _) => kind,
            (None, Some(rule)) => rule.rule().identity_type,
        };
        let identity = engine
            .resolver()
            .named(kind, &named(uri))
            .map_err(|problem| {
                Failed::bad(format!("The identity cannot be one of {kind}: {problem}"))
            })?;
        let path = which.path.unwrap_or_else(|| "/".into());
        if !path.starts_with('/') {
            return Err(Failed::bad("path: it must begin with /"));
        }
        let method = which.method.as_deref().unwrap_or("GET");
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| Failed::bad("method: it is none; write one such as POST"))?;
        Ok(Self {
            key: engine.key(&identity),
            identity,
            rule,
            path,
            method,
        })
    }

    /// What rules look at, of a request without header fields.
    fn facts<'a>(&'a self, headers: &'a http::HeaderMap, now: Timestamp) -> Facts<'a> {
        Facts {
            method: &self.method,
            path: &self.path,
            headers,
            client: None,
            plan: self.identity.plan(),
            now,
        }
    }

    /// The rule that was named, else the one that would apply.
    fn rule(&self, engine: &Engine, now: Timestamp) -> Arc<LiveRule> {
        if let Some(rule) = &self.rule {
            return Arc::clone(rule);
        }
        let headers = http::HeaderMap::new();
        let facts = self.facts(&headers, now);
        let table = engine.table();
        Arc::clone(table.choose(self.identity.kind(), self.identity.value(), &facts))
    }
}

/// The identity in the path `/usage/{identity}`, decoded.
fn named(uri: &Uri) -> Vec<u8> {
    let mut segments = uri.path().splitn(4, '/').skip(2);
    let segment = segments.next().unwrap_or_default();
    percent_encoding::percent_decode_str(segment).collect()
}

/// What is said when the store does not answer.
fn unreachable() -> Failed {
    Failed::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "The store of the counters does not answer",
    )
}

type Engines = State<Shared>;
