//! Logging to standard error, in a thread of its own, so that a pipe that nobody reads never holds
//! up a request: what does not fit in the queue is dropped and counted.

mod queue;

use std::str::FromStr;

use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::admin;
use crate::cli::LogFormat;
pub(crate) use queue::Logs;

/// The longest text of a client, in bytes, that is told whole.
const MOST: usize = 512;

/// As much of what a client sent as goes into the log, whose lines wait in memory to be written.
pub(crate) fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST)]
}

/// The least severe messages that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(LevelFilter);

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = match text.to_ascii_lowercase().as_str() {
            "off" => LevelFilter::OFF,
            "error" | "critical" | "fatal" => LevelFilter::ERROR,
            "warn" | "warning" => LevelFilter::WARN,
            "info" => LevelFilter::INFO,
            "debug" => LevelFilter::DEBUG,
            // Python's NOTSET leaves nothing out.
            "trace" | "notset" => LevelFilter::TRACE,
            _ => return Err("it is no level; write error, warn, info, debug, trace or off".into()),
        };
        Ok(Self(level))
    }
}

/// Starts logging for the whole process. The answer must be kept, and finished at the end.
pub(crate) fn start(Level(level): Level, format: LogFormat) -> Logs {
    // Libraries speak up at warnings, unless everything is asked for.
    let others = if level == LevelFilter::TRACE {
        level
    } else {
        level.min(LevelFilter::WARN)
    };
    let targets = Targets::new()
        .with_default(others)
        .with_target("tollgate", level)
        // Who changed what is told at any level, unless nothing is.
        .with_target(
            admin::AUDIT,
            if level == LevelFilter::OFF {
                level
            } else {
                level.max(LevelFilter::INFO)
            },
        );

    let (logs, queue) = Logs::start();
    let layer = fmt::layer().with_writer(queue);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Text => boxed(layer.with_ansi(false)),
        LogFormat::Json => boxed(layer.json().flatten_event(true).with_ansi(false)),
    };
    // Another subscriber is there already when the program runs inside a test.
    let _ = tracing_subscriber::registry()
        .with(layer.with_filter(targets))
        .try_init();
    logs
}

fn boxed<S: Subscriber>(layer: impl Layer<S> + Send + Sync) -> Box<dyn Layer<S> + Send + Sync> {
    Box::new(layer)
}
