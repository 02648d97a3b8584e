//! `tollgate config`: settings, without serving.

use clap::ArgMatches;

use crate::cli::{ConfigArgs, ConfigCommand};
use crate::config::{Given, Settings, schema, variables};
use crate::output::Lines;
use crate::{Outcome, SUCCESS};

/// Runs the command.
pub(crate) fn run(args: &ConfigArgs, matches: &ArgMatches) -> Outcome {
    let mut lines = Lines::new();
    match &args.command {
        ConfigCommand::Check { file } => {
            let given = Given::new(matches, "config").with_file(file.clone());
            Settings::read(&given)?;
            for unknown in variables::unknown(&given) {
                lines.text(&format!("warning: {unknown}"))?;
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
