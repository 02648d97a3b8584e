//! Settings that cannot be used: where they were given, the field, the value, and what to do.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a setting was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// On the command line.
    Flag(String),
    /// In an environment variable.
    Environment(String),
    /// In a field of the file.
    File(PathBuf, &'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.write_str(flag),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::File(path, field) => write!(f, "{}: field {field}", path.display()),
        }
    }
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The file is no TOML, has a field that is not known, or one of a wrong type.
    #[error("{}: {place}{message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, and the field where there is one.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// Something without a default that was not given.
    #[error(
        "--{field}: it is not given; write --{field} or set {}, {fix}",
        super::variable(field)
    )]
    Missing {
        /// What.
        field: &'static str,
        /// An example.
        fix: &'static str,
    },
    /// A value that cannot be used.
    #[error("{source_of}: {value}: {problem}")]
    Value {
        /// Where it was given.
        source_of: Source,
        /// The value; hidden where it may hold a secret.
        value: String,
        /// What is wrong, and what to write.
        problem: String,
    },
}

impl ConfigError {
    /// The parser's own text would show the line, which may hold a password: only its place and
    /// its field are told.
    pub(super) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let place = error.span().map_or_else(String::new, |span| {
            let before = text.get(..span.start).unwrap_or_default();
            let number = before.matches('\n').count() + 1;
            let line = text.lines().nth(number - 1).unwrap_or_default();
            match line.split_once('=') {
                Some((field, _)) if is_field(field.trim()) => {
                    format!("line {number}: field {}: ", field.trim())
                }
                _ => format!("line {number}: "),
            }
        });
        Self::Syntax {
            path: path.into(),
            place,
            message: error.message().trim().replace('\n', " "),
        }
    }
}

/// Whether this can be the name of a field; a line inside a longer text may be anything.
fn is_field(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}
