//! `tollgate check`: one decision, asked of the store itself.

use std::time::Duration;

use serde::Serialize;
use tollgate::{
    BackendError, Cost, CounterBackend, Decision, ErrorKind, Key, Policy, Quota, QuotaAnswer,
    Subject,
};

use crate::cli::CheckArgs;
use crate::output::Lines;
use crate::{NEGATIVE, Outcome, SUCCESS, store};

/// Runs the command.
pub(crate) fn run(args: &CheckArgs) -> Outcome {
    let policy = Policy::new(
        &args.policy,
        Quota::parse_list(&args.quota).map_err(Named::quota)?,
    )?;
    let cost = Cost::new(args.cost)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let decision = runtime.block_on(async {
        tokio::time::timeout(args.timeout, decide(args, &policy, cost))
            .await
            .unwrap_or_else(|_| {
                let place = store::place(&args.backend);
                let context = format!("no answer from {place} within {:?}", args.timeout);
                Err(BackendError::new(ErrorKind::Timeout, context).into())
            })
    });
    // Whatever still tries to connect is left behind.
    runtime.shutdown_background();

    let mut lines = Lines::new();
    let code = match decision? {
        None => {
            lines.json(&())?;
            SUCCESS
        }
        Some(decision) => {
            match (policy.quotas(), decision.quotas()) {
                ([quota], [answer]) => lines.json(&One {
                    quota: QuotaView::new(quota, answer),
                    origin: decision.origin().as_str(),
                })?,
                (quotas, answers) => lines.json(&Several {
                    allowed: decision.allowed(),
                    retry_after_us: decision.retry_after().map(micros),
                    origin: decision.origin().as_str(),
                    each: quotas
                        .iter()
                        .zip(answers)
                        .map(|(quota, answer)| QuotaView::new(quota, answer))
                        .collect(),
                })?,
            };
            if decision.allowed() {
                SUCCESS
            } else {
                NEGATIVE
            }
        }
    };
    lines.flush()?;
    Ok(code)
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The decision; `None` for a reset.
async fn decide(
    args: &CheckArgs,
    policy: &Policy,
    cost: Cost,
) -> Result<Option<Decision>, Failure> {
    let backend = store::connect(&args.backend, &args.prefix, true).await?;
    let key = Key::from(&args.key);
    let subject = Subject::new(policy, &key);
    Ok(if args.reset {
        backend.reset(subject).await?;
        None
    } else if args.peek {
        Some(backend.peek(subject, cost).await?)
    } else {
        Some(backend.acquire(subject, cost).await?)
    })
}

/// The answer of one quota.
#[derive(Serialize)]
struct QuotaView {
    allowed: bool,
    granted: u64,
    remaining: u64,
    limit: u64,
    retry_after_us: Option<u64>,
    reset_after_us: u64,
}

impl QuotaView {
    fn new(quota: &Quota, answer: &QuotaAnswer) -> Self {
        Self {
            allowed: answer.allowed,
            granted: answer.granted,
            remaining: answer.remaining,
            limit: quota.capacity(),
            retry_after_us: answer.retry_after.map(micros),
            reset_after_us: micros(answer.reset_after),
        }
    }
}

#[derive(Serialize)]
struct One {
    #[serde(flatten)]
    quota: QuotaView,
    origin: &'static str,
}

#[derive(Serialize)]
struct Several {
    allowed: bool,
    retry_after_us: Option<u64>,
    origin: &'static str,
    each: Vec<QuotaView>,
}

fn micros(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)
}

/// An error with the flag it came by.
#[derive(Debug, thiserror::Error)]
#[error("--quota: {0}")]
struct Named(String);

impl Named {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the shape that map_err wants"
    )]
    fn quota(error: tollgate::QuotaError) -> Self {
        Self(error.to_string())
    }
}
