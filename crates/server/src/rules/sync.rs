//! The rules in force in this process, kept in step with the store.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};
use tollgate::{BackendError, DocumentFeed, SharedBackend};

use super::file::FileTask;
use super::gauges::Gauges;
use super::live::Compiler;
use super::store::{RuleStore, Stored};
use super::{NotCountable, Rule, Table};
use crate::tasks::Tasks;

/// After a change the next look is at least so much later: many changes are one look.
const PAUSE: Duration = Duration::from_millis(50);
/// The first pause after the feed broke, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How rules are kept.
#[derive(Clone, Debug)]
pub struct RuleSettings {
    /// The file that rules are loaded from.
    pub file: Option<PathBuf>,
    /// How old what is in force may be at most, where nobody tells of changes.
    pub cache_ttl: Duration,
    /// What the keys in the store begin with.
    pub prefix: String,
    /// Whether a store that does not answer at the start is an error.
    pub require_store: bool,
}

/// Why rules cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file cannot be used.
    #[error("{0}")]
    File(String),
    /// The store did not answer.
    #[error("rules: {0}")]
    Store(#[from] BackendError),
    /// The store cannot count the default rule.
    #[error("the default rule: {0}")]
    Default(#[from] NotCountable),
}

/// The rules in force in this process. Clones are the same.
#[derive(Clone)]
pub struct Rules(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) compiler: Compiler,
    pub(super) store: RuleStore,
    table: Arc<ArcSwap<Table>>,
    /// Held by who puts another table in place, so that an older look never replaces a newer one.
    looking: tokio::sync::Mutex<()>,
    /// The rules of the file, for a store that keeps none or does not answer.
    file_rules: Mutex<Option<Vec<Rule>>>,
    status: Mutex<Status>,
    pub(super) gauges: Gauges,
}

/// What is wrong.
#[derive(Debug, Default)]
struct Status {
    file: Option<String>,
    store: Option<String>,
    /// What is wrong with the store is that it does not answer, which the limiter tells of.
    away: bool,
    looked: Option<Instant>,
    unreadable: HashSet<String>,
}

/// What goes on in the background, until this is dropped.
#[derive(Debug)]
pub struct Keeping(#[expect(dead_code, reason = "dropping it ends the tasks")] Tasks);

impl Rules {
    /// Loads the file and what is stored, and keeps in step with both.
    ///
    /// # Errors
    /// The file cannot be used; the store does not answer, and must; or it cannot count the default
    /// rule.
    pub async fn start(
        compiler: Compiler,
        settings: RuleSettings,
    ) -> Result<(Self, Keeping), RulesError> {
        let backend: &SharedBackend = compiler.limiter.backend();
        let store = RuleStore::of(backend, &settings.prefix);
        let rules = Self::of_store(compiler, store)?;
        let file = FileTask::start(rules.clone(), settings.file).await?;
        match rules.refresh().await {
            Err(error) if settings.require_store => return Err(error.into()),
            _ => {}
        }
        let mut tasks = Tasks::default();
        let file = Arc::new(tokio::sync::Mutex::new(file));
        tasks.keep("the rule file", move || {
            let file = Arc::clone(&file);
            async move { file.lock().await.run().await }
        });
        if let Some(feed) = rules.0.store.watch() {
            let (rules, feed) = (rules.clone(), Arc::new(tokio::sync::Mutex::new(feed)));
            tasks.keep("changes of rules", move || {
                rules.clone().listen(Arc::clone(&feed))
            });
        }
        if rules.0.store.is_there() {
            let rules = rules.clone();
            tasks.keep("stored rules", move || {
                rules.clone().look_now_and_then(settings.cache_ttl)
            });
        }
        Ok((rules, Keeping(tasks)))
    }

    /// Those of a store, of which nothing has been read yet.
    ///
    /// # Errors
    /// The store cannot count the default rule.
    pub(super) fn of_store(compiler: Compiler, store: RuleStore) -> Result<Self, NotCountable> {
        let table = Table::empty(&compiler)?;
        Ok(Self(Arc::new(Inner {
            table: Arc::new(ArcSwap::from_pointee(table)),
            compiler,
            store,
            looking: tokio::sync::Mutex::default(),
            file_rules: Mutex::default(),
            status: Mutex::default(),
            gauges: Gauges::new(),
        })))
    }

    /// Where what is in force now is always found.
    #[must_use]
    pub fn shared_table(&self) -> Arc<ArcSwap<Table>> {
        Arc::clone(&self.0.table)
    }

    /// What is in force now. It stays as it is while this is held.
    #[must_use]
    pub fn table(&self) -> Guard<Arc<Table>> {
        self.0.table.load()
    }

    /// What is wrong with the rules, in a sentence that tells no value: for `/ready`. Not that the
    /// store is away: that is what the limiter's own check says.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let status = self.0.status.lock();
        let store = status.store.as_deref().filter(|_| !status.away);
        let all: Vec<&str> = status.file.as_deref().into_iter().chain(store).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Whether rules can be changed while the service runs.
    #[must_use]
    pub fn can_change(&self) -> bool {
        self.0.store.is_there()
    }

    /// Looks at what is stored, and puts it in force.
    ///
    /// # Errors
    /// When the store does not answer; what was in force still is.
    ///
    /// # Cancellation
    /// A call that is dropped has put something in force or not.
    pub async fn refresh(&self) -> Result<(), BackendError> {
        let _looking = self.0.looking.lock().await;
        if !self.0.store.is_there() {
            let rules = self.0.file_rules.lock().clone();
            self.put_in_force(rules.unwrap_or_default());
            self.0.gauges.refreshed();
            return Ok(());
        }
        match self.0.store.list().await {
            Ok(stored) => {
                self.found(&stored);
                self.put_in_force(stored.rules.into_iter().map(|it| it.rule).collect());
                Ok(())
            }
            Err(error) => {
                self.not_found(&error);
                Err(error)
            }
        }
    }

    fn put_in_force(&self, rules: Vec<Rule>) {
        let before = self.0.table.load_full();
        let (table, failed) = before.with(&self.0.compiler, rules);
        for (rule, error) in failed {
            tracing::error!(rule, %error, "a rule cannot be counted in this store, and is left out");
        }
        let names: HashSet<_> = table.all().flat_map(|it| it.policy_names()).collect();
        for gone in before.all().flat_map(|it| it.policy_names()) {
            if !names.contains(gone) {
                self.0.compiler.limiter.forget_policy(gone);
            }
        }
        self.0.gauges.in_force(&table);
        self.0.table.store(Arc::new(table));
    }

    fn found(&self, stored: &Stored) {
        let mut status = self.0.status.lock();
        if status.store.take().is_some() {
            tracing::info!("rules can be read again");
        }
        status.away = false;
        status.looked = Some(Instant::now());
        let unreadable: HashSet<_> = stored.unreadable.iter().map(|(id, _)| id.clone()).collect();
        for (rule, faults) in &stored.unreadable {
            if !status.unreadable.contains(rule) {
                tracing::error!(rule, %faults, "what is stored as a rule is none, and is left out");
            }
        }
        if !unreadable.is_empty() {
            status.store = Some(format!("{} stored rules are unreadable", unreadable.len()));
        }
        status.unreadable = unreadable;
        self.0.gauges.refreshed();
        self.tell(&status);
    }

    fn not_found(&self, error: &BackendError) {
        self.0.gauges.refresh_failed();
        let mut status = self.0.status.lock();
        if status.store.is_none() {
            tracing::warn!(%error, "rules cannot be read; those in force stay");
        }
        let kind = error.kind();
        status.away = error.is_transient();
        status.store = Some(format!("rules cannot be read ({kind}), and may be old"));
        self.tell(&status);
        // Until they can be, the file is all that is known.
        let nothing_known = status.looked.is_none();
        drop(status);
        if nothing_known && let Some(rules) = self.0.file_rules.lock().clone() {
            self.put_in_force(rules);
        }
    }

    /// The file says these rules.
    pub(super) fn set_file_rules(&self, rules: Vec<Rule>) {
        *self.0.file_rules.lock() = Some(rules);
    }

    /// What is wrong with the file; nothing, if it is `None`.
    pub(super) fn set_file_problem(&self, problem: Option<String>) {
        let mut status = self.0.status.lock();
        status.file = problem;
        self.tell(&status);
    }

    fn tell(&self, status: &Status) {
        let (file, store) = (status.file.is_none(), status.store.is_none());
        self.0.gauges.set_healthy(file, store);
    }

    /// Looks whenever the store tells of a change.
    async fn listen(self, feed: Arc<tokio::sync::Mutex<Box<dyn DocumentFeed>>>) -> Infallible {
        let mut feed = feed.lock().await;
        let mut pause = FIRST_PAUSE;
        let mut told = false;
        loop {
            match feed.changed().await {
                Ok(()) => {
                    if told {
                        tracing::info!("changes of rules are told of again");
                    }
                    (pause, told) = (FIRST_PAUSE, false);
                    // What fails is tried again by the task that looks now and then.
                    let _ = self.refresh().await;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    if !told {
                        tracing::warn!(
                            %error,
                            "nobody tells of changes of rules; they are looked for at intervals"
                        );
                    }
                    told = true;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Looks when nobody has for as long as rules may be old, and soon after a look that failed.
    async fn look_now_and_then(self, ttl: Duration) -> Infallible {
        let retry = ttl.min(Duration::from_secs(1));
        let mut ticks = tokio::time::interval(retry);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (looked, failed) = {
                let status = self.0.status.lock();
                let failed = status.store.is_some() && status.unreadable.is_empty();
                (status.looked, failed)
            };
            // Half a tick early is better than nearly a tick late.
            let old = looked.is_none_or(|it| it.elapsed() + retry / 2 >= ttl);
            if old || failed {
                let _ = self.refresh().await;
            }
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("rules", &self.table().len())
            .field("store", &self.0.store)
            .finish_non_exhaustive()
    }
}
