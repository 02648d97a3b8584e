//! The backend: one script call a decision.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_core::algorithm::{Operation, apply, apply_batch};
use tollgate_core::{
    BackendError, Batch, Clock, Cost, CounterBackend, DEFAULT_PREFIX, Decision, ErrorKind,
    MAX_EXACT, Refund, SharedDocuments, SharedLeases, Subject, SystemClock, storage_key,
};

use crate::client::Client;
use crate::document::Documents;
use crate::record::{self, Call};
use crate::{Args, Builder, Merging, RedisExecutor, Script, ScriptCall, key_slot, script};

/// Counters in Redis (6.2 or later) or Valkey, shared by every process that uses the same server.
///
/// # Behavior
/// - **One `EVALSHA` a decision**, on one key, in one atomic step: read, decide, write, expiry; or
///   less, where concurrent charges are merged (`Coalesced` of the crate `tollgate`). A key never lacks its expiry, and one that lost it (`PERSIST`, a restore) gets it back.
/// - Time is the server's (`TIME`, inside the script), so the callers' clocks do not matter.
/// - Exact: whole numbers only, to the microsecond, up to 2^52.
/// - A call whose answer was lost is never sent again. Only replies that prove that nothing ran
///   (`NOSCRIPT`; in a cluster `MOVED`, `ASK`, `TRYAGAIN`, `CLUSTERDOWN`) are followed up.
/// - It reconnects by itself, and a call never takes longer than the timeout.
/// - Keys are `{prefix}:v1:{policy}:{digest}`. A value there that is none of ours is replaced by
///   fresh state.
///
/// # What it cannot promise
/// Replication is asynchronous: a failover may lose the last moments, so that as much as was
/// charged in them can be charged again. A server that evicts keys (`allkeys-*`, `volatile-*`)
/// forgets counters when it is full; only `noeviction` never does. [`warnings`] tells of the first.
///
/// [`warnings`]: CounterBackend::warnings
///
/// # Cancellation
/// A call that is dropped has been charged or not; the connection stays in step.
///
/// ```no_run
/// use tollgate_core::{Cost, CounterBackend, Key, Policy, Quota, Subject};
/// use tollgate_redis::RedisBackend;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = RedisBackend::builder("redis://127.0.0.1:6379").connect().await?;
/// let policy = Policy::new("login", ["5/15m".parse()?])?;
/// let decision = backend
///     .acquire(Subject::new(&policy, &Key::from("alice")), Cost::ONE)
///     .await?;
/// assert!(decision.allowed());
/// # Ok(())
/// # }
/// ```
pub struct RedisBackend<E: RedisExecutor = Client> {
    executor: E,
    prefix: String,
    name: String,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl RedisBackend<Client> {
    /// A backend on a server, a cluster or the master that sentinels name; see [`Builder`].
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::new(url)
    }

    pub(crate) fn of_client(client: Client, prefix: String) -> Self {
        Self {
            name: client.to_string(),
            warnings: client.warnings(),
            executor: client,
            prefix,
        }
    }
}

impl<E: RedisExecutor> RedisBackend<E> {
    /// A backend on the application's own client: no second connection to the same server.
    ///
    /// Checking the version and the settings of the server is then up to the application.
    pub fn with_executor(executor: E) -> Self {
        Self {
            executor,
            prefix: DEFAULT_PREFIX.into(),
            name: "redis (the application's client)".into(),
            warnings: Arc::default(),
        }
    }

    /// Puts another prefix before every key.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) const fn executor(&self) -> &E {
        &self.executor
    }

    /// Runs a script on the record of a subject.
    async fn run(
        &self,
        script: &'static Script,
        subject: Subject<'_>,
        args: &Args,
    ) -> Result<Vec<i64>, BackendError> {
        let key = storage_key(&self.prefix, subject.policy, subject.key);
        let call = ScriptCall {
            script,
            key: &key,
            others: &[],
            args,
        };
        self.executor.run(call).await
    }

    /// Charges several records in one call: those that are one moment each, by fixed costs. All at
    /// the same time.
    async fn acquire_together(
        &self,
        batches: &[Batch<'_>],
    ) -> Result<Vec<Option<Vec<Decision>>>, BackendError> {
        let mut answers: Vec<_> = batches.iter().map(|_| None).collect();
        let mut asked = Vec::with_capacity(batches.len());
        let mut keys = Vec::with_capacity(batches.len());
        let at = batches.first().and_then(|batch| batch.subject.at);
        for (i, Batch { subject, costs }) in batches.iter().enumerate() {
            if let Some(quota) = script::in_micros(subject.policy.quotas())
                && subject.at == at
                && record::fixed(costs)
            {
                keys.push(storage_key(&self.prefix, subject.policy, subject.key));
                asked.push((i, quota, *costs));
            }
        }
        let Some((key, others)) = keys.split_first() else {
            return Ok(answers);
        };
        let args = record::many_args(&asked, at)?;
        let call = ScriptCall {
            script: &script::TOKEN_BUCKET_US_MANY,
            key,
            others,
            args: &args,
        };
        let reply = self.executor.run(call).await?;
        let now = at.unwrap_or_else(|| SystemClock.now());
        if reply.len() != asked.len() {
            return Err(record::malformed());
        }
        for ((i, quota, costs), debt) in asked.into_iter().zip(reply) {
            answers[i] = record::short_decisions(quota, now, costs, debt)?;
        }
        Ok(answers)
    }

    /// Runs the script of the policy.
    async fn call(&self, subject: Subject<'_>, call: Call<'_>) -> Result<Vec<i64>, BackendError> {
        let quotas = subject.policy.quotas();
        let args = record::args(quotas, subject.at, call)?;
        self.run(script::of(quotas), subject, &args).await
    }
}

impl<E: RedisExecutor> CounterBackend for RedisBackend<E> {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        let quotas = subject.policy.quotas();
        if let Some(quota) = script::in_micros(quotas)
            && cost.min() == cost.max()
        {
            let cost = cost.min();
            let args = record::short_args(quota, subject.at, cost)?;
            let reply = self.run(&script::TOKEN_BUCKET_US, subject, &args).await?;
            let at = subject.at.unwrap_or_else(|| SystemClock.now());
            if let Some(decision) = record::short_decision(quota, at, cost, &reply)? {
                return Ok(decision);
            }
        } else if let Some((script, quota)) = script::of_one(quotas) {
            let args = record::one_args(quota, subject.at, cost)?;
            let reply = self.run(script, subject, &args).await?;
            if !record::declined(&reply) {
                let (now, mut found) = record::read(quotas, &reply)?;
                return Ok(apply(quotas, &mut found, now, Operation::Acquire(cost)).decision);
            }
        }
        let reply = self.call(subject, Call::Acquire(&[cost])).await?;
        let (now, mut found) = record::read(quotas, &reply)?;
        Ok(apply(quotas, &mut found, now, Operation::Acquire(cost)).decision)
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        if costs.is_empty() {
            return Ok(Vec::new());
        }
        let quotas = subject.policy.quotas();
        if script::in_micros(quotas).is_some() {
            let answers = self.acquire_together(&[Batch { subject, costs }]).await?;
            if let Some(decisions) = answers.into_iter().next().flatten() {
                return Ok(decisions);
            }
        } else if let Some((script, quota)) = script::of_ones(quotas)
            && let Some(ones) = record::ones(costs)
        {
            let args = record::one_args(quota, subject.at, ones)?;
            let reply = self.run(script, subject, &args).await?;
            if !record::declined(&reply) {
                let (now, mut found) = record::read(quotas, &reply)?;
                return Ok(apply_batch(quotas, &mut found, now, costs).0);
            }
        }
        let reply = self.call(subject, Call::Acquire(costs)).await?;
        let (now, mut found) = record::read(quotas, &reply)?;
        Ok(apply_batch(quotas, &mut found, now, costs).0)
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        let quotas = subject.policy.quotas();
        let reply = self.call(subject, Call::Peek(cost)).await?;
        let (now, mut found) = record::read(quotas, &reply)?;
        Ok(apply(quotas, &mut found, now, Operation::Peek(cost)).decision)
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        // What gives nothing back writes nothing.
        let call = if refund.cost == 0 {
            Call::Peek(Cost::ONE)
        } else {
            Call::Refund(refund)
        };
        let reply = self.call(subject, call).await?;
        record::refunded(subject.policy.quotas(), &reply)
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.run(&script::RESET, subject, &Args::default())
            .await
            .map(drop)
    }

    async fn ping(&self) -> Result<(), BackendError> {
        let key = format!("{}:v1:ping", self.prefix);
        let call = ScriptCall {
            script: &script::PING,
            key: &key,
            others: &[],
            args: &Args::default(),
        };
        self.executor.run(call).await.map(drop)
    }

    async fn acquire_many(
        &self,
        batches: &[Batch<'_>],
    ) -> Result<Vec<Option<Vec<Decision>>>, BackendError> {
        match self.acquire_together(batches).await {
            // Nothing ran. In a cluster keys of one slot may be in two places while it moves.
            Err(error) if error.kind() == ErrorKind::NotReady && batches.len() > 1 => {
                Ok(batches.iter().map(|_| None).collect())
            }
            answers => answers,
        }
    }

    fn merge_group(&self, subject: Subject<'_>) -> Option<u64> {
        script::in_micros(subject.policy.quotas())?;
        match (self.executor.merging(), subject.at) {
            (Merging::Never, _) => None,
            (Merging::Always, None) => Some(u64::MAX),
            (Merging::Always, Some(at)) => Some(at.as_micros()).filter(|at| *at <= MAX_EXACT),
            (Merging::WithinSlot, None) => {
                let key = storage_key(&self.prefix, subject.policy, subject.key);
                Some(key_slot(&key).into())
            }
            (Merging::WithinSlot, Some(_)) => None,
        }
    }

    fn leases(self: Arc<Self>) -> Option<SharedLeases> {
        Some(SharedLeases::of(self))
    }

    /// Only on our own client: the application's runs scripts for integers, and nothing else.
    fn documents(self: Arc<Self>) -> Option<SharedDocuments> {
        let client = self.executor.own_client()?;
        Some(SharedDocuments::new(Documents::new(client.clone())))
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }
}

impl<E: RedisExecutor> fmt::Display for RedisBackend<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<E: RedisExecutor> fmt::Debug for RedisBackend<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("name", &self.name)
            .field("prefix", &self.prefix)
            .field("executor", &self.executor)
            .finish()
    }
}
