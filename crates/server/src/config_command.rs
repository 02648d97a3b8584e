//! `tollgate config`: settings, without serving.

use std::path::Path;

use clap::ArgMatches;
use tollgate::Connect;

use crate::cli::{ConfigArgs, ConfigCommand};
use crate::config::{ConfigError, Given, Settings, Source, schema, shown, values, variables};
use crate::output::Lines;
use crate::{Outcome, SUCCESS, rules, serve, store};

/// Runs the command.
pub(crate) fn run(args: &ConfigArgs, matches: &ArgMatches) -> Outcome {
    let mut lines = Lines::new();
    match &args.command {
        ConfigCommand::Check { file } => {
            let given = Given::new(matches, "config").with_file(file.clone());
            store_and_files(&given);
            let settings = Settings::read(&given);
            for unknown in variables::unknown(&given) {
                lines.text(&format!("warning: {unknown}"))?;
            }
            if let Err(mistakes) = settings {
                lines.flush()?;
                return Err(mistakes.into());
            }
            let place = file.as_ref().map(|file| format!("{}: ", file.display()));
            lines.text(&format!("{}no mistakes", place.unwrap_or_default()))?;
        }
        ConfigCommand::Schema => {
            lines.text(&serde_json::to_string_pretty(&schema())?)?;
        }
    }
    lines.flush()?;
    Ok(SUCCESS)
}

/// Notes what `serve` would find only while it starts: a URL that is none of a store's, and files
/// that cannot be used.
fn store_and_files(given: &Given<'_>) {
    let found = |field| given.find(field, values::text).ok().flatten();
    let wrong = |source_of: Source, value: String, problem: String| {
        given.mistake(ConfigError::Value {
            source_of,
            value,
            problem,
        });
    };
    if let Some((url, by)) = found("backend") {
        match (Connect::new(&url).check(), found("prefix")) {
            (Err(error), _) => wrong(
                by,
                shown(&url).unwrap_or_else(|| "***".into()),
                store::problem(&error),
            ),
            (Ok(()), Some((prefix, by))) => {
                if let Err(error) = Connect::new(&url).prefix(&*prefix).check() {
                    wrong(by, format!("{prefix:?}"), store::problem(&error));
                }
            }
            (Ok(()), None) => {}
        }
    }
    if let Some((path, by)) = found("rules.file")
        && let Err(problem) = rules::check_file(Path::new(&path))
    {
        wrong(by, format!("{path:?}"), problem);
    }
    serve::check_certificates(given);
}
