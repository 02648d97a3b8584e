//! Answers as traces write them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Decision, LeaseAnswer, QuotaAnswer};

/// The answer to one step, with exactly the fields of `expect`.
///
/// ```
/// use tollgate_core::trace::{Answer, Leased};
///
/// let json = r#"{"ok":true,"in_use":2}"#;
/// let answer: Answer = serde_json::from_str(json)?;
/// assert_eq!(answer, Answer::Leased(Leased { ok: true, in_use: 2 }));
/// assert_eq!(serde_json::to_string(&answer)?, json);
/// assert_eq!(serde_json::to_string(&Answer::Reset)?, "null");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// One quota.
    Counted(Counted),
    /// Several quotas.
    Several(Several),
    /// A lease.
    Leased(Leased),
    /// `null`: a reset has nothing to say.
    Reset,
}

/// What one quota says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Whether it was admitted.
    pub allowed: bool,
    /// How much was charged.
    pub granted: u64,
    /// How much is available after the call.
    pub remaining: u64,
    /// Microseconds until the same request fits; `null` if admitted, or if never.
    pub retry_after_us: Option<u64>,
    /// Microseconds until nothing is used.
    pub reset_after_us: u64,
}

/// What several quotas say together, and each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Several {
    /// Whether all admitted.
    pub allowed: bool,
    /// How much was charged to each.
    pub granted: u64,
    /// The longest wait in microseconds; `null` if admitted, or if one says never.
    pub retry_after_us: Option<u64>,
    /// In the order of the quotas.
    pub each: Vec<Counted>,
}

/// What a store says about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leased {
    /// Whether the holder is in; for a release, whether it was.
    pub ok: bool,
    /// How many are in.
    pub in_use: u32,
}

impl Answer {
    /// The decision as the answer of one quota. `None` if no quota spoke: nobody counted.
    #[must_use]
    pub fn of_quota(decision: &Decision) -> Option<Self> {
        match decision.quotas() {
            [answer] => Some(Self::Counted(answer.into())),
            _ => None,
        }
    }

    /// The decision as the answer of several quotas. `None` if no quota spoke: nobody counted.
    #[must_use]
    pub fn of_quotas(decision: &Decision) -> Option<Self> {
        (!decision.quotas().is_empty()).then(|| {
            Self::Several(Several {
                allowed: decision.allowed(),
                granted: decision.granted(),
                retry_after_us: decision.retry_after().map(micros),
                each: decision.quotas().iter().map(Counted::from).collect(),
            })
        })
    }

    /// Whether it was admitted; `None` where nothing was asked.
    #[must_use]
    pub const fn allowed(&self) -> Option<bool> {
        match self {
            Self::Counted(one) => Some(one.allowed),
            Self::Several(all) => Some(all.allowed),
            Self::Leased(_) | Self::Reset => None,
        }
    }
}

impl From<&QuotaAnswer> for Counted {
    fn from(answer: &QuotaAnswer) -> Self {
        Self {
            allowed: answer.allowed,
            granted: answer.granted,
            remaining: answer.remaining,
            retry_after_us: answer.retry_after.map(micros),
            reset_after_us: micros(answer.reset_after),
        }
    }
}

impl From<LeaseAnswer> for Answer {
    fn from(answer: LeaseAnswer) -> Self {
        Self::Leased(Leased {
            ok: answer.ok,
            in_use: answer.in_use,
        })
    }
}

fn micros(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)
}

/// An answer that is not the right one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The number of the step, from 0.
    pub step: usize,
    /// The right answer; `None` if the trace has none for this step.
    pub expected: Option<Answer>,
    /// The answer; `None` if none came.
    pub got: Option<Answer>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step {}: expected {}, got {}",
            self.step,
            Json(self.expected.as_ref()),
            Json(self.got.as_ref())
        )
    }
}

struct Json<'a>(Option<&'a Answer>);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.map(serde_json::to_string) {
            Some(Ok(text)) => f.write_str(&text),
            _ => f.write_str("nothing"),
        }
    }
}
