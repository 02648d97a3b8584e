//! `POST /v1/check`: one decision, for a service that enforces it itself.

use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::{Failed, Json, MOST, Shared, body, document};
use crate::engine::{Engine, Intent, Question};
use crate::identity::IdentityType;

/// What is asked.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckRequest {
    /// Who it counts for.
    identity: Named,
    /// The path that rules look at; `/` unless given.
    path: Option<String>,
    /// The method that rules look at; `GET` unless given.
    method: Option<String>,
    /// How many requests it stands for; 1 unless given. Each costs what its rule says.
    cost: Option<u64>,
    /// Whether nothing is charged.
    peek: Option<bool>,
}

/// An identity by its name.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Named {
    /// Its type.
    r#type: IdentityType,
    /// Its value as a request would bring it. For `global` it may be left out.
    #[serde(default)]
    value: String,
}

/// The answer. Times are seconds, with their fractions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckAnswer {
    allowed: bool,
    rule_id: String,
    /// `null` where nothing is counted.
    limit: Option<u64>,
    /// `null` where nothing is counted, or nobody knows.
    remaining: Option<u64>,
    /// How long until the same would be admitted; `null` where it is, or never would be.
    retry_after: Option<f64>,
    /// How long until nothing is used.
    reset_after: Option<f64>,
    /// Who decided: `shared`, `remembered_refusal`, `local_fallback`, `fail_open`, `fail_closed`;
    /// `exempt` where nothing is counted, `blocked` where nobody is admitted.
    origin: &'static str,
}

/// Where this is asked.
pub(crate) const PATH: &str = "/v1/check";

pub(super) async fn check(
    State(Shared { engine, .. }): State<Shared>,
    read: Result<Bytes, BytesRejection>,
) -> Result<Json<CheckAnswer>, Failed> {
    answer(&engine, &body(read)?).await.map(Json)
}

/// The answer to a question with this body.
pub(crate) async fn answer(engine: &Engine, body: &[u8]) -> Result<CheckAnswer, Failed> {
    let asked: CheckRequest = document(body)?;
    let Named {
        r#type: kind,
        value,
    } = &asked.identity;
    let identity = engine
        .resolver()
        .named(*kind, value.as_bytes())
        .map_err(|problem| Failed::bad(format!("identity.value: {problem}")))?;
    let path = asked.path.as_deref().unwrap_or("/");
    if !path.starts_with('/') {
        return Err(Failed::bad("path: it must begin with /"));
    }
    let path = path.split('?').next().unwrap_or_default();
    let method = asked.method.as_deref().unwrap_or("GET");
    let method = Method::from_bytes(method.as_bytes())
        .map_err(|_| Failed::bad("method: it is none; write one such as POST"))?;
    let times = asked.cost.unwrap_or(1);
    if !(1..=MOST).contains(&times) {
        return Err(Failed::bad(format!(
            "cost: it is {times}; write a number from 1 to {MOST}, or \"peek\": true to look"
        )));
    }
    let verdict = engine
        .answer(&Question {
            identity: &identity,
            method: &method,
            path,
            headers: &HeaderMap::new(),
            client: None,
            times,
            intent: match asked.peek {
                Some(true) => Intent::Look,
                _ => Intent::Charge,
            },
        })
        .await?;
    let numbers = verdict.numbers();
    let allowed = verdict.allowed();
    Ok(CheckAnswer {
        allowed,
        rule_id: verdict.rule_id().into(),
        limit: numbers.limit,
        remaining: numbers.remaining,
        retry_after: numbers
            .retry_after
            .filter(|_| !allowed)
            .map(|wait| wait.as_secs_f64()),
        reset_after: numbers.reset_after.map(|wait| wait.as_secs_f64()),
        origin: verdict.origin(),
    })
}

/// Without the identity.
impl std::fmt::Debug for CheckRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckRequest")
            .field("type", &self.identity.r#type)
            .field("cost", &self.cost)
            .field("peek", &self.peek)
            .finish_non_exhaustive()
    }
}
