//! How a trace is written, and reading it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::{Answer, Call, Limits, Step, Trace};
use crate::{Cost, CostError, MAX_QUOTAS, Quota, QuotaError, Refund, Timestamp};

/// A line that is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It is not JSON, or a field is missing or wrong.
    #[error("not a trace: {0}")]
    Json(#[source] serde_json::Error),
    /// It has not exactly one of `quota`, `quotas` (1 to 16 of them), and `slots` with `ttl_us`.
    #[error(
        "trace {0:?}: give exactly one of \"quota\", \"quotas\" (1 to {MAX_QUOTAS}), or \"slots\" with \"ttl_us\""
    )]
    Limits(String),
    /// A quota cannot be built.
    #[error("trace {name:?}: quota {index}: {source}")]
    Quota {
        /// The trace.
        name: String,
        /// Which quota, from 0.
        index: usize,
        /// Why.
        source: Box<QuotaError>,
    },
    /// A cost cannot be charged.
    #[error("trace {name:?}, step {step}: {source}")]
    Cost {
        /// The trace.
        name: String,
        /// Which step, from 0.
        step: usize,
        /// Why.
        source: CostError,
    },
    /// An operation that does not fit the trace, or lacks a field.
    #[error("trace {name:?}, step {step}: {what}")]
    Step {
        /// The trace.
        name: String,
        /// Which step, from 0.
        step: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A field that means nothing: misspelt, it would leave out what it was to say.
    #[error("trace {name:?}{}: unknown field {field:?}", step.map(|step| format!(", step {step}")).unwrap_or_default())]
    UnknownField {
        /// The trace.
        name: String,
        /// Which step, from 0; `None` for a field of the trace itself.
        step: Option<usize>,
        /// Its name.
        field: String,
    },
}

#[derive(Deserialize)]
#[serde(expecting = "a trace: an object with name, a quota and steps")]
struct TraceLine {
    name: String,
    quota: Option<QuotaLine>,
    quotas: Option<Vec<QuotaLine>>,
    slots: Option<NonZeroU32>,
    ttl_us: Option<u64>,
    steps: Vec<StepLine>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// Fields that nobody reads. Kept, so that the error can say in which trace and step they are.
type Unknown = BTreeMap<String, IgnoredAny>;

/// An unknown field could change what is meant, so it is refused.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with algorithm, limit, period_us and maybe burst"
)]
struct QuotaLine {
    algorithm: String,
    limit: u64,
    period_us: u64,
    burst: Option<u64>,
}

#[derive(Deserialize)]
#[serde(expecting = "a step: an object with at_us, op and key")]
struct StepLine {
    at_us: u64,
    op: Op,
    key: String,
    cost: Option<u64>,
    max: Option<u64>,
    charged_at_us: Option<u64>,
    holder: Option<String>,
    #[serde(default, deserialize_with = "present")]
    expect: Option<Answer>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Acquire,
    Peek,
    Refund,
    Reset,
    Renew,
    Release,
}

/// `null` is an answer, that of a reset, and not the absence of one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Answer>, D::Error> {
    Answer::deserialize(deserializer).map(Some)
}

impl Trace {
    /// Reads one line.
    ///
    /// # Errors
    /// When it is no trace, a quota cannot be built, or a cost cannot be charged.
    pub fn parse(line: &str) -> Result<Self, FormatError> {
        let line: TraceLine = serde_json::from_str(line).map_err(FormatError::Json)?;
        let name = line.name;
        known(&name, None, line.unknown)?;
        let limits = match (line.quota, line.quotas, line.slots, line.ttl_us) {
            (Some(quota), None, None, None) => Limits::Quota(quota.build(&name, 0)?),
            (None, Some(quotas), None, None) if (1..=MAX_QUOTAS).contains(&quotas.len()) => {
                let quotas = quotas.iter().enumerate();
                Limits::Quotas(
                    quotas
                        .map(|(index, quota)| quota.build(&name, index))
                        .collect::<Result<_, _>>()?,
                )
            }
            (None, None, Some(slots), Some(ttl)) => Limits::Leases {
                slots,
                ttl: Duration::from_micros(ttl),
            },
            _ => return Err(FormatError::Limits(name)),
        };
        let leases = matches!(limits, Limits::Leases { .. });
        let steps = line
            .steps
            .into_iter()
            .enumerate()
            .map(|(number, step)| step.build(&name, number, leases))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name,
            limits,
            steps,
        })
    }

    /// Reads all lines of a file; empty ones are left out.
    ///
    /// # Errors
    /// The first line that cannot be read.
    pub fn parse_lines(text: &str) -> Result<Vec<Self>, FormatError> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(Self::parse).collect()
    }
}

fn known(name: &str, step: Option<usize>, unknown: Unknown) -> Result<(), FormatError> {
    match unknown.into_keys().next() {
        None => Ok(()),
        Some(field) => Err(FormatError::UnknownField {
            name: name.into(),
            step,
            field,
        }),
    }
}

impl QuotaLine {
    /// Limit and burst go in together: a limit may be countable only with the burst that is given.
    fn build(&self, name: &str, index: usize) -> Result<Quota, FormatError> {
        let Self {
            algorithm,
            limit,
            period_us,
            burst,
        } = self;
        let burst = burst.map_or_else(String::new, |burst| format!(" burst={burst}"));
        format!("{limit}/{period_us}us {algorithm}{burst}")
            .parse()
            .map_err(|source| FormatError::Quota {
                name: name.into(),
                index,
                source: Box::new(source),
            })
    }
}

impl StepLine {
    fn build(mut self, name: &str, step: usize, leases: bool) -> Result<Step, FormatError> {
        known(name, Some(step), std::mem::take(&mut self.unknown))?;
        let wrong = |what| FormatError::Step {
            name: name.into(),
            step,
            what,
        };
        let cost = || {
            let cost = self.cost.ok_or(wrong("\"cost\" is missing"))?;
            Cost::range(cost, self.max.unwrap_or(cost)).map_err(|source| FormatError::Cost {
                name: name.into(),
                step,
                source,
            })
        };
        let holder = || self.holder.clone().ok_or(wrong("\"holder\" is missing"));
        let call = match (self.op, leases) {
            (Op::Acquire, false) => Call::Acquire(cost()?),
            (Op::Peek, false) => Call::Peek(cost()?),
            (Op::Refund, false) => Call::Refund(Refund {
                cost: self.cost.ok_or(wrong("\"cost\" is missing"))?,
                charged_at: self
                    .charged_at_us
                    .map(Timestamp::from_micros)
                    .ok_or(wrong("\"charged_at_us\" is missing"))?,
            }),
            (Op::Reset, false) => Call::Reset,
            (Op::Acquire, true) => Call::Hold { holder: holder()? },
            (Op::Renew, true) => Call::Renew { holder: holder()? },
            (Op::Release, true) => Call::Release { holder: holder()? },
            (Op::Renew | Op::Release, false) => {
                return Err(wrong(
                    "this operation is of leases, and the trace has quotas",
                ));
            }
            (Op::Peek | Op::Refund | Op::Reset, true) => {
                return Err(wrong(
                    "this operation is of quotas, and the trace has leases",
                ));
            }
        };
        Ok(Step {
            at: Timestamp::from_micros(self.at_us),
            key: self.key,
            call,
            expect: self.expect,
        })
    }
}
