//! Traces: calls in virtual time with the right answer to each, one trace a line of JSON.
//!
//! They are the acceptance test of every backend (`tollgate-testkit` carries them), and
//! `tollgate replay` runs them against any store. Feature `trace`.
//!
//! ```
//! use tollgate_core::trace::{Limits, Trace};
//!
//! let line = r#"{"name": "one",
//!     "quota": {"algorithm": "fixed_window", "limit": 1, "period_us": 1000},
//!     "steps": [{"at_us": 5000, "op": "acquire", "key": "a", "cost": 1, "expect":
//!         {"allowed": true, "granted": 1, "remaining": 0, "retry_after_us": null,
//!          "reset_after_us": 1000}}]}"#;
//! let trace = Trace::parse(line)?;
//! assert_eq!(trace.limits(), &Limits::Quota("1/ms fixed_window".parse()?));
//! assert_eq!(trace.steps().len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod format;
mod run;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::time::Duration;

pub use answer::{Answer, Counted, Difference, Leased, Several};
pub use format::FormatError;
pub use run::RunError;

use crate::{Cost, Quota, Refund, Timestamp};

/// One line: what limits, and the calls in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    name: String,
    limits: Limits,
    steps: Vec<Step>,
}

/// What a trace is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limits {
    /// `quota`: one, which answers for itself.
    Quota(Quota),
    /// `quotas`: several that are charged together; each answers besides the whole.
    Quotas(Vec<Quota>),
    /// `slots` and `ttl_us`: leases.
    Leases {
        /// How many holders at once.
        slots: NonZeroU32,
        /// How long each stays in without a renewal.
        ttl: Duration,
    },
}

impl Limits {
    /// The quotas; none for leases.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        match self {
            Self::Quota(quota) => std::slice::from_ref(quota),
            Self::Quotas(quotas) => quotas,
            Self::Leases { .. } => &[],
        }
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: Timestamp,
    /// For whom: any text.
    pub key: String,
    /// What is called.
    pub call: Call,
    /// The right answer; `None` where the line gives none.
    pub expect: Option<Answer>,
}

/// What a step calls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// Charge.
    Acquire(Cost),
    /// Ask.
    Peek(Cost),
    /// Give back.
    Refund(Refund),
    /// Forget.
    Reset,
    /// Take a slot.
    Hold {
        /// By whom.
        holder: String,
    },
    /// Keep a slot.
    Renew {
        /// By whom.
        holder: String,
    },
    /// Leave a slot.
    Release {
        /// By whom.
        holder: String,
    },
}

impl Trace {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is about.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The calls, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether its clock moves back at some step. A wrapper that remembers answers until a moment
    /// cannot follow such a clock.
    #[must_use]
    pub fn clock_moves_back(&self) -> bool {
        !self.steps.is_sorted_by_key(|step| step.at)
    }

    /// Where `answers` are not what the line expects: the step's number from 0. A missing answer is
    /// a difference, and so is a step without an expectation, so that a file that expects nothing
    /// never passes a check.
    #[must_use]
    pub fn differences(&self, answers: &[Answer]) -> Vec<Difference> {
        let count = self.steps.len().max(answers.len());
        (0..count)
            .filter_map(|step| {
                let expected = self.steps.get(step).and_then(|step| step.expect.clone());
                let got = answers.get(step).cloned();
                (expected.is_none() || expected != got).then_some(Difference {
                    step,
                    expected,
                    got,
                })
            })
            .collect()
    }
}
