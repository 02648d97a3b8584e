//! Every algorithm on any store that can compare and swap.
//!
//! A third party brings a store with three methods and has the whole of Tollgate's counting.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::algorithm::{self, Operation};
use crate::record::{self, Record};
use crate::{
    BackendError, Clock, Cost, CounterBackend, DEFAULT_PREFIX, Decision, ErrorKind, Refund,
    Subject, SystemClock, Timestamp, storage_key,
};

/// State outlives the moment it decides like none by this much: the processes' clocks differ.
const CLOCK_MARGIN: Duration = Duration::from_secs(60);
/// In virtual time nothing is known of how fast it passes.
const VIRTUAL_MARGIN: Duration = Duration::from_secs(3_600);

/// A value as it was read.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    /// The value.
    pub value: Vec<u8>,
    /// Its version.
    pub token: T,
}

/// A store of bytes under keys that can replace a value only if it is still the one that was read.
///
/// # Behavior
/// - Keys are printable ASCII without spaces.
/// - `swap` is atomic: of two with the same token at most one succeeds.
/// - A value may vanish once its time to live has passed, and should not before.
pub trait StateStore: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// Names one version of a value.
    type Token: Send + Sync;

    /// The value and its version; `None` if there is none.
    fn load(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Option<Versioned<Self::Token>>, BackendError>> + Send;

    /// Stores `value` if the version is still `expected` (`None`: if there is still no value), to
    /// live for `ttl` at least. Says whether it did.
    fn swap(
        &self,
        key: &str,
        expected: Option<Self::Token>,
        value: Vec<u8>,
        ttl: Duration,
    ) -> impl Future<Output = Result<bool, BackendError>> + Send;

    /// What this process knows the value to be without asking: what it wrote last, and the version
    /// that the write made. `None`, by default, asks.
    ///
    /// It may be out of date. A charge is decided on it only if it ends in a [`swap`](Self::swap),
    /// which verifies the version, and so takes one trip instead of two; whatever writes nothing (a
    /// refusal, a peek) is decided on a value that was just read. After a swap that did not succeed
    /// nothing is to be recalled of that key.
    fn recall(&self, key: &str) -> Option<Versioned<Self::Token>> {
        let _ = key;
        None
    }

    /// Waits until no other call of this process is about to write this key, and keeps the others
    /// waiting until the turn is dropped. A courtesy: without it, as by default, the callers of one
    /// process defeat each other's swaps.
    fn turn(&self, key: &str) -> impl Future<Output: Send> + Send {
        let _ = key;
        std::future::ready(())
    }

    /// Forgets the value.
    fn delete(&self, key: &str) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// Waits a little before the next attempt after another writer won the `attempt`th (from 1).
    /// At once by default.
    fn back_off(&self, attempt: u32) -> impl Future<Output = ()> + Send {
        let _ = attempt;
        std::future::ready(())
    }
}

/// A [`CounterBackend`] over a [`StateStore`].
///
/// Time is the caller's wall clock. A charge that keeps losing against other writers fails with
/// [`ErrorKind::Contended`] after [`attempts`](Self::attempts) or [`patience`](Self::patience).
#[derive(Debug)]
pub struct CasBackend<S, C = SystemClock> {
    store: S,
    clock: C,
    prefix: String,
    attempts: u32,
    patience: Option<Duration>,
}

impl<S: StateStore> CasBackend<S> {
    /// Counts in `store`.
    pub fn new(store: S) -> Self {
        Self {
            store,
            clock: SystemClock,
            prefix: DEFAULT_PREFIX.into(),
            attempts: 64,
            patience: None,
        }
    }
}

impl<S: StateStore, C: Clock> CasBackend<S, C> {
    /// Counts by another clock.
    #[must_use]
    pub fn with_clock<D: Clock>(self, clock: D) -> CasBackend<S, D> {
        CasBackend {
            store: self.store,
            clock,
            prefix: self.prefix,
            attempts: self.attempts,
            patience: self.patience,
        }
    }

    /// Puts another prefix before every key.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How often a charge is tried while other writers win; at least once.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// How long a charge is tried while other writers win; no bound by default. Shorter than the
    /// timeout around it, it tells a busy key from a store that does not answer.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The store, and nothing else of this.
    pub fn into_inner(self) -> S {
        self.store
    }

    async fn update<T: Send>(
        &self,
        subject: Subject<'_>,
        decide: impl Fn(&mut Record, Timestamp) -> (T, bool) + Send + Sync,
    ) -> Result<T, BackendError> {
        let key = storage_key(&self.prefix, subject.policy, subject.key);
        let mut turn = Some(self.store.turn(&key).await);
        if let Some(known) = self.store.recall(&key) {
            match self.attempt(&key, subject.at, Some(known), &decide).await? {
                Outcome::Written(answer) => return Ok(answer),
                // Decided on what may be out of date. Who only reads needs no turn.
                Outcome::Unchanged(_) => turn = None,
                Outcome::Lost => {}
            }
        }
        let (mut attempt, mut first_loss) = (0, None);
        loop {
            attempt += 1;
            let found = self.store.load(&key).await?;
            match self.attempt(&key, subject.at, found, &decide).await? {
                Outcome::Written(answer) | Outcome::Unchanged(answer) => return Ok(answer),
                Outcome::Lost => {}
            }
            let now = self.clock.now();
            let since = now.saturating_since(*first_loss.get_or_insert(now));
            if attempt >= self.attempts || self.patience.is_some_and(|most| since >= most) {
                drop(turn);
                return Err(BackendError::new(
                    ErrorKind::Contended,
                    format!("other writers won {attempt} times in a row"),
                ));
            }
            self.store.back_off(attempt).await;
        }
    }

    /// Decides on a value, and writes what changed if it is still that value.
    async fn attempt<T: Send>(
        &self,
        key: &str,
        at: Option<Timestamp>,
        found: Option<Versioned<S::Token>>,
        decide: impl Fn(&mut Record, Timestamp) -> (T, bool) + Send + Sync,
    ) -> Result<Outcome<T>, BackendError> {
        let now = at.unwrap_or_else(|| self.clock.now());
        let (mut record, token) = match found {
            Some(found) => (record::decode(&found.value), Some(found.token)),
            None => (Record::new(), None),
        };
        let (answer, changed) = decide(&mut record, now);
        if !changed {
            return Ok(Outcome::Unchanged(answer));
        }
        let ttl = time_to_live(&record, now, at.is_some());
        let value = record::encode(&record);
        Ok(if self.store.swap(key, token, value, ttl).await? {
            Outcome::Written(answer)
        } else {
            Outcome::Lost
        })
    }
}

/// What became of an attempt.
enum Outcome<T> {
    Written(T),
    Unchanged(T),
    /// Another writer came first.
    Lost,
}

/// How long a record must stay.
fn time_to_live(
    record: &[Option<algorithm::State>],
    now: Timestamp,
    virtual_time: bool,
) -> Duration {
    let left = Timestamp::from_micros(record::expires_at(record)).saturating_since(now);
    left.saturating_add(if virtual_time {
        VIRTUAL_MARGIN
    } else {
        CLOCK_MARGIN
    })
}

impl<S: StateStore, C: Clock> CounterBackend for CasBackend<S, C> {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.one(subject, Operation::Acquire(cost)).await
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        let quotas = subject.policy.quotas();
        self.update(subject, |record, now| {
            algorithm::apply_batch(quotas, record, now, costs)
        })
        .await
    }

    /// Reads once: it waits for nobody's turn.
    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        let key = storage_key(&self.prefix, subject.policy, subject.key);
        let found = self.store.load(&key).await?;
        let mut record = found.map_or_else(Record::new, |found| record::decode(&found.value));
        let now = subject.at.unwrap_or_else(|| self.clock.now());
        let peek = Operation::Peek(cost);
        Ok(algorithm::apply(subject.policy.quotas(), &mut record, now, peek).decision)
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        self.one(subject, Operation::Refund(refund)).await
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.store
            .delete(&storage_key(&self.prefix, subject.policy, subject.key))
            .await
    }

    /// Reads a key that nobody writes.
    async fn ping(&self) -> Result<(), BackendError> {
        self.store
            .load(&format!("{}:v1:ping", self.prefix))
            .await
            .map(drop)
    }
}

impl<S: StateStore, C: Clock> CasBackend<S, C> {
    async fn one(
        &self,
        subject: Subject<'_>,
        operation: Operation,
    ) -> Result<Decision, BackendError> {
        let quotas = subject.policy.quotas();
        self.update(subject, |record, now| {
            let applied = algorithm::apply(quotas, record, now, operation);
            (applied.decision, applied.changed)
        })
        .await
    }
}

impl<S: StateStore, C: Clock> fmt::Display for CasBackend<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.store, f)
    }
}
