//! The answer to a charge: who decided, whether it was admitted, and what each quota says.

use std::time::Duration;

use crate::Timestamp;

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Origin {
    /// The backend, in the one place that all processes share.
    #[default]
    Shared,
    /// This process, which remembered that the backend had refused and when something fits again.
    RememberedRefusal,
    /// This process alone, counting locally because the backend did not answer.
    LocalFallback,
    /// Nobody: the backend did not answer, and the policy admits.
    FailOpen,
    /// Nobody: the backend did not answer, and the policy refuses.
    FailClosed,
}

impl Origin {
    /// The name used in JSON and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::RememberedRefusal => "remembered_refusal",
            Self::LocalFallback => "local_fallback",
            Self::FailOpen => "fail_open",
            Self::FailClosed => "fail_closed",
        }
    }

    /// Whether the shared quota was applied. The other answers are those of an outage.
    #[must_use]
    pub const fn is_enforced(self) -> bool {
        matches!(self, Self::Shared | Self::RememberedRefusal)
    }
}

/// What one quota says about a charge. Times are in whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaAnswer {
    /// Whether this quota admits it.
    pub allowed: bool,
    /// How much was charged.
    pub granted: u64,
    /// How much is available after the call.
    pub remaining: u64,
    /// The wait after which the same request would be admitted if nobody else came. `None` when it
    /// is allowed, and when no wait is long enough.
    pub retry_after: Option<Duration>,
    /// The wait until nothing is used (for the log: until its oldest admission leaves).
    pub reset_after: Duration,
    /// The wait after which more than `remaining` would be available; `None` when full.
    pub more_after: Option<Duration>,
}

/// The answer to a charge, a peek or a refund.
///
/// A refusal is a decision like any other, never an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    allowed: bool,
    granted: u64,
    origin: Origin,
    charged_at: Timestamp,
    retry_after: Option<Duration>,
    quotas: Quotas,
}

/// One answer is by far the most common number, and needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Quotas {
    None,
    One(QuotaAnswer),
    Many(Box<[QuotaAnswer]>),
}

impl Decision {
    /// The decision of a policy with one quota.
    #[must_use]
    pub const fn of_one(charged_at: Timestamp, answer: QuotaAnswer) -> Self {
        Self {
            allowed: answer.allowed,
            granted: answer.granted,
            origin: Origin::Shared,
            charged_at,
            retry_after: answer.retry_after,
            quotas: Quotas::One(answer),
        }
    }

    /// The decision of a policy: admitted if every quota admits, else the longest wait, or never if
    /// one of them says never.
    #[must_use]
    pub fn of(charged_at: Timestamp, answers: Vec<QuotaAnswer>) -> Self {
        if let [answer] = answers[..] {
            return Self::of_one(charged_at, answer);
        }
        let mut refusals = answers.iter().filter(|answer| !answer.allowed).peekable();
        let allowed = refusals.peek().is_none();
        let retry_after = if allowed {
            None
        } else {
            refusals
                .map(|answer| answer.retry_after)
                .reduce(|a, b| Some(a?.max(b?)))
                .flatten()
        };
        Self {
            allowed,
            granted: answers.first().map_or(0, |answer| answer.granted),
            origin: Origin::Shared,
            charged_at,
            retry_after,
            quotas: Quotas::Many(answers.into_boxed_slice()),
        }
    }

    /// A decision that no store made: no quota speaks.
    #[must_use]
    pub const fn unenforced(
        origin: Origin,
        allowed: bool,
        granted: u64,
        retry_after: Option<Duration>,
        charged_at: Timestamp,
    ) -> Self {
        Self {
            allowed,
            granted,
            origin,
            charged_at,
            retry_after,
            quotas: Quotas::None,
        }
    }

    /// The same answer, decided by somebody else.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Whether it was admitted.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.allowed
    }

    /// How much was charged; 0 for a refusal, a peek and a refund.
    #[must_use]
    pub const fn granted(&self) -> u64 {
        self.granted
    }

    /// Who decided.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// When it was charged, by the clock that counted it: what a refund is told. (For a sliding log
    /// whose newest admission lies ahead of the clock, that admission's time. For a token bucket,
    /// whose refunds do not depend on it, Redis leaves it to the caller's clock.)
    #[must_use]
    pub const fn charged_at(&self) -> Timestamp {
        self.charged_at
    }

    /// The wait after which the same request would be admitted if nobody else came. `None` when it
    /// was admitted, and when no wait is long enough ([`is_never`](Self::is_never)).
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether waiting can never help: it costs more than the capacity.
    #[must_use]
    pub const fn is_never(&self) -> bool {
        !self.allowed && self.retry_after.is_none() && self.origin.is_enforced()
    }

    /// How much is available after the call, by the tightest quota. `None` if no quota was asked.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.quotas().iter().map(|answer| answer.remaining).min()
    }

    /// The longest wait until nothing is used. `None` if no quota was asked.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.quotas().iter().map(|answer| answer.reset_after).max()
    }

    /// What each quota says, in the order of the policy; empty if none was asked.
    #[must_use]
    pub fn quotas(&self) -> &[QuotaAnswer] {
        match &self.quotas {
            Quotas::None => &[],
            Quotas::One(answer) => std::slice::from_ref(answer),
            Quotas::Many(answers) => answers,
        }
    }
}
