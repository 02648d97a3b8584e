//! What was given on the command line, in the environment and in the file, and by which.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::{ConfigError, Source, Text, url};

/// Settings that are also known by a name without a prefix, one that other gateways use. It counts
/// after `TOLLGATE_*`.
const BARE: [(&str, &str); 1] = [("upstream", "UPSTREAM_BASE_URL")];

/// What was given to one command.
pub(crate) struct Given<'a> {
    matches: &'a ArgMatches,
    file: PathBuf,
}

impl<'a> Given<'a> {
    /// `matches` is those of the whole command line; they tell flags from the environment.
    pub(crate) fn new(matches: &'a ArgMatches, command: &str, file: Option<&Path>) -> Self {
        Self {
            matches: matches.subcommand_matches(command).unwrap_or(matches),
            file: file.map(Into::into).unwrap_or_default(),
        }
    }

    /// Reads a setting from the first place that has it, and says which that is.
    pub(crate) fn find<T>(
        &self,
        field: &'static str,
        arg: Option<&str>,
        file: Option<&Text>,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<(T, Source)>, ConfigError> {
        let Some((text, source)) = self.text(field, arg, file) else {
            return Ok(None);
        };
        match read(&text) {
            Ok(value) => Ok(Some((value, source))),
            Err(problem) => Err(ConfigError::Value {
                source_of: source,
                value: match field {
                    // URLs may hold a password, and so may what somebody took for one.
                    "backend" => url::shown(&text).unwrap_or_else(|| "the URL".into()),
                    "upstream" if text.contains("://") || text.contains('@') => {
                        url::shown(&text).unwrap_or_else(|| "the URL".into())
                    }
                    _ => format!("{text:?}"),
                },
                problem,
            }),
        }
    }

    /// [`find`](Self::find) without the place.
    pub(crate) fn read<T>(
        &self,
        field: &'static str,
        arg: Option<&str>,
        file: Option<&Text>,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let found = self.find(field, arg, file, read)?;
        Ok(found.map(|(value, _)| value))
    }

    fn text(
        &self,
        field: &'static str,
        arg: Option<&str>,
        file: Option<&Text>,
    ) -> Option<(String, Source)> {
        let by_environment = self.matches.value_source(field) == Some(ValueSource::EnvVariable);
        // An empty variable, as compose files produce, is none.
        if let Some(text) = arg.filter(|text| !(by_environment && text.is_empty())) {
            let source = if by_environment {
                Source::Environment(variable(field))
            } else {
                Source::Flag(format!("--{}", field.replace('_', "-")))
            };
            return Some((text.into(), source));
        }
        if let Some((_, name)) = BARE.iter().find(|(of, _)| *of == field)
            && let Ok(text) = std::env::var(name)
            && !text.is_empty()
        {
            return Some((text, Source::Environment((*name).into())));
        }
        let Text(text) = file?;
        Some((text.clone(), Source::File(self.file.clone(), field)))
    }
}

/// The variable of a setting.
pub(crate) fn variable(field: &str) -> String {
    format!("TOLLGATE_{}", field.to_uppercase())
}
