//! What was decided, and what is told of it.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderMap, HeaderValue, RETRY_AFTER};
use tollgate::{Decision, Origin, Permit, Timestamp};
use tollgate_http::{GatewayNumbers, Problem, RateLimitHeaders, speaker};

use super::slots::Slot;
use crate::rules::{LiveRule, Mode};

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Verdict {
    rule: Arc<LiveRule>,
    outcome: Outcome,
    headers: Option<Arc<RateLimitHeaders>>,
    /// That of what was counted.
    number: u64,
    permit: Option<Permit>,
    /// The rule only watches.
    shadow: bool,
    now: Timestamp,
    /// What the upstream is told of whom the request counts for.
    identity: Option<Box<HeaderValue>>,
}

/// How a decision came about.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing was counted.
    Free,
    /// The rule's limit is 0.
    Blocked,
    /// An operator has blocked the identity.
    BlockedUntil(Timestamp),
    /// The quotas decided.
    Decided(Decision),
    /// The slots decided, once the quotas, if there are any, had admitted.
    Slot(Slot, Option<Decision>),
}

/// The numbers of a decision, for documents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: Option<u64>,
    /// Until the same would be admitted.
    pub(crate) retry_after: Option<Duration>,
    /// Until nothing is used.
    pub(crate) reset_after: Option<Duration>,
}

impl Verdict {
    /// By this rule. One that only watches lets pass what it would have refused, and that is told of;
    /// whom an operator has blocked it does not.
    pub(crate) fn new(rule: Arc<LiveRule>, outcome: Outcome, now: Timestamp) -> Self {
        let watches = rule.rule().mode == Mode::Shadow;
        let shadow = watches && !matches!(outcome, Outcome::Free | Outcome::BlockedUntil(_));
        if shadow && !outcome.admits() {
            rule.would_have_refused();
        }
        Self {
            rule,
            outcome,
            headers: None,
            number: 0,
            permit: None,
            shadow,
            now,
            identity: None,
        }
    }

    /// By what has this number, with these fields.
    pub(crate) fn set_counted(&mut self, headers: Option<Arc<RateLimitHeaders>>, number: u64) {
        self.headers = headers;
        self.number = number;
    }

    /// With the slot that it holds.
    pub(super) fn set_permit(&mut self, permit: Option<Permit>) {
        self.permit = permit;
    }

    /// The upstream is told this of whom the request counts for.
    pub(super) fn set_identity(&mut self, identity: Option<Box<HeaderValue>>) {
        self.identity = identity;
    }

    /// What the upstream is told of whom the request counts for.
    pub(crate) const fn take_identity(&mut self) -> Option<Box<HeaderValue>> {
        self.identity.take()
    }

    /// Whether the request may pass.
    pub(crate) const fn allowed(&self) -> bool {
        self.shadow || self.outcome.admits()
    }

    /// When it was decided.
    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The number of what was counted; 0 where nothing was.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// The id of the rule that decided.
    pub(crate) fn rule_id(&self) -> &str {
        self.rule.id()
    }

    /// Who decided, as logs and metrics call it.
    pub(crate) fn origin(&self) -> &'static str {
        match &self.outcome {
            Outcome::Free => "exempt",
            Outcome::Blocked | Outcome::BlockedUntil(_) => "blocked",
            Outcome::Decided(decision) => decision.origin().as_str(),
            Outcome::Slot(Slot::Held(origin), _) => origin.as_str(),
            Outcome::Slot(Slot::Unavailable { .. }, _) => Origin::FailClosed.as_str(),
            Outcome::Slot(Slot::Unknown, _) => Origin::FailOpen.as_str(),
            Outcome::Slot(Slot::Seen { .. } | Slot::Full { .. }, _) => Origin::Shared.as_str(),
        }
    }

    /// Whether what was decided is what the store says, or an operator.
    pub(crate) fn is_enforced(&self) -> bool {
        match &self.outcome {
            Outcome::Decided(decision) => decision.origin().is_enforced(),
            Outcome::Slot(Slot::Held(origin), _) => origin.is_enforced(),
            Outcome::Slot(Slot::Unavailable { .. } | Slot::Unknown, _) => false,
            _ => true,
        }
    }

    /// The slot that the request holds, if its rule is about how many run at the same time: to be
    /// kept until the last byte of the answer is sent, and then dropped.
    pub(crate) const fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// The numbers of the quota that speaks, or of the slots.
    pub(crate) fn numbers(&self) -> Numbers {
        let wait = |until: Timestamp| {
            Duration::from_micros(until.as_micros().saturating_sub(self.now.as_micros()))
        };
        match &self.outcome {
            Outcome::Free => Numbers::default(),
            Outcome::Blocked => Numbers {
                limit: Some(0),
                remaining: Some(0),
                ..Numbers::default()
            },
            Outcome::BlockedUntil(until) => Numbers {
                limit: Some(0),
                remaining: Some(0),
                retry_after: Some(wait(*until)),
                reset_after: Some(wait(*until)),
            },
            Outcome::Decided(decision)
            | Outcome::Slot(Slot::Held(_) | Slot::Seen { .. } | Slot::Unknown, Some(decision)) => {
                self.of_decision(decision)
            }
            Outcome::Slot(
                Slot::Full {
                    slots, retry_after, ..
                },
                _,
            ) => Numbers {
                limit: Some(u64::from(*slots)),
                remaining: Some(0),
                retry_after: Some(*retry_after),
                reset_after: None,
            },
            Outcome::Slot(Slot::Seen { free, slots }, None) => Numbers {
                limit: Some(u64::from(*slots)),
                remaining: Some(u64::from(*free)),
                ..Numbers::default()
            },
            Outcome::Slot(Slot::Unavailable { retry_after }, _) => Numbers {
                retry_after: Some(*retry_after),
                ..Numbers::default()
            },
            Outcome::Slot(Slot::Held(_) | Slot::Unknown, None) => Numbers::default(),
        }
    }

    fn of_decision(&self, decision: &Decision) -> Numbers {
        let Some(headers) = &self.headers else {
            return Numbers::default();
        };
        let speaks = speaker(headers.policy(), decision);
        Numbers {
            limit: Some(speaks.map_or(headers.policy().capacity(), |it| it.quota.capacity())),
            remaining: speaks.map(|it| it.answer.remaining),
            retry_after: decision.retry_after(),
            reset_after: speaks.map(|it| it.answer.reset_after),
        }
    }

    /// The document of a refusal: 429, or 503 where the limit cannot be checked or the slots of
    /// everybody are taken.
    pub(crate) fn problem(&self) -> Problem {
        let (status, detail) = match &self.outcome {
            Outcome::Decided(decision) => {
                if let Some(headers) = &self.headers {
                    return Problem::gateway_refusal(headers.policy(), decision, self.now);
                }
                (StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded")
            }
            Outcome::Slot(
                Slot::Full {
                    per_client: true, ..
                },
                _,
            ) => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests at the same time",
            ),
            Outcome::Slot(Slot::Full { .. }, _) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many requests at the same time",
            ),
            Outcome::Slot(..) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Rate limits cannot be checked at the moment",
            ),
            Outcome::BlockedUntil(_) => (StatusCode::TOO_MANY_REQUESTS, "Blocked for a time"),
            Outcome::Free | Outcome::Blocked => {
                (StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded")
            }
        };
        let numbers = self.numbers();
        Problem::new(status, detail).with_gateway_numbers(GatewayNumbers {
            limit: numbers.limit,
            remaining: numbers.remaining,
            reset_at: numbers.reset_after.map(|wait| self.now + wait),
            retry_after: numbers.retry_after,
        })
    }

    /// Writes what the answer tells of the limit, whatever the answer is.
    pub(crate) fn write_headers(&self, fields: &mut HeaderMap) {
        if self.shadow {
            // A limit that nobody enforces: clients learn that there is one, and no numbers.
            let open = Decision::unenforced(Origin::FailOpen, true, 0, None, self.now);
            if let Some(headers) = &self.headers {
                headers.write(&open, self.now, fields);
            }
            return;
        }
        match &self.outcome {
            Outcome::Free => {}
            Outcome::Decided(decision)
            | Outcome::Slot(Slot::Held(_) | Slot::Seen { .. } | Slot::Unknown, Some(decision)) => {
                if let Some(headers) = &self.headers {
                    headers.write(decision, self.now, fields);
                }
            }
            Outcome::Slot(Slot::Held(_) | Slot::Seen { .. } | Slot::Unknown, None) => {}
            Outcome::Blocked | Outcome::BlockedUntil(_) | Outcome::Slot(..) => {
                fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                fields.remove(RETRY_AFTER);
                if let Some(wait) = self.numbers().retry_after {
                    let seconds = wait.as_micros().div_ceil(1_000_000).max(1);
                    let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
                    fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
                }
            }
        }
    }
}

impl Outcome {
    const fn admits(&self) -> bool {
        match self {
            Self::Free => true,
            Self::Blocked | Self::BlockedUntil(_) => false,
            Self::Decided(decision) => decision.allowed(),
            Self::Slot(slot, _) => match slot {
                Slot::Held(_) | Slot::Seen { .. } | Slot::Unknown => true,
                Slot::Full { .. } | Slot::Unavailable { .. } => false,
            },
        }
    }
}
