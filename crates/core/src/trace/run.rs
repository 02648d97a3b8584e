//! Running a trace on a backend.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Answer, Call, Limits, Trace};
use crate::{
    BackendError, CounterBackend, Decision, Key, LeaseBackend, LeaseSubject, Policy, PolicyError,
    Subject,
};

/// A trace that did not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A trace of leases was run on counters, or one of quotas on leases.
    #[error("the trace is of {0}")]
    Kind(&'static str),
    /// The store did not answer properly.
    #[error("step {step}: {source}")]
    Backend {
        /// Which step, from 0.
        step: usize,
        /// Why.
        source: BackendError,
    },
    /// A decision that no quota made, such as that of a fail-open policy.
    #[error("step {0}: nobody counted")]
    NotCounted(usize),
}

impl Trace {
    /// Runs every step on counters, in virtual time, and gives the answers in order.
    ///
    /// Each run counts under a policy name of its own, so that it starts from nothing whatever ran
    /// before, here or in another process.
    ///
    /// # Errors
    /// When the trace is of leases, or the store fails.
    pub async fn run<B: CounterBackend>(&self, backend: &B) -> Result<Vec<Answer>, RunError> {
        let one = matches!(self.limits, Limits::Quota(_));
        let decisions = self.decisions(backend).await?;
        decisions
            .iter()
            .enumerate()
            .map(|(step, decision)| match decision {
                None => Ok(Answer::Reset),
                Some(decision) if one => {
                    Answer::of_quota(decision).ok_or(RunError::NotCounted(step))
                }
                Some(decision) => Answer::of_quotas(decision).ok_or(RunError::NotCounted(step)),
            })
            .collect()
    }

    /// As [`run`](Self::run), but gives whole decisions; `None` for a reset.
    ///
    /// # Errors
    /// When the trace is of leases, or the store fails.
    pub async fn decisions<B: CounterBackend>(
        &self,
        backend: &B,
    ) -> Result<Vec<Option<Decision>>, RunError> {
        let policy = fresh_policy(self.limits.quotas()).map_err(|_| RunError::Kind("leases"))?;
        let mut decisions = Vec::with_capacity(self.steps.len());
        for (number, step) in self.steps.iter().enumerate() {
            let key = Key::from(&step.key);
            let subject = Subject::new(&policy, &key).at(step.at);
            let decided = match &step.call {
                Call::Acquire(cost) => backend.acquire(subject, *cost).await.map(Some),
                Call::Peek(cost) => backend.peek(subject, *cost).await.map(Some),
                Call::Refund(refund) => backend.refund(subject, *refund).await.map(Some),
                Call::Reset => backend.reset(subject).await.map(|()| None),
                Call::Hold { .. } | Call::Renew { .. } | Call::Release { .. } => {
                    return Err(RunError::Kind("leases"));
                }
            };
            decisions.push(decided.map_err(|source| RunError::Backend {
                step: number,
                source,
            })?);
        }
        Ok(decisions)
    }

    /// Runs every step on leases, as [`run`](Self::run) does on counters.
    ///
    /// # Errors
    /// When the trace is of quotas, or the store fails.
    pub async fn run_leases<B: LeaseBackend>(&self, backend: &B) -> Result<Vec<Answer>, RunError> {
        let Limits::Leases { slots, ttl } = self.limits else {
            return Err(RunError::Kind("quotas"));
        };
        let name = fresh_name();
        let mut answers = Vec::with_capacity(self.steps.len());
        for (number, step) in self.steps.iter().enumerate() {
            let key = Key::from(&step.key);
            let subject = LeaseSubject {
                name: &name,
                key: &key,
                at: Some(step.at),
            };
            let answered = match &step.call {
                Call::Hold { holder } => backend.acquire(subject, holder, slots, ttl).await,
                Call::Renew { holder } => backend.renew(subject, holder, ttl).await,
                Call::Release { holder } => backend.release(subject, holder).await,
                _ => return Err(RunError::Kind("quotas")),
            };
            answers.push(
                answered
                    .map(Answer::from)
                    .map_err(|source| RunError::Backend {
                        step: number,
                        source,
                    })?,
            );
        }
        Ok(answers)
    }
}

fn fresh_policy(quotas: &[crate::Quota]) -> Result<Policy, PolicyError> {
    Policy::new(&fresh_name(), quotas.iter().copied())
}

/// A name that no other run used: a number of this process, random, and one that counts.
fn fresh_name() -> String {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static RUNS: AtomicU64 = AtomicU64::new(0);
    // The standard library's hasher is seeded from the operating system, which saves a dependency.
    let process = PROCESS.get_or_init(|| RandomState::new().hash_one(std::process::id()));
    format!(
        "replay-{process:016x}-{}",
        RUNS.fetch_add(1, Ordering::Relaxed)
    )
}
