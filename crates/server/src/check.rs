//! `tollgate check`: one decision, or one slot, asked of the store itself.

mod slots;

use std::future::Future;
use std::time::Duration;

use clap::ArgMatches;
use serde::Serialize;
use tollgate::{
    BackendError, Cost, CounterBackend, Decision, ErrorKind, Key, Policy, Quota, QuotaAnswer,
    Subject,
};

use crate::cli::CheckArgs;
use crate::config::{ConfigError, Given, Mistakes, Source, values};
use crate::output::Lines;
use crate::{NEGATIVE, Outcome, SUCCESS, store};

/// How long all of it may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What is asked, of which store.
struct Question<'a> {
    args: &'a CheckArgs,
    backend: (String, Source),
    prefix: String,
    policy: Policy,
    cost: Cost,
    timeout: Duration,
}

/// Runs the command.
pub(crate) fn run(args: &CheckArgs, matches: &ArgMatches) -> Outcome {
    let given = Given::new(matches, "check");
    given.finish()?;
    if args.slots.is_some() {
        return slots::run(args, &given);
    }
    let read_cost = |text: &str| {
        let cost = values::count(text)?;
        Cost::new(cost).map_err(|error| error.to_string())
    };
    let (backend, quotas) = needed(&given)?;
    let (timeout, timeout_by) = timeout(&given)?;
    let question = Question {
        args,
        backend,
        prefix: store::prefix(&given)?,
        policy: Policy::new(&args.policy, quotas).map_err(|error| format!("--policy: {error}"))?,
        cost: given.flag("cost", read_cost)?.unwrap_or_default(),
        timeout,
    };
    let decision = answered(&question.backend, (timeout, timeout_by), decide(&question));

    let mut lines = Lines::new();
    let code = match decision? {
        None => {
            lines.json(&())?;
            SUCCESS
        }
        Some(decision) => {
            match (question.policy.quotas(), decision.quotas()) {
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

/// The store and the quotas; all that is missing is told at once.
fn needed(given: &Given<'_>) -> Result<((String, Source), Vec<Quota>), Failure> {
    let quotas = given.find("quota", values::quotas)?;
    let missing = match (store::given(given), quotas) {
        (Ok(backend), Some((quotas, _))) => return Ok((backend, quotas)),
        (Ok(_), None) => None,
        (Err(backend), Some(_)) => return Err(backend.into()),
        (Err(backend), None) => Some(backend),
    };
    let quota = ConfigError::Missing {
        field: "quota",
        fix: "such as '5/15m sliding_window'",
    };
    Err(Mistakes::from_iter(missing.into_iter().chain([quota])).into())
}

/// How long all of it may take, and who says so.
fn timeout(given: &Given<'_>) -> Result<(Duration, Source), ConfigError> {
    let timeout = given.find("timeout", values::duration)?;
    Ok(timeout.unwrap_or_else(|| (TIMEOUT, Source::Flag("--timeout".into()))))
}

/// The answer of a store, or what is wrong with it.
fn answered<T>(
    (url, given_by): &(String, Source),
    (timeout, timeout_by): (Duration, Source),
    asked: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let failed = |error: &(dyn std::error::Error + 'static)| {
        Failure::from(store::failed(Some(given_by), url, error))
    };
    let answer = runtime.block_on(async {
        match tokio::time::timeout(timeout, asked).await {
            Ok(answer) => answer.map_err(|error| failed(&*error)),
            Err(_) => {
                let context = format!("no answer within {timeout:?} ({timeout_by})");
                Err(failed(&BackendError::new(ErrorKind::Timeout, context)))
            }
        }
    });
    // Whatever still tries to connect is left behind.
    runtime.shutdown_background();
    answer
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The decision; `None` for a reset.
async fn decide(question: &Question<'_>) -> Result<Option<Decision>, Failure> {
    let Question {
        args,
        backend: (url, _),
        prefix,
        policy,
        cost,
        timeout,
    } = question;
    let backend = store::connect(url, prefix, *timeout).await?;
    let key = Key::from(&args.key);
    let subject = Subject::new(policy, &key);
    Ok(if args.reset {
        backend.reset(subject).await?;
        None
    } else if args.peek {
        Some(backend.peek(subject, *cost).await?)
    } else {
        Some(backend.acquire(subject, *cost).await?)
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
