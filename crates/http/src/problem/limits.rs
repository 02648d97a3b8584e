//! The members of a problem document that speak of the limit.

use std::time::Duration;

use serde::{Serialize, Serializer};
use tollgate_core::{Decision, NoSlot, Origin, Policy, Timestamp};

use crate::headers::item_names;
use crate::json::Object;
use crate::seconds::no_slot_seconds;
use crate::{GatewayNumbers, retry_after_seconds, speaker};

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Limits {
    Library {
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        remaining: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
        #[serde(rename = "violated-policies", skip_serializing_if = "Option::is_none")]
        violated_policies: Option<Vec<String>>,
    },
    Gateway {
        limit: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        remaining: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reset_at: Option<Micros>,
        retry_after: Option<Micros>,
    },
    Wait {
        retry_after: Micros,
    },
    None {},
}

/// Microseconds, which are told as seconds. One division is rounded once, so that 1.91854 is told as
/// that; [`Duration::as_secs_f64`] adds two numbers, and makes it 1.9185400000000001.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros(u64);

impl From<Duration> for Micros {
    fn from(wait: Duration) -> Self {
        Self(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1e6)
    }
}

impl Limits {
    pub(super) fn of_library(policy: &Policy, decision: &Decision, violated: bool) -> Self {
        let counted = (!is_closed(decision)).then(|| counted(policy, decision));
        let retry_after = retry_after_seconds(decision);
        Self::Library {
            limit: counted.map(|it| it.limit),
            remaining: counted
                .filter(|_| decision.origin().is_enforced())
                .map(|it| it.remaining),
            retry_after,
            // Without a wait of its own (a store that is down) the header's is all there is.
            retry_after_ms: retry_after.map(|seconds| match decision.retry_after() {
                Some(wait) => u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX),
                None => seconds.saturating_mul(1_000),
            }),
            violated_policies: violated.then(|| violations(policy, decision)),
        }
    }

    /// Names what all of these refuse, where the violated policies are named at all.
    pub(super) fn name_violated<'a>(
        &mut self,
        all: impl Iterator<Item = (&'a Policy, &'a Decision)>,
    ) {
        if let Self::Library {
            violated_policies: Some(names),
            ..
        } = self
        {
            let refusing = all.filter(|(_, decision)| !is_closed(decision));
            *names = refusing
                .flat_map(|(policy, decision)| violations(policy, decision))
                .collect();
        }
    }

    /// Of `slots`, none of which is free; `None` where nobody knows.
    pub(super) fn of_slots(slots: Option<u32>, no_slot: &NoSlot, violated: Option<&str>) -> Self {
        let wait = no_slot.retry_after();
        let millis = u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
        Self::Library {
            limit: slots.map(u64::from),
            remaining: slots.map(|_| 0),
            retry_after: Some(no_slot_seconds(no_slot)),
            retry_after_ms: Some(millis),
            violated_policies: violated.map(|name| vec![name.to_owned()]),
        }
    }

    pub(super) fn of_numbers(numbers: GatewayNumbers) -> Self {
        let retry_after = numbers.retry_after.map(Micros::from);
        match (numbers.limit, retry_after) {
            (Some(limit), retry_after) => Self::Gateway {
                limit,
                remaining: numbers.remaining,
                reset_at: numbers.reset_at.map(|at| Micros(at.as_micros())),
                retry_after,
            },
            (None, Some(retry_after)) => Self::Wait { retry_after },
            (None, None) => Self::None {},
        }
    }

    pub(super) fn of_gateway(policy: &Policy, decision: &Decision, now: Timestamp) -> Self {
        let retry_after = decision.retry_after().map(Micros::from);
        if is_closed(decision) {
            return Self::Wait {
                retry_after: retry_after.unwrap_or(Micros(1_000_000)),
            };
        }
        let counted = counted(policy, decision);
        // As in the headers: what one process counts by itself says nothing of what is left.
        let enforced = decision.origin().is_enforced();
        let reset_at = Micros((now + counted.reset_after).as_micros());
        Self::Gateway {
            limit: counted.limit,
            remaining: enforced.then_some(counted.remaining),
            reset_at: enforced.then_some(reset_at),
            retry_after,
        }
    }
}

impl Limits {
    /// Those of the members, in the order in which serialising gives them, that say how much there is.
    pub(super) fn write_counts(&self, json: &mut Object) {
        let (limit, remaining) = match self {
            Self::Library {
                limit, remaining, ..
            } => (*limit, *remaining),
            Self::Gateway {
                limit, remaining, ..
            } => (Some(*limit), *remaining),
            Self::Wait { .. } | Self::None {} => (None, None),
        };
        if let Some(limit) = limit {
            json.integer("\"limit\":", limit);
        }
        if let Some(remaining) = remaining {
            json.integer("\"remaining\":", remaining);
        }
    }

    /// Those behind them, that say when there will be more.
    pub(super) fn write_waits(&self, json: &mut Object) {
        match self {
            Self::Library {
                retry_after,
                retry_after_ms,
                violated_policies,
                ..
            } => {
                if let Some(seconds) = retry_after {
                    json.integer("\"retry_after\":", *seconds);
                }
                if let Some(millis) = retry_after_ms {
                    json.integer("\"retry_after_ms\":", *millis);
                }
                if let Some(names) = violated_policies {
                    json.texts("\"violated-policies\":", names);
                }
            }
            Self::Gateway {
                reset_at,
                retry_after,
                ..
            } => {
                if let Some(reset_at) = reset_at {
                    json.seconds(b"\"reset_at\":", reset_at.0);
                }
                match retry_after {
                    Some(wait) => json.seconds(b"\"retry_after\":", wait.0),
                    None => json.null("\"retry_after\":"),
                }
            }
            Self::Wait { retry_after } => json.seconds(b"\"retry_after\":", retry_after.0),
            Self::None {} => {}
        }
    }
}

/// The quotas that refuse, by the names that they have in the fields.
fn violations(policy: &Policy, decision: &Decision) -> Vec<String> {
    let names = item_names(policy);
    if decision.quotas().is_empty() && !decision.allowed() {
        // A remembered refusal may not know which.
        return names.into_iter().map(String::from).collect();
    }
    let refusing = names.into_iter().zip(decision.quotas());
    let refusing = refusing.filter(|(_, answer)| !answer.allowed);
    refusing.map(|(name, _)| name.into()).collect()
}

/// Whether it was refused because the store did not answer, not because of a quota.
pub(super) fn is_closed(decision: &Decision) -> bool {
    decision.origin() == Origin::FailClosed
}

#[derive(Clone, Copy)]
struct Counted {
    limit: u64,
    remaining: u64,
    reset_after: Duration,
}

/// The numbers of the quota that speaks. A refusal without them (one that was remembered) says
/// that nothing is left until something fits again.
fn counted(policy: &Policy, decision: &Decision) -> Counted {
    match speaker(policy, decision) {
        Some(it) => Counted {
            limit: it.quota.capacity(),
            remaining: it.answer.remaining,
            reset_after: it.answer.reset_after,
        },
        None => Counted {
            limit: policy.capacity(),
            remaining: 0,
            reset_after: decision.retry_after().unwrap_or_default(),
        },
    }
}

/// "Rate limit of 100 request(s) per 60s exceeded."
pub(super) fn detail(policy: &Policy, decision: &Decision) -> String {
    let quota = speaker(policy, decision).map_or(&policy.quotas()[0], |it| it.quota);
    let period = quota.period();
    let mut digits = itoa::Buffer::new();
    let mut text = String::with_capacity(80);
    text.push_str("Rate limit of ");
    text.push_str(digits.format(quota.limit()));
    text.push_str(" request(s) per ");
    text.push_str(digits.format(period.as_secs()));
    if period.subsec_micros() > 0 {
        let fraction = format!(".{:06}", period.subsec_micros());
        text.push_str(fraction.trim_end_matches('0'));
    }
    text.push_str("s exceeded.");
    text
}
