//! What is wrong with the settings: every mistake, with its field, its value and what to write.

use std::fmt;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mistake {
    /// The field, and where it was given: `plugin.ratelimit.window`, `TOLLGATE_RATELIMIT_WINDOW`.
    pub field: String,
    /// The value, as it was written.
    pub value: String,
    /// What is wrong with it, and what to write.
    pub problem: String,
}

impl Mistake {
    pub(super) fn new(field: &str, value: String, problem: String) -> Self {
        Self {
            field: field.into(),
            value,
            problem,
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.field, self.value, self.problem)
    }
}

/// Settings that cannot be used. It shows a line for each mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The document is no TOML, or a table is not one. The line is not shown: it may hold a secret.
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// Values that cannot be used.
    Mistakes(Vec<Mistake>),
}

impl ConfigError {
    pub(super) fn unless_none(mistakes: Vec<Mistake>) -> Result<(), Self> {
        if mistakes.is_empty() {
            Ok(())
        } else {
            Err(Self::Mistakes(mistakes))
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { line, problem } => write!(f, "line {line}: {problem}"),
            Self::Mistakes(all) => {
                let lines: Vec<String> = all.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

impl std::error::Error for ConfigError {}
