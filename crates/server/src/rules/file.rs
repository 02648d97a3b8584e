//! The file that rules are loaded from: read at the start, when it changes, and on SIGHUP.
//!
//! It is looked at four times a second. That sees what watching an inode does not: a symlink that
//! is put in another's place, as Kubernetes does, a rename, and file systems that tell nobody.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, MissedTickBehavior};
use tollgate::{BackendError, Changed};

use super::document::{self, FileFaults};
use super::store::{Entry, Stored};
use super::sync::{Rules, RulesError};
use super::{ManagedBy, Rule};

const EACH: Duration = Duration::from_millis(250);
/// A file that was written so lately may be written once more without looking newer.
const YOUNG: Duration = Duration::from_secs(2);
/// The pause before a file is tried again that the store did not take.
const RETRY: Duration = Duration::from_secs(1);
/// How often others may come first.
const ROUNDS: usize = 8;

/// Looks at the file.
pub(super) struct FileTask {
    rules: Rules,
    path: Option<PathBuf>,
    seen: Option<Seen>,
    /// What it said when it was last read.
    text: Option<String>,
    /// When to try again what could not be done.
    again: Option<Instant>,
    #[cfg(unix)]
    hangups: Option<tokio::signal::unix::Signal>,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    length: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: (u64, u64, i64, i64),
}

/// What came of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Applied {
    created: usize,
    changed: usize,
    deleted: usize,
}

/// Why a file has no effect.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("{0}")]
    Faults(#[from] FileFaults),
    #[error("{0}")]
    Conflict(String),
    #[error("the rules cannot be stored: {0}")]
    Store(#[from] BackendError),
}

impl FileTask {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// It cannot be used. A store that does not answer is none: the file is tried again.
    pub(super) async fn start(rules: Rules, path: Option<PathBuf>) -> Result<Self, RulesError> {
        let mut task = Self {
            rules,
            path,
            seen: None,
            text: None,
            again: None,
            #[cfg(unix)]
            hangups: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())
                .inspect_err(|error| tracing::warn!(%error, "SIGHUP cannot be heard"))
                .ok(),
        };
        if let Some(path) = task.path.clone() {
            let shown = path.display();
            task.seen = Seen::of(&path);
            let text = read(&path).map_err(|error| {
                RulesError::File(format!(
                    "{shown}: {error}; the rule file must be there at the start"
                ))
            })?;
            let parsed = document::parse(&text)
                .map_err(|faults| RulesError::File(format!("{shown}: {faults}")))?;
            task.text = Some(text);
            match parsed {
                Some(rules) => {
                    task.rules.set_file_rules(rules.clone());
                    let applied = task.apply(rules).await;
                    task.told(&path, applied);
                }
                None => task.nothing(&path, "is empty"),
            }
        }
        Ok(task)
    }

    /// Looks for ever.
    pub(super) async fn run(&mut self) -> Infallible {
        let mut ticks = tokio::time::interval(EACH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            #[cfg(unix)]
            let hangup = async {
                match &mut self.hangups {
                    Some(signal) => {
                        signal.recv().await;
                    }
                    None => std::future::pending().await,
                }
            };
            #[cfg(not(unix))]
            let hangup = std::future::pending::<()>();
            let asked = tokio::select! {
                () = hangup => true,
                _ = ticks.tick() => false,
            };
            if asked {
                tracing::info!("SIGHUP: rules are loaded again");
            }
            self.look(asked).await;
            if asked {
                let _ = self.rules.refresh().await;
            }
        }
    }

    async fn look(&mut self, asked: bool) {
        let Some(path) = self.path.clone() else {
            return;
        };
        let seen = Seen::of(&path);
        let changed = seen != self.seen;
        let due = self.again.is_some_and(|at| at <= Instant::now());
        let young = seen.is_some_and(Seen::is_young);
        if !(asked || changed || due || young) {
            return;
        }
        self.seen = seen;
        let text = match read(&path) {
            Ok(text) => text,
            Err(_) if !changed && !asked && self.text.is_none() => return,
            Err(error) => {
                self.text = None;
                self.again = None;
                return self.nothing(&path, &format!("cannot be read ({error})"));
            }
        };
        if !(asked || due) && self.text.as_ref() == Some(&text) {
            return;
        }
        // Should what follows panic, it is tried again.
        self.again = Some(Instant::now());
        let parsed = document::parse(&text);
        self.text = Some(text);
        let applied = match parsed {
            Ok(Some(rules)) => {
                self.rules.set_file_rules(rules.clone());
                let applied = self.apply(rules).await;
                let _ = self.rules.refresh().await;
                Some(applied)
            }
            Ok(None) => None,
            Err(faults) => Some(Err(faults.into())),
        };
        self.again = None;
        match applied {
            Some(applied) => self.told(&path, applied),
            None => self.nothing(&path, "is empty"),
        }
    }

    /// The file says nothing, which is no order to have no rules.
    fn nothing(&self, path: &Path, what: &str) {
        let file = path.display();
        self.rules.0.gauges.file_failed();
        tracing::warn!(%file, "the rule file {what}; the rules that came from it stay");
        self.rules.set_file_problem(Some(format!(
            "the rule file {what}; the rules that came from it stay"
        )));
    }

    fn told(&mut self, path: &Path, applied: Result<Applied, FileError>) {
        let file = path.display();
        let problem = match applied {
            Ok(Applied {
                created,
                changed,
                deleted,
            }) => {
                tracing::info!(%file, created, changed, deleted, "the rule file is loaded");
                return self.rules.set_file_problem(None);
            }
            Err(error) => {
                self.rules.0.gauges.file_failed();
                tracing::error!(%file, %error, "the rule file has no effect; the rules before it stay");
                error
            }
        };
        let told = match &problem {
            FileError::Faults(faults) => {
                let line = faults
                    .line()
                    .map_or_else(String::new, |it| format!(", line {it}"));
                format!("the rule file has {} faults{line}", faults.count())
            }
            FileError::Conflict(_) => "the rule file contradicts rules that are stored".into(),
            FileError::Store(error) => format!("the rule file is not stored ({})", error.kind()),
        };
        if !matches!(problem, FileError::Faults(_)) {
            self.again = Some(Instant::now() + RETRY.max(EACH));
        }
        let text = format!("{told}; the rules before it stay");
        self.rules.set_file_problem(Some(text));
    }

    /// Makes the stored rules that come from files those of this one.
    async fn apply(&self, rules: Vec<Rule>) -> Result<Applied, FileError> {
        for rule in &rules {
            self.rules
                .0
                .compiler
                .check(rule)
                .map_err(|error| FileError::Conflict(format!("rule {}: {error}", rule.id)))?;
        }
        if !self.rules.can_change() {
            return Ok(Applied {
                created: rules.len(),
                ..Applied::default()
            });
        }
        let mut applied = Applied::default();
        for _ in 0..ROUNDS {
            let stored = self.rules.0.store.list().await?;
            let plan = plan(&rules, &stored)?;
            let mut left = false;
            for step in plan {
                left |= !self.step(step, &mut applied).await?;
            }
            if !left {
                return Ok(applied);
            }
        }
        Err(FileError::Conflict(
            "others change the same rules all the time".into(),
        ))
    }

    /// Whether it was done; else it has to be looked at again.
    async fn step(&self, step: Step<'_>, applied: &mut Applied) -> Result<bool, FileError> {
        let store = &self.rules.0.store;
        let (changed, count) = match step {
            Step::Create(rule) => (store.create(rule).await?.0, &mut applied.created),
            Step::Replace(entry, rule) => {
                (store.replace(entry, rule).await?.0, &mut applied.changed)
            }
            Step::Delete(entry) => (store.delete(entry).await?, &mut applied.deleted),
        };
        let done = changed == Changed::Yes;
        *count += usize::from(done);
        Ok(done)
    }
}

enum Step<'a> {
    Delete(&'a Entry),
    Replace(&'a Entry, Rule),
    Create(Rule),
}

/// What to do so that the rules that come from files are these; what makes room goes first.
fn plan<'a>(rules: &[Rule], stored: &'a Stored) -> Result<Vec<Step<'a>>, FileError> {
    let (mut replaced, mut created) = (Vec::new(), Vec::new());
    let mut claims = std::collections::HashMap::new();
    for rule in rules {
        claims.insert(rule.uniqueness(), rule.id.as_str());
        let rule = Rule {
            managed_by: Some(ManagedBy::File),
            ..rule.clone()
        };
        match stored.get(&rule.id) {
            None => created.push(Step::Create(rule)),
            Some(entry) if entry.rule == rule => {}
            Some(entry) => match rule.unlike(&entry.rule) {
                Some(what) => {
                    return Err(FileError::Conflict(format!(
                        "rule {}: {what} cannot be changed; give the new rule another id",
                        rule.id
                    )));
                }
                None => replaced.push(Step::Replace(entry, rule)),
            },
        }
    }
    let ours = |entry: &&Entry| entry.rule.managed_by == Some(ManagedBy::File);
    let gone = |entry: &&Entry| rules.iter().all(|rule| rule.id != entry.rule.id);
    for entry in &stored.rules {
        if gone(&entry)
            && !ours(&entry)
            && let Some(id) = claims.get(&entry.rule.uniqueness())
        {
            return Err(FileError::Conflict(format!(
                "rule {id}: {} has the same identity type, algorithm and match, and does not come from the file; delete one of them",
                entry.rule.id
            )));
        }
    }
    let deleted = stored
        .rules
        .iter()
        .filter(ours)
        .filter(gone)
        .map(Step::Delete);
    Ok(deleted.chain(replaced).chain(created).collect())
}

/// What is wrong with a file, as the start would find it.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let text = read(path)?;
    let parsed = document::parse(&text);
    parsed.map(drop).map_err(|faults| faults.to_string())
}

fn read(path: &Path) -> Result<String, String> {
    let length = std::fs::metadata(path)
        .map_err(|error| error.to_string())?
        .len();
    if length > document::MAX_FILE {
        return Err(format!("is larger than {} bytes", document::MAX_FILE));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

impl Seen {
    /// Follows symlinks.
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt as _;
        Some(Self {
            length: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            inode: (
                metadata.dev(),
                metadata.ino(),
                metadata.ctime(),
                metadata.ctime_nsec(),
            ),
        })
    }

    fn is_young(self) -> bool {
        self.modified
            .and_then(|it| it.elapsed().ok())
            .is_none_or(|age| age < YOUNG)
    }
}
