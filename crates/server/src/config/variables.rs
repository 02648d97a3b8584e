//! Variables that look like settings and are none: misspelt, they would be left out in silence.

use std::fmt;

use clap::{Command, CommandFactory};

use super::{FIELDS, Field, Given};
use crate::cli::Cli;

/// A variable `TOLLGATE_*` that nobody reads. Its value may be a secret and is not kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) name: String,
    /// The setting that may have been meant.
    pub(crate) nearest: Option<String>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        write!(f, "{name} is no setting and is not read")?;
        match &self.nearest {
            Some(nearest) => write!(f, "; {nearest} may have been meant"),
            None => Ok(()),
        }
    }
}

/// Those of this process and of `.env`.
pub(crate) fn unknown(given: &Given<'_>) -> Vec<Unknown> {
    let variables = std::env::vars_os().map(|(name, value)| {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        (text(name), text(value))
    });
    unknown_of(variables.chain(given.of_dotenv()))
}

fn unknown_of(variables: impl Iterator<Item = (String, String)>) -> Vec<Unknown> {
    let known = known();
    let mut unknown: Vec<_> = variables
        .filter(|(name, value)| {
            name.starts_with("TOLLGATE_") && !known.contains(name) && !is_a_link(name, value)
        })
        .map(|(name, _)| Unknown {
            nearest: nearest(&name, &known),
            name,
        })
        .collect();
    unknown.sort_by(|a, b| a.name.cmp(&b.name));
    unknown.dedup();
    unknown
}

/// The variables of all commands.
fn known() -> Vec<String> {
    let command = Cli::command();
    let of = |command: &Command| -> Vec<String> {
        let variables = command.get_arguments().filter_map(|arg| arg.get_env());
        variables
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    };
    let mut known: Vec<_> = command.get_subcommands().flat_map(of).collect();
    known.extend(of(&command));
    known.extend(FIELDS.iter().map(Field::variable));
    known
}

/// Whether an orchestrator made it for a service that is called tollgate, such as
/// `TOLLGATE_PORT_8000_TCP=tcp://10.0.0.1:8000`.
fn is_a_link(name: &str, value: &str) -> bool {
    name.starts_with("TOLLGATE_SERVICE_")
        || (name.starts_with("TOLLGATE_PORT_") && name.contains("_TCP"))
        || (name == "TOLLGATE_PORT" && value.contains("://"))
}

/// The one of these that is meant, if it is a few letters away.
pub(super) fn nearest(name: &str, known: &[String]) -> Option<String> {
    let by_distance = known.iter().map(|known| (distance(name, known), known));
    let (distance, nearest) = by_distance.min()?;
    (distance <= 3).then(|| nearest.clone())
}

/// How many letters must be changed, added or left out to make the one of the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_is_found_with_what_may_have_been_meant() {
        let given = [
            ("TOLLGATE_QUOTA", "1/s"),
            ("TOLLGATE_LOG", "info"),
            ("TOLLGATE_QUOTE", "1/s"),
            ("TOLLGATE_BACKNED", "redis://u:s3cr3t@h"),
            ("TOLLGATE_FLAVOUR", "sweet"),
            ("TOLLGATE_PORT", "tcp://10.0.0.1:8000"),
            ("TOLLGATE_PORT_8000_TCP_ADDR", "10.0.0.1"),
            ("TOLLGATE_SERVICE_HOST", "10.0.0.1"),
            ("PATH", "/bin"),
        ];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let found = unknown_of(given.into_iter());
        let found: Vec<_> = found
            .iter()
            .map(|it| (&*it.name, it.nearest.as_deref()))
            .collect();
        assert_eq!(
            found,
            [
                ("TOLLGATE_BACKNED", Some("TOLLGATE_BACKEND")),
                ("TOLLGATE_FLAVOUR", None),
                ("TOLLGATE_QUOTE", Some("TOLLGATE_QUOTA")),
            ]
        );
        let port = [("TOLLGATE_PORT".to_owned(), "8080".to_owned())];
        assert_eq!(unknown_of(port.into_iter()).len(), 1, "somebody's mistake");
    }
}
