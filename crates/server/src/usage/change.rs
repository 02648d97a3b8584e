//! What an operator does about an identity's usage: forget it, give some of it back, block.

use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::Uri;
use serde::{Deserialize, Serialize};
use tollgate::{Algorithm, Clock, Decision, QuotaAnswer, RateLimit, SystemClock, Timestamp};
use utoipa::ToSchema;

use super::view::{self, seconds};
use super::{Engines, Subject, unreachable};
use crate::admin::{Audited, Failed, Json, MOST, Shared, body, document};
use crate::engine::Engine;
use crate::identity::IdentityType;
use crate::rules::{LiveRule, Ruling};

/// The longest block.
const LONGEST: u64 = 366 * 24 * 3_600;

/// The most steps that a refund takes: each gives back what one moment admitted.
const STEPS: usize = 64;

/// `POST /usage/{identity}/reset`: forgets what all rules of the type have counted for it, or the
/// rule that is named.
pub(super) async fn reset(
    State(Shared { engine, .. }): Engines,
    uri: Uri,
) -> Result<Response, Failed> {
    let subject = Subject::of(&engine, &uri)?;
    let table = arc_swap::Guard::into_inner(engine.table());
    let kind = subject.identity.kind();
    let mut reset = 0;
    match &subject.rule {
        Some(rule) => {
            forget(rule, &subject).await?;
            reset += 1;
        }
        None => {
            for rule in table.all() {
                if rule.rule().identity_type == kind {
                    forget(rule, &subject).await?;
                    reset += 1;
                }
            }
            // What no rule matches is counted by the default one, which counts here by itself only.
            forget(table.default_rule(kind), &subject).await?;
            reset = reset.max(1);
        }
    }
    Ok(audited(
        Json(Reset { reset }),
        &subject,
        format!("reset={reset}"),
    ))
}

async fn forget(rule: &LiveRule, subject: &Subject) -> Result<(), Failed> {
    let plans = rule.plans().map(|(_, counted)| counted);
    for counted in std::iter::once(rule.counted()).chain(plans) {
        if let Some(limit) = &counted.limit {
            limit.reset(&subject.key).await.map_err(|_| unreachable())?;
        }
    }
    Ok(())
}

/// What was reset.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Reset {
    /// How many rules have forgotten the identity.
    reset: u64,
}

/// What is given back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefundRequest {
    /// How much; 1 unless given.
    cost: Option<u64>,
}

/// What was given back, and what is used after it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Refunded {
    /// How much was given back.
    refunded: u64,
    #[serde(flatten)]
    usage: view::Usage,
}

/// `POST /usage/{identity}/refund`: gives back what was charged, the latest window's first.
pub(super) async fn refund(
    State(Shared { engine, .. }): Engines,
    uri: Uri,
    read: Result<Bytes, BytesRejection>,
) -> Result<Response, Failed> {
    let RefundRequest { cost } = read_body(&body(read)?)?;
    let cost = cost.unwrap_or(1);
    if !(1..=MOST).contains(&cost) {
        return Err(Failed::bad(format!(
            "cost: it is {cost}; give back from 1 to {MOST}"
        )));
    }
    let subject = Subject::of(&engine, &uri)?;
    let now = SystemClock.now();
    let rule = subject.rule(&engine, now);
    let headers = http::HeaderMap::new();
    let refunded = match rule.ruling(subject.identity.value(), &subject.facts(&headers, now)) {
        Ruling::Counted(counted) => match &counted.limit {
            Some(limit) => give_back(limit, &subject, cost).await?,
            None => 0,
        },
        Ruling::Free | Ruling::Blocked => 0,
    };
    let usage = view::usage(&engine, &subject).await?;
    let detail = format!("rule={} cost={cost} refunded={refunded}", rule.id());
    Ok(audited(
        Json(Refunded { refunded, usage }),
        &subject,
        detail,
    ))
}

/// Gives a charge back whose time is not known: from where the state says that something was
/// charged. Returns how much more is there than before.
async fn give_back(limit: &RateLimit, subject: &Subject, cost: u64) -> Result<u64, Failed> {
    let seen = || async {
        let seen = limit.peek(&subject.key).await.map_err(|_| unreachable())?;
        if seen.origin().is_enforced() {
            Ok(seen)
        } else {
            Err(unreachable())
        }
    };
    let before = seen().await?;
    let used = |decision: &Decision| {
        let quotas = limit.policy().quotas().iter().zip(decision.quotas());
        quotas
            .map(|(quota, answer)| quota.capacity().saturating_sub(answer.remaining))
            .max()
            .unwrap_or(0)
    };
    let first = used(&before);
    let (mut latest, mut left) = (before, cost.min(first));
    for _ in 0..STEPS {
        if left == 0 {
            break;
        }
        let mut moved = false;
        for at in moments(limit, &latest) {
            let charge = charge(left, at);
            limit
                .refund(&subject.key, &charge)
                .await
                .map_err(|_| unreachable())?;
            let now = seen().await?;
            let given = used(&latest).saturating_sub(used(&now));
            latest = now;
            if given > 0 {
                left = left.saturating_sub(given);
                moved = true;
                break;
            }
        }
        if !moved {
            break;
        }
    }
    Ok(first.saturating_sub(used(&latest)))
}

/// When what is used may have been charged: now; a period ago, in the window before; and for a log
/// when its oldest entry was made, by when that leaves.
fn moments(limit: &RateLimit, seen: &Decision) -> Vec<Timestamp> {
    let now = seen.charged_at();
    let back = |by: Duration| {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        Timestamp::from_micros(now.as_micros().saturating_sub(micros))
    };
    let mut moments = vec![now];
    for (quota, answer) in limit.policy().quotas().iter().zip(seen.quotas()) {
        moments.push(match quota.algorithm() {
            Algorithm::SlidingLog => back(quota.period().saturating_sub(answer.reset_after)),
            _ => back(quota.period()),
        });
    }
    moments
}

/// A charge as its decision would have told it.
const fn charge(cost: u64, at: Timestamp) -> Decision {
    Decision::of_one(
        at,
        QuotaAnswer {
            allowed: true,
            granted: cost,
            remaining: 0,
            retry_after: None,
            reset_after: Duration::ZERO,
            more_after: None,
        },
    )
}

/// For how long an identity is refused.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockRequest {
    /// So many seconds from now.
    seconds: Option<u64>,
}

/// Who is blocked.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Blocked {
    identity_type: IdentityType,
    /// Until when, in seconds of the epoch; `null` where not any more.
    blocked_until: Option<f64>,
}

/// `POST /usage/{identity}/block`: refuses it for a time, whatever its rule.
pub(super) async fn block(
    State(Shared { engine, .. }): Engines,
    uri: Uri,
    read: Result<Bytes, BytesRejection>,
) -> Result<Response, Failed> {
    let BlockRequest { seconds: given } = read_body(&body(read)?)?;
    let given = given
        .filter(|given| (1..=LONGEST).contains(given))
        .ok_or_else(|| {
            Failed::bad(format!(
                "seconds: it is not given, or not from 1 to {LONGEST}; write {{\"seconds\": 600}}"
            ))
        })?;
    let subject = Subject::of(&engine, &uri)?;
    let until = SystemClock.now() + Duration::from_secs(given);
    set(&engine, subject, Some(until)).await
}

/// `DELETE /usage/{identity}/block`: lets it in again.
pub(super) async fn unblock(
    State(Shared { engine, .. }): Engines,
    uri: Uri,
) -> Result<Response, Failed> {
    let subject = Subject::of(&engine, &uri)?;
    set(&engine, subject, None).await
}

async fn set(
    engine: &Engine,
    subject: Subject,
    until: Option<Timestamp>,
) -> Result<Response, Failed> {
    let kind = subject.identity.kind();
    engine.blocks().set(kind, &subject.key, until).await?;
    let document = Blocked {
        identity_type: kind,
        blocked_until: until.map(seconds),
    };
    let detail = match until {
        Some(until) => format!("until={:.0}", seconds(until)),
        None => "until=now".into(),
    };
    Ok(audited(Json(document), &subject, detail))
}

/// A body that may be left out.
fn read_body<T: Default + serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Failed> {
    if bytes.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    document(bytes)
}

fn audited(answer: impl IntoResponse, subject: &Subject, detail: String) -> Response {
    let mut response = answer.into_response();
    response.extensions_mut().insert(Audited {
        kind: subject.identity.kind(),
        digest: subject.key.digest(),
        detail,
    });
    response
}
