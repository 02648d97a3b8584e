//! What an identity has used.

use axum::extract::State;
use http::Uri;
use serde::Serialize;
use tollgate::{Algorithm, Clock, Decision, Quota, SystemClock, Timestamp};
use tollgate_http::speaker;
use utoipa::ToSchema;

use super::{Engines, Subject, unreachable};
use crate::admin::{Failed, Json, Shared};
use crate::duration;
use crate::engine::Engine;
use crate::identity::IdentityType;
use crate::rules::{Counted, LiveRule, Ruling};

/// What an identity has used of a rule. The numbers are those of the quota that would refuse first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Usage {
    identity_type: IdentityType,
    rule_id: String,
    algorithm: &'static str,
    /// `null` where nothing is counted.
    limit: Option<u64>,
    used: Option<u64>,
    remaining: Option<u64>,
    /// When nothing is used any more, in seconds of the epoch.
    reset_at: Option<f64>,
    /// How many seconds until a request would be admitted; `null` where one is, or none ever.
    retry_after: Option<f64>,
    quotas: Vec<QuotaUsage>,
    /// Until when an operator has blocked it, in seconds of the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_until: Option<f64>,
}

/// What an identity has used of one quota.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct QuotaUsage {
    algorithm: &'static str,
    limit: u64,
    used: u64,
    remaining: u64,
    reset_at: Option<f64>,
    retry_after: Option<f64>,
}

/// `GET /usage/{identity}`
pub(super) async fn show(
    State(Shared { engine, .. }): Engines,
    uri: Uri,
) -> Result<Json<Usage>, Failed> {
    let subject = Subject::of(&engine, &uri)?;
    usage(&engine, &subject).await.map(Json)
}

pub(super) async fn usage(engine: &Engine, subject: &Subject) -> Result<Usage, Failed> {
    let now = SystemClock.now();
    let rule = subject.rule(engine, now);
    let headers = http::HeaderMap::new();
    let mut usage = Usage {
        identity_type: subject.identity.kind(),
        rule_id: rule.id().into(),
        algorithm: rule.rule().algorithm(),
        limit: None,
        used: None,
        remaining: None,
        reset_at: None,
        retry_after: None,
        quotas: Vec::new(),
        blocked_until: engine
            .blocks()
            .until(subject.identity.kind(), &subject.key, now)
            .map(seconds),
    };
    match rule.ruling(subject.identity.value(), &subject.facts(&headers, now)) {
        Ruling::Free => return Ok(usage),
        Ruling::Blocked => {
            (usage.limit, usage.used, usage.remaining) = (Some(0), Some(0), Some(0));
            return Ok(usage);
        }
        Ruling::Counted(counted) => usage.count(&rule, counted, subject, now).await?,
    }
    Ok(usage)
}

impl Usage {
    async fn count(
        &mut self,
        rule: &LiveRule,
        counted: &Counted,
        subject: &Subject,
        now: Timestamp,
    ) -> Result<(), Failed> {
        if let Some(limit) = &counted.limit {
            let cost = rule.rule().cost.min(limit.policy().capacity());
            let seen = limit
                .peek(&subject.key)
                .cost(cost)
                .await
                .map_err(|_| unreachable())?;
            if !seen.origin().is_enforced() {
                return Err(unreachable());
            }
            self.quotas = quotas(limit.policy().quotas(), &seen, now);
            let speaks = speaker(limit.policy(), &seen);
            let place = speaks.and_then(|it| {
                let mut answers = seen.quotas().iter();
                answers.position(|answer| std::ptr::eq(answer, it.answer))
            });
            self.speak(place.unwrap_or(0));
            self.retry_after = seen.retry_after().map(duration::seconds);
        }
        if let Some(slots) = &counted.slots {
            let used = slots
                .in_use(&subject.key)
                .await
                .map_err(|_| unreachable())?;
            let of = u64::from(slots.slots());
            let full = used >= slots.slots();
            self.quotas.push(QuotaUsage {
                algorithm: "concurrency",
                limit: of,
                used: u64::from(used),
                remaining: of.saturating_sub(u64::from(used)),
                reset_at: None,
                retry_after: full.then(|| duration::seconds(slots.retry_after())),
            });
            if counted.limit.is_none() || full {
                self.speak(self.quotas.len() - 1);
            }
        }
        Ok(())
    }

    /// This quota's numbers are those of the rule.
    fn speak(&mut self, place: usize) {
        let Some(quota) = self.quotas.get(place) else {
            return;
        };
        self.limit = Some(quota.limit);
        self.used = Some(quota.used);
        self.remaining = Some(quota.remaining);
        self.reset_at = quota.reset_at;
        self.retry_after = quota.retry_after;
    }
}

fn quotas(of: &[Quota], seen: &Decision, now: Timestamp) -> Vec<QuotaUsage> {
    let answers = of.iter().zip(seen.quotas());
    answers
        .map(|(quota, answer)| QuotaUsage {
            algorithm: name(quota.algorithm()),
            limit: quota.capacity(),
            used: quota.capacity().saturating_sub(answer.remaining),
            remaining: answer.remaining,
            reset_at: Some(seconds(now + answer.reset_after)),
            retry_after: answer.retry_after.map(duration::seconds),
        })
        .collect()
}

/// What rules call an algorithm.
const fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SlidingLog => "sliding_window",
        Algorithm::SlidingWindow => "sliding_counter",
        other => other.as_str(),
    }
}

pub(super) fn seconds(at: Timestamp) -> f64 {
    at.as_micros() as f64 / 1e6
}
