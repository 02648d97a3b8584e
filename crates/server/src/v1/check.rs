//! `POST /v1/check`: one decision, for a service that enforces it itself.

use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::admin::{Failed, Json, MOST, Shared, body, document, fields};
use crate::duration;
use crate::engine::{Engine, Intent, Question};
use crate::identity::{Identity, IdentityType, UnknownIdentityType};
use crate::rules::{Faults, Fields, flag, text};

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
    let asked: CheckRequest = document(body).map_err(|first| every(engine, body, first))?;
    let understood = Understood::of(engine, &asked);
    let Understood {
        identity,
        path,
        method,
        times,
    } = understood.map_err(|first| every(engine, body, Faults::one("", None, first).into()))?;
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
            .map(duration::seconds),
        reset_after: numbers.reset_after.map(duration::seconds),
        origin: verdict.origin(),
    })
}

/// A question that has an answer.
struct Understood<'a> {
    identity: Identity,
    path: &'a str,
    method: Method,
    times: u64,
}

impl<'a> Understood<'a> {
    fn of(engine: &Engine, asked: &'a CheckRequest) -> Result<Self, String> {
        let Named { r#type, value } = &asked.identity;
        Ok(Self {
            identity: identity(engine, *r#type, value)?,
            path: path(asked.path.as_deref().unwrap_or("/"))?,
            method: method(asked.method.as_deref().unwrap_or("GET"))?,
            times: times(asked.cost.or(Some(1)))?,
        })
    }
}

fn identity(engine: &Engine, kind: IdentityType, value: &str) -> Result<Identity, String> {
    engine.resolver().named(kind, value.as_bytes())
}

/// Without the query.
fn path(text: &str) -> Result<&str, String> {
    if !text.starts_with('/') {
        return Err("does not begin with /".into());
    }
    Ok(text.split('?').next().unwrap_or_default())
}

fn method(text: &str) -> Result<Method, String> {
    Method::from_bytes(text.as_bytes()).map_err(|_| "is no method; write one such as POST".into())
}

fn times(cost: Option<u64>) -> Result<u64, String> {
    cost.filter(|cost| (1..=MOST).contains(cost))
        .ok_or_else(|| {
            format!("is no whole number from 1 to {MOST}; write \"peek\": true to look only")
        })
}

/// Every fault of a body that has the `first` one. Bodies without any are read in one pass, as
/// services ask for every request of theirs; for the others they are read once more.
#[cold]
fn every(engine: &Engine, body: &[u8], first: Failed) -> Failed {
    let read = fields(body, |fields| {
        if let Some(value) = fields.need("identity", "say who it counts for") {
            named(engine, value, fields);
        }
        fields.read("path", |value| path(text(value)?).map(drop));
        fields.read("method", |value| method(text(value)?));
        fields.read("cost", |value| times(value.as_u64()));
        fields.read("peek", flag);
        Some(())
    });
    read.err().unwrap_or(first)
}

fn named(engine: &Engine, value: &Value, outer: &mut Fields<'_>) {
    let Some(mut fields) = Fields::of(value, "identity", outer.faults) else {
        return;
    };
    let types = IdentityType::ALL.map(IdentityType::as_str).join(", ");
    let fix = format!("use one of {types}");
    let kind = fields.read_needed("type", &fix, |value| {
        let known = text(value)?.parse();
        known.map_err(|_: UnknownIdentityType| format!("is none; {fix}"))
    });
    let given = fields.find("value").map_or(Ok(""), text);
    let read = given.and_then(|value| match kind {
        Some(kind) => identity(engine, kind, value).map(drop),
        None => Ok(()),
    });
    if let Err(problem) = read {
        // Who it is is no matter of answers either.
        fields.faults.add(fields.path("value"), None, problem);
    }
    fields.end();
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
