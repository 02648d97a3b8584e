//! The file `.env` of the working directory. It never goes before the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{ConfigError, Place};

/// Variables and the line of each.
#[derive(Default)]
pub(super) struct DotEnv {
    path: PathBuf,
    variables: BTreeMap<String, (usize, String)>,
}

impl DotEnv {
    /// Reads the file, if it is there.
    pub(super) fn read(path: &Path, mistakes: &mut Vec<ConfigError>) -> Self {
        let mut found = Self {
            path: path.into(),
            variables: BTreeMap::new(),
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return found,
            Err(cause) => {
                mistakes.push(ConfigError::Unreadable {
                    path: path.into(),
                    cause,
                });
                return found;
            }
        };
        for variable in dotenvy::from_read_iter(text.as_bytes()) {
            match variable {
                Ok((name, value)) => {
                    let line = line_of(&text, &name);
                    found.variables.insert(name, (line, value));
                }
                Err(error) => {
                    // The line itself may hold a password.
                    let place = match &error {
                        dotenvy::Error::LineParse(wrong, _) => {
                            let line = text.lines().position(|line| line.contains(wrong.trim()));
                            line.map_or_else(String::new, |line| format!("line {}: ", line + 1))
                        }
                        _ => String::new(),
                    };
                    mistakes.push(ConfigError::Syntax {
                        path: path.into(),
                        place,
                        message: "this is no variable; write NAME=value, and quotes around a \
                                  value with spaces"
                            .into(),
                    });
                }
            }
        }
        found
    }

    /// A variable that is not empty, and where it is.
    pub(super) fn get(&self, name: &str) -> Option<(Place, &str)> {
        let (line, value) = self.variables.get(name)?;
        let place = Place {
            path: self.path.clone(),
            line: *line,
        };
        (!value.is_empty()).then_some((place, value))
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, String)> {
        let pairs = self.variables.iter();
        pairs.map(|(name, (_, value))| (name.clone(), value.clone()))
    }
}

/// The last line that gives this variable a value.
fn line_of(text: &str, name: &str) -> usize {
    let gives = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        line.strip_prefix(name)
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let numbered = text.lines().zip(1..);
    let lines = numbered.filter(|(line, _)| gives(line));
    lines.map(|(_, number)| number).last().unwrap_or_default()
}
