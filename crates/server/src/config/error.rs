//! Settings that cannot be used: where they were given, the field, the value, and what to do.

use std::fmt;
use std::path::PathBuf;

/// Where a setting was given. The first of these that has it counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// On the command line.
    Flag(String),
    /// In an environment variable `TOLLGATE_*`.
    Environment(String),
    /// In one without this prefix.
    Bare(String),
    /// In the file `.env` of the working directory, by this variable.
    DotEnv(Place, String),
    /// In a field of the file of settings.
    File(Place, String),
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

impl Source {
    /// Of two that were given by sources of the same rank none comes before the other.
    pub(super) const fn rank(&self) -> u8 {
        match self {
            Self::Flag(_) => 0,
            Self::Environment(_) => 1,
            Self::Bare(_) => 2,
            Self::DotEnv(..) => 3,
            Self::File(..) => 4,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: line {}", self.path.display(), self.line)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.write_str(flag),
            Self::Environment(name) | Self::Bare(name) => write!(f, "environment variable {name}"),
            Self::DotEnv(place, name) => write!(f, "{place}: variable {name}"),
            Self::File(place, field) => write!(f, "{place}: field {field}"),
        }
    }
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A file is not what its name says, or has a field that is not known.
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
    /// Settings that do not go together.
    #[error("{0}")]
    Together(String),
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

/// Every mistake that was found in the settings, at least one.
#[derive(Debug)]
pub struct Mistakes(pub(super) Vec<ConfigError>);

impl Mistakes {
    /// Each of them.
    #[must_use]
    pub fn all(&self) -> &[ConfigError] {
        &self.0
    }
}

impl From<ConfigError> for Mistakes {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

/// At least one.
impl FromIterator<ConfigError> for Mistakes {
    fn from_iter<I: IntoIterator<Item = ConfigError>>(errors: I) -> Self {
        Self(errors.into_iter().collect())
    }
}

/// One a line.
impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = &*self.0 {
            return write!(f, "{one}");
        }
        write!(f, "{} mistakes in the settings:", self.0.len())?;
        for mistake in &self.0 {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
