//! What was decided, and what is told of it.

use std::sync::Arc;

use http::HeaderMap;
use tollgate::{Decision, Permit, Timestamp};
use tollgate_http::Problem;

use super::LiveRule;

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Verdict {
    rule: Arc<LiveRule>,
    allowed: bool,
    decision: Decision,
    permit: Option<Permit>,
    now: Timestamp,
}

impl Verdict {
    pub(super) const fn of(rule: Arc<LiveRule>, decision: Decision, now: Timestamp) -> Self {
        Self {
            rule,
            allowed: decision.allowed(),
            decision,
            permit: None,
            now,
        }
    }

    /// Whether the request may pass.
    pub(crate) const fn allowed(&self) -> bool {
        self.allowed
    }

    /// The id of the rule that decided.
    pub(crate) fn rule_id(&self) -> &str {
        &self.rule.id
    }

    /// Who decided, as logs and metrics call it.
    pub(crate) const fn origin(&self) -> &'static str {
        self.decision.origin().as_str()
    }

    /// Whether the shared limit was applied.
    pub(crate) const fn is_enforced(&self) -> bool {
        self.decision.origin().is_enforced()
    }

    /// The slot that the request holds, if its rule is about how many run at the same time: to be
    /// kept until the last byte of the answer is sent, and then dropped.
    pub(crate) const fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// The document of a refusal: 429, or 503 where the limit cannot be checked or everybody's
    /// slots are taken.
    pub(crate) fn problem(&self) -> Problem {
        Problem::gateway_refusal(self.rule.headers.policy(), &self.decision, self.now)
    }

    /// Writes what the answer tells of the limit, whatever the answer is.
    pub(crate) fn write_headers(&self, headers: &mut HeaderMap) {
        self.rule.headers.write(&self.decision, self.now, headers);
    }
}
