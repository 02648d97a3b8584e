//! What answers to refusals have in common.

use std::time::Duration;

use tollgate::Timestamp;
use tollgate_http::retry_after_seconds;

use super::verdict::{Outcome, Verdict};

/// What the answer to a refusal tells in its head, and in its document before the waits. Answers that
/// tell the same are the same, but for the id of the request, the date, and those waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The limit is 0.
    Blocked,
    /// By an operator.
    BlockedFor {
        /// In whole seconds.
        wait: u64,
    },
    /// By the one quota of what has this number.
    Quota {
        counted: u64,
        remaining: u64,
        more: Option<u64>,
        reset: u64,
        reset_at: u64,
        retry_after: Option<u64>,
    },
}

impl Verdict {
    /// What is told of this refusal. `None`: of one that is rare, and not looked at closely enough
    /// to know when another one tells the same.
    pub(crate) fn told(&self) -> Option<Told> {
        match self.outcome() {
            Outcome::Blocked => Some(Told::Blocked),
            Outcome::BlockedUntil(until) => {
                let wait = until.saturating_since(self.now());
                Some(Told::BlockedFor { wait: ceil(wait) })
            }
            Outcome::Decided(decision) if decision.origin().is_enforced() => {
                let [answer] = decision.quotas() else {
                    return None;
                };
                Some(Told::Quota {
                    counted: self.number(),
                    remaining: answer.remaining,
                    more: answer.more_after.map(ceil),
                    reset: ceil(answer.reset_after),
                    reset_at: second(self.now() + answer.reset_after),
                    retry_after: retry_after_seconds(decision),
                })
            }
            _ => None,
        }
    }
}

/// In whole seconds, as answers tell them.
const fn ceil(wait: Duration) -> u64 {
    wait.as_secs() + (wait.subsec_nanos() > 0) as u64
}

const fn second(moment: Timestamp) -> u64 {
    moment.as_micros().div_ceil(1_000_000)
}
