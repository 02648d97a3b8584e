//! Logging to standard error, in a thread of its own, so that a pipe that nobody reads never holds
//! up a request: what does not fit in the queue is dropped and counted.

mod queue;

use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::cli::{LogArgs, LogFormat};
pub(crate) use queue::Logs;

/// A level that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("--log (or TOLLGATE_LOG): {0:?} is no level; write error, warn, info, debug, trace or off")]
pub(crate) struct LevelError(String);

/// Starts logging for the whole process. The answer must be kept, and finished at the end.
pub(crate) fn start(args: &LogArgs) -> Result<Logs, LevelError> {
    let level: LevelFilter = args.log.parse().map_err(|_| LevelError(args.log.clone()))?;
    // Libraries speak up at warnings, unless everything is asked for.
    let others = if level == LevelFilter::TRACE {
        level
    } else {
        level.min(LevelFilter::WARN)
    };
    let targets = Targets::new()
        .with_default(others)
        .with_target("tollgate", level);

    let (logs, queue) = Logs::start();
    let layer = fmt::layer().with_writer(queue);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match args.log_format {
        LogFormat::Text => boxed(layer.with_ansi(false)),
        LogFormat::Json => boxed(layer.json().flatten_event(true).with_ansi(false)),
    };
    // Another subscriber is there already when the program runs inside a test.
    let _ = tracing_subscriber::registry()
        .with(layer.with_filter(targets))
        .try_init();
    Ok(logs)
}

fn boxed<S: Subscriber>(layer: impl Layer<S> + Send + Sync) -> Box<dyn Layer<S> + Send + Sync> {
    Box::new(layer)
}
