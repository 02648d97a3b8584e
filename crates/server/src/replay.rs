//! `tollgate replay`: traces in virtual time, on any store.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use tollgate::{
    BackendError, Connect, CounterBackend, ErrorKind, SharedBackend, SharedLeases, Timeout,
};
use tollgate_core::trace::{Answer, FormatError, Limits, RunError, Trace};

use crate::cli::ReplayArgs;
use crate::config::{Given, Source, values};
use crate::output::Lines;
use crate::{NEGATIVE, Outcome, SUCCESS, store};

/// So many traces run at once: the steps of one follow each other, so a store across a network is
/// kept busy by many.
const AT_ONCE: usize = 64;

/// How long each call of the backend may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(args: &ReplayArgs, matches: &ArgMatches) -> Outcome {
    let given = Given::new(matches, "replay");
    given.finish()?;
    let settings = Settings {
        backend: store::given(&given)?,
        prefix: store::prefix(&given)?,
        timeout: given.flag("timeout", values::duration)?.unwrap_or(TIMEOUT),
        check: args.check,
    };
    let mut traces = Vec::new();
    for file in &args.files {
        traces.extend(read(file)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(replay(&settings, traces));
    // Whatever still tries to connect is left behind.
    runtime.shutdown_background();
    outcome
}

/// What is replayed where.
struct Settings {
    backend: (String, Source),
    prefix: String,
    timeout: Duration,
    check: bool,
}

async fn replay(settings: &Settings, traces: Vec<Trace>) -> Outcome {
    let (url, given_by) = &settings.backend;
    let connect = Connect::new(url)
        .prefix(settings.prefix.as_str())
        .timeout(settings.timeout)
        .require(true)
        .connect();
    let backend = match tokio::time::timeout(settings.timeout, connect).await {
        Ok(Ok(backend)) => backend,
        Ok(Err(error)) => return Err(store::failed(Some(given_by), url, &error).into()),
        Err(_) => {
            let context = format!("no answer within {:?} (--timeout)", settings.timeout);
            let error = BackendError::new(ErrorKind::Timeout, context);
            return Err(store::failed(Some(given_by), url, &error).into());
        }
    };
    let leases = Arc::new(backend.clone()).leases();
    let of_leases = |trace: &Trace| matches!(trace.limits(), Limits::Leases { .. });
    // Told before anything is run, and printed.
    if leases.is_none()
        && let Some(trace) = traces.iter().find(|trace| of_leases(trace))
    {
        let error = NoLeases(trace.name().into());
        return Err(store::failed(Some(given_by), url, &error).into());
    }
    let backend = Stores {
        counters: Timeout::new(backend, settings.timeout),
        leases: leases.map(|leases| Timeout::new(leases, settings.timeout)),
    };

    let mut report = Report::new(settings.check);
    let mut runs = stream::iter(traces)
        .map(|trace| run_one(trace, &backend))
        .buffered(AT_ONCE);
    while let Some(run) = runs.next().await {
        let (trace, answers) = run?;
        if !report.add(&trace, &answers)? {
            // Nobody reads on.
            return Ok(report.code());
        }
    }
    report.end()
}

/// What traces run on.
struct Stores {
    counters: Timeout<SharedBackend>,
    leases: Option<Timeout<SharedLeases>>,
}

async fn run_one(trace: Trace, stores: &Stores) -> Result<(Trace, Vec<Answer>), StoreError> {
    let answers = match (&stores.leases, trace.limits()) {
        (Some(leases), Limits::Leases { .. }) => trace.run_leases(leases).await,
        _ => trace.run(&stores.counters).await,
    };
    match answers {
        Ok(answers) => Ok((trace, answers)),
        Err(source) => Err(StoreError {
            name: trace.name().into(),
            source,
        }),
    }
}

/// What is printed, and the sums.
struct Report {
    check: bool,
    lines: Lines,
    traces: usize,
    steps: usize,
    differences: usize,
}

impl Report {
    fn new(check: bool) -> Self {
        Self {
            check,
            lines: Lines::new(),
            traces: 0,
            steps: 0,
            differences: 0,
        }
    }

    /// `false` when nobody reads any more.
    fn add(&mut self, trace: &Trace, answers: &[Answer]) -> std::io::Result<bool> {
        let name = trace.name();
        self.traces += 1;
        self.steps += answers.len();
        if !self.check {
            return self.lines.json(&Answers { name, answers });
        }
        for difference in trace.differences(answers) {
            self.differences += 1;
            let line = Different {
                name,
                step: difference.step,
                expect: difference.expected.as_ref(),
                got: difference.got.as_ref(),
                why: difference
                    .expected
                    .is_none()
                    .then_some("the step has no \"expect\""),
            };
            if !self.lines.json(&line)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    const fn code(&self) -> u8 {
        if self.differences > 0 {
            NEGATIVE
        } else {
            SUCCESS
        }
    }

    fn end(mut self) -> Outcome {
        let Self {
            traces,
            steps,
            differences,
            ..
        } = self;
        if self.check {
            let sums = format!("{traces} traces, {steps} steps, {differences} differences");
            self.lines.text(&sums)?;
        }
        self.lines.flush()?;
        Ok(self.code())
    }
}

#[derive(Serialize)]
struct Answers<'a> {
    name: &'a str,
    answers: &'a [Answer],
}

#[derive(Serialize)]
struct Different<'a> {
    name: &'a str,
    step: usize,
    expect: Option<&'a Answer>,
    got: Option<&'a Answer>,
    /// An expected `null` is that of a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

fn read(file: &Path) -> Result<Vec<Trace>, InputError> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text))
    }
    .map_err(|cause| InputError::Unreadable {
        file: file.into(),
        cause,
    })?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            Trace::parse(line).map_err(|cause| InputError::Line {
                file: file.into(),
                number: index + 1,
                cause: Box::new(cause),
            })
        })
        .collect()
}

/// A file that holds no traces.
#[derive(Debug, thiserror::Error)]
enum InputError {
    #[error("{}: cannot be read: {cause}", file.display())]
    Unreadable {
        file: PathBuf,
        cause: std::io::Error,
    },
    #[error("{}, line {number}: {cause}{}", file.display(), hint(cause))]
    Line {
        file: PathBuf,
        number: usize,
        cause: Box<FormatError>,
    },
}

/// What to do about a trace that is written on several lines, as documentation shows it.
fn hint(cause: &FormatError) -> &'static str {
    match cause {
        FormatError::Json(error) if error.is_eof() => {
            "; a trace is one line: join its lines, such as by jq -c . FILE"
        }
        _ => "",
    }
}

/// The store has nothing to run it on.
#[derive(Debug, thiserror::Error)]
#[error(
    "trace {0:?}: this store cannot hold leases; use redis://, dynamodb:// or memory:// for it"
)]
struct NoLeases(String);

/// The store failed.
#[derive(Debug, thiserror::Error)]
#[error("trace {name:?}: {source}")]
struct StoreError {
    name: String,
    source: RunError,
}
