//! The backend: one conditional write a decision.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::ReturnValue;
use tokio::sync::Mutex;
use tollgate_core::algorithm::{Operation, apply, apply_batch};
use tollgate_core::record::{self, Record};
use tollgate_core::{
    BackendError, Clock, Cost, CounterBackend, Decision, ErrorKind, Policy, Quota, Refund,
    SharedDocuments, SharedLeases, Subject, SystemClock, Timestamp, storage_key,
};

use crate::Builder;
use crate::branch::{Commuting, has_log};
use crate::client::{Client, Written};
use crate::contention::{CONFLICTS, Rival, TRIES, back_off, in_turn, pause};
use crate::error::is_conflict;
use crate::memory::{Memory, Seen};
use crate::record::{Held, PK};
use crate::standing::Standing;
use crate::update::Update;

/// How long an item stays after it decides like none, where the caller's clock counts.
const CLOCK_MARGIN: Duration = Duration::from_secs(60);

/// The same in virtual time, where the store's clock has nothing to do with it.
const VIRTUAL_MARGIN: Duration = Duration::from_secs(3_600);

/// The most admissions that the sliding logs of a policy may hold together, which is the sum of
/// their limits: an item may be 400 KB, and each write is billed by its size.
pub const MAX_LOG: u64 = 20_000;

/// Writes of this process to the same log wait for each other here.
const TURNS: usize = 256;

/// Counters in a DynamoDB table, shared by every process that uses the same table.
///
/// # Behavior
/// - **One `UpdateItem` a decision** in the steady state, on one item that holds all quotas of a
///   policy for one key. Token buckets and windows are increments under a range condition, so
///   concurrent callers of one key do not make each other try again. A failed condition brings the
///   item, which is either a refusal or says what to write; a first charge on a key or the first of
///   a window may take a second trip.
/// - A refusal is one trip. One that is likely, by what was last seen, is asked by a read.
/// - A **sliding log** is an item that is replaced under its revision. Its writers do make each
///   other try again: those of one process queue up, and of several processes one that has lost four
///   times has the others make way. After 64 requests it is [`Contended`](ErrorKind::Contended).
///   [`MAX_LOG`] bounds the log, see [`check`](Self::check).
/// - No write that charges is ever sent twice to find out about the first.
/// - Exact: whole numbers, to the microsecond, up to 38 digits.
/// - Time is the caller's, so the processes must run a time service. What a clock that is wrong by
///   up to a minute can do is bounded, and never hands out quota twice.
/// - Expiry removes what decides like none; what it has not removed yet decides like none.
///
/// # What it costs
/// `docs/dynamodb.md` has the round trips and units of each decision, the table's definition and the
/// least permissions.
///
/// # Cancellation
/// A call that is dropped has been charged or not; the backend stays usable.
///
/// ```no_run
/// use tollgate_core::{Cost, CounterBackend, Key, Policy, Subject};
/// use tollgate_dynamodb::DynamoBackend;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = DynamoBackend::builder("dynamodb://limits?region=eu-west-1").connect().await?;
/// let policy = Policy::new("login", ["5/15m".parse()?])?;
/// let decision = backend
///     .acquire(Subject::new(&policy, &Key::from("alice")), Cost::ONE)
///     .await?;
/// assert!(decision.allowed());
/// # Ok(())
/// # }
/// ```
pub struct DynamoBackend {
    pub(crate) client: Client,
    pub(crate) prefix: String,
    pub(crate) timeout: Duration,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    memory: Memory<Seen>,
    pub(crate) leases: Memory<crate::lease::Seen>,
    pub(crate) standing: Standing,
    turns: Vec<Mutex<()>>,
}

/// What is done to a record.
#[derive(Clone, Copy)]
enum Change<'a> {
    Charge(&'a [Cost]),
    Refund(Refund),
}

impl DynamoBackend {
    /// A backend on a table; see [`Builder`].
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::new(url)
    }

    pub(crate) fn new(client: Client, settings: &Builder, standing: Standing) -> Self {
        Self {
            client,
            prefix: settings.prefix.clone(),
            timeout: settings.timeout,
            clock: settings.clock.clone(),
            memory: Memory::new(settings.remember),
            leases: Memory::new(settings.remember),
            standing,
            turns: (0..TURNS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Whether an item can hold the policy, to be asked when it is built; every call asks it too.
    ///
    /// ```
    /// use tollgate_core::Policy;
    /// use tollgate_dynamodb::DynamoBackend;
    ///
    /// let policy = Policy::new("big", ["50000/h sliding_log".parse()?])?;
    /// let error = DynamoBackend::check(&policy).unwrap_err();
    /// assert!(error.to_string().contains("at most 20000"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) where the limits of its sliding logs add up to more than
    /// [`MAX_LOG`].
    pub fn check(policy: &Policy) -> Result<(), BackendError> {
        let logs = policy
            .quotas()
            .iter()
            .filter(|quota| has_log(std::slice::from_ref(quota)));
        let entries = logs.fold(0_u64, |sum, quota| sum.saturating_add(quota.limit()));
        if entries > MAX_LOG {
            return Err(BackendError::new(
                ErrorKind::Config,
                format!(
                    "policy {:?}: its sliding logs may hold {entries} admissions, and a DynamoDB item at most {MAX_LOG}; use sliding_window or token_bucket, or a lower limit",
                    policy.name()
                ),
            ));
        }
        Ok(())
    }

    /// The time, and whether it has to do with the store's.
    pub(crate) fn now(&self, at: Option<Timestamp>) -> (Timestamp, bool) {
        match (at, &self.clock) {
            (Some(at), _) => (at, true),
            (None, Some(clock)) => (clock.now(), true),
            (None, None) => (SystemClock.now(), false),
        }
    }

    /// Bounds a call, and answers at once where the table is known to be wrong.
    pub(crate) async fn limited<T: Send>(
        &self,
        call: impl Future<Output = Result<T, BackendError>> + Send,
    ) -> Result<T, BackendError> {
        self.standing.check()?;
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(BackendError::new(
                ErrorKind::Timeout,
                format!("no answer within {:?}", self.timeout),
            )),
        }
    }

    async fn read(&self, key: &str, hash: u64) -> Result<Held, BackendError> {
        let held = Held::of_item(self.client.get(key).await?);
        self.memory.put(hash, Seen::of(&held));
        Ok(held)
    }

    /// Moves the revision on, whatever it is, so that the write of whoever else is about to fails. What
    /// is there then.
    async fn claim(&self, key: &str, hash: u64, held: Held) -> Result<Held, BackendError> {
        let claimed = self
            .client
            .update(key, Update::claim(), ReturnValue::AllNew);
        let found = match claimed.await {
            Ok(Written::Yes(item)) => Held::of_item(Some(item)),
            Ok(Written::No(item)) => Held::of_item(item),
            Err(error) if is_conflict(&error) => return Ok(held),
            Err(error) => return Err(error),
        };
        self.memory.put(hash, Seen::of(&found));
        Ok(found)
    }

    async fn change(
        &self,
        subject: Subject<'_>,
        change: Change<'_>,
    ) -> Result<Vec<Decision>, BackendError> {
        Self::check(subject.policy)?;
        let quotas = subject.policy.quotas();
        let (now, virtual_time) = self.now(subject.at);
        let key = storage_key(&self.prefix, subject.policy, subject.key);
        let hash = self.memory.hash(&key);
        let log = has_log(quotas);
        let mut turn = None;
        // Whether `held` is what the store said in this call.
        let mut sure = false;
        let mut held = match self.memory.get(hash) {
            Some(seen) => seen.held(),
            // A condition that fails on a long log is billed as a write of it; a read is not.
            None if log => {
                sure = true;
                self.read(&key, hash).await?
            }
            None => Held::default(),
        };
        let (mut writes, mut conflicts) = (0, 0);
        let mut rival = Rival::default();
        while writes < TRIES {
            let mut after = held.record.clone();
            let (decisions, changed) = change.apply(quotas, &mut after, now);
            if !changed {
                if sure {
                    return Ok(decisions);
                }
                turn = None;
                held = self.read(&key, hash).await?;
                sure = true;
                continue;
            }
            if log && turn.is_none() {
                turn = Some(self.turns[hash as usize % TURNS].lock().await);
                // Others of this process may have written meanwhile.
                if let Some(newer) = self.memory.get(hash) {
                    held = newer.held();
                    sure = false;
                }
                continue;
            }
            if rival.claims(&held) {
                writes += 1;
                held = in_turn(&mut turn, self.claim(&key, hash, held)).await?;
                continue;
            }
            back_off(writes).await;
            writes += 1;
            rival.begins();
            let commuting = change.commuting(quotas, &held, now, &decisions);
            let until = record::expires_at(&after);
            let next = held.next(after);
            let written = match &commuting {
                Some(commuting) => {
                    let mut update = commuting.update();
                    let until = commuting.expires_at(quotas);
                    if until > 0 {
                        update.expire(expires_at(until, now, virtual_time));
                    }
                    let write = self.client.update(&key, update, ReturnValue::AllNew);
                    in_turn(&mut turn, write).await
                }
                None => {
                    let until = expires_at(until, now, virtual_time);
                    let update = Update::exact(&held, &next, until);
                    let write = self.client.update(&key, update, ReturnValue::None);
                    in_turn(&mut turn, write).await
                }
            };
            match (written, commuting) {
                (Ok(Written::Yes(item)), Some(commuting)) => {
                    let found = Held::of_item(Some(item));
                    self.memory.put(hash, Seen::of(&found));
                    let mut before = commuting.before(&found.record).ok_or_else(malformed)?;
                    return Ok(change.apply(quotas, &mut before, now).0);
                }
                (Ok(Written::Yes(_)), None) => {
                    self.memory.put(hash, Seen::of(&next));
                    return Ok(decisions);
                }
                (Ok(Written::No(None)), _) if held.attributes.is_none() => {
                    return Err(BackendError::new(
                        ErrorKind::Unsupported,
                        "the store does not return the item of a failed condition (ReturnValuesOnConditionCheckFailure)",
                    ));
                }
                (Ok(Written::No(item)), _) => {
                    let found = Held::of_item(item);
                    rival.won(&held, &found).await;
                    held = found;
                    self.memory.put(hash, Seen::of(&held));
                    sure = true;
                }
                (Err(error), _) if is_conflict(&error) && conflicts < CONFLICTS => {
                    conflicts += 1;
                    pause(conflicts).await;
                }
                (Err(error), _) => return Err(error),
            }
        }
        Err(BackendError::new(
            ErrorKind::Contended,
            format!("other writers came first {TRIES} times in a row"),
        ))
    }
}

impl Change<'_> {
    fn apply(self, quotas: &[Quota], record: &mut Record, now: Timestamp) -> (Vec<Decision>, bool) {
        match self {
            Self::Charge(costs) => apply_batch(quotas, record, now, costs),
            Self::Refund(refund) => {
                let applied = apply(quotas, record, now, Operation::Refund(refund));
                (vec![applied.decision], applied.changed)
            }
        }
    }

    /// The write that needs not know exactly what is there, if there is one. A charge has one where
    /// everything that was asked for is there.
    fn commuting(
        self,
        quotas: &[Quota],
        held: &Held,
        now: Timestamp,
        decisions: &[Decision],
    ) -> Option<Commuting> {
        match self {
            Self::Charge(costs) => {
                let mut sum = 0_u64;
                for (decision, cost) in decisions.iter().zip(costs) {
                    if decision.granted() != cost.max() {
                        return None;
                    }
                    sum = sum.checked_add(cost.max())?;
                }
                Commuting::charge(quotas, held, now, sum)
            }
            Self::Refund(refund) => Commuting::refund(quotas, held, now, refund),
        }
    }
}

/// The second, of the epoch, from which the item may be removed. Its numbers decide, not this.
pub(crate) fn expires_at(until: u64, now: Timestamp, virtual_time: bool) -> u64 {
    let until = Timestamp::from_micros(until);
    let until = if virtual_time {
        SystemClock.now() + until.saturating_since(now) + VIRTUAL_MARGIN
    } else {
        until + CLOCK_MARGIN
    };
    until.as_micros().div_ceil(1_000_000)
}

fn malformed() -> BackendError {
    BackendError::new(
        ErrorKind::Malformed,
        "the item after a write is not what was written; does something else write to it?",
    )
}

impl CounterBackend for DynamoBackend {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        let costs = [cost];
        let mut decisions = self
            .limited(self.change(subject, Change::Charge(&costs)))
            .await?;
        decisions.pop().ok_or_else(malformed)
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        if costs.is_empty() {
            return Ok(Vec::new());
        }
        self.limited(self.change(subject, Change::Charge(costs)))
            .await
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        let peek = async {
            Self::check(subject.policy)?;
            let key = storage_key(&self.prefix, subject.policy, subject.key);
            let (now, _) = self.now(subject.at);
            let mut record = self.read(&key, self.memory.hash(&key)).await?.record;
            let quotas = subject.policy.quotas();
            Ok(apply(quotas, &mut record, now, Operation::Peek(cost)).decision)
        };
        self.limited(peek).await
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        let mut decisions = self
            .limited(self.change(subject, Change::Refund(refund)))
            .await?;
        decisions.pop().ok_or_else(malformed)
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        let key = storage_key(&self.prefix, subject.policy, subject.key);
        self.memory.forget(self.memory.hash(&key));
        self.limited(self.client.delete(&key)).await
    }

    fn leases(self: Arc<Self>) -> Option<SharedLeases> {
        Some(SharedLeases::of(self))
    }

    fn documents(self: Arc<Self>) -> Option<SharedDocuments> {
        Some(SharedDocuments::of(self))
    }

    fn accepts(&self, policy: &Policy) -> Result<(), BackendError> {
        Self::check(policy)
    }

    /// A trip takes milliseconds, and a write costs money.
    fn prefers_coalescing(&self) -> bool {
        true
    }

    /// Asks for a write that never happens, so that a table that takes none is not reported well.
    async fn ping(&self) -> Result<(), BackendError> {
        let key = format!("{}:v1:ping", self.prefix);
        let mut update = Update::default();
        update.when(format!("attribute_exists({PK})"));
        update.set("w0", ":one");
        update
            .values
            .insert(":one".into(), crate::record::n_value(1));
        self.limited(self.client.update(&key, update, ReturnValue::None))
            .await
            .map(drop)
    }

    fn warnings(&self) -> Vec<String> {
        self.standing.warnings()
    }
}

impl fmt::Display for DynamoBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.client, f)
    }
}

impl fmt::Debug for DynamoBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoBackend")
            .field("client", &self.client)
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
