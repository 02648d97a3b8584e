//! The backend: every call finds its record in the table, in the map, or past the bound.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{
    BackendError, Cost, CounterBackend, Decision, Key, Policy, Refund, SharedDocuments,
    SharedLeases, Subject, Timestamp,
};

use crate::call::{Acquire, Batch, Call, GiveBack, Peek};
use crate::claim::{Claim, Full};
use crate::clock::{Moment, Time};
use crate::config::MemoryBackendBuilder;
use crate::document::Documents;
use crate::hash::{Fingerprint, Fingerprinter};
use crate::lease::Leases;
use crate::map::Map;
use crate::overflow::Overflow;
use crate::rate::Rate;
use crate::room::{Place, Room};
use crate::stats::Stats;
use crate::sweeper::Sweeper;
use crate::table::Table;

/// Counts in the memory of this process.
///
/// It is the backend of one process, of tests, and of the local fallback. A check takes tens of
/// nanoseconds; nothing it does blocks, sleeps or fails, so the synchronous methods
/// ([`try_acquire`](Self::try_acquire) and its kin) are all there is to it, and the futures of
/// [`CounterBackend`] are ready at once.
///
/// # Guarantees
/// - Answers are exact, for every algorithm and any number of threads: 400 charges at once on a
///   quota of 100 admit 100.
/// - A refusal or a peek of a token bucket writes nothing, so a key under attack costs no more with
///   more threads.
/// - At most [`max_keys`](MemoryBackendBuilder::max_keys) records are held (1,000,000 unless set).
///   A record of a sliding log counts as many as it has admissions. Each of the first `max_keys`
///   identities that are in use at one time has its own, and a record in use is never dropped, so a
///   flood of keys renews nobody's quota.
/// - Past the bound, records that decide like none (a full bucket, an empty window) make room: a
///   call looks through up to 2,048 buckets of them, less than 100 us. If there is no room,
///   identities without a record share one overflow record a policy: together they get the quota
///   once, until there is room. A log that cannot grow merges its newest admissions: it may refuse
///   longer than it should, and never admits more.
/// - Memory grows with the records held at one time, about 40 bytes each for a token bucket, and is used
///   again but not given back. There is no background task.
/// - Identities are kept as 128-bit hashes with a random seed, never as text.
/// - Time is monotonic: it is the wall clock's when the backend is made, and goes on by a steady
///   counter, so a step of the wall clock changes no decision. With
///   [`clock`](MemoryBackendBuilder::clock) or [`Subject::at`] it may move back as
///   `docs/algorithms.md` says; records are then dropped only when the bound needs their room.
///
/// Nothing outlives the process, and no other process sees it.
///
/// ```
/// use tollgate_core::{Cost, Policy};
/// use tollgate_memory::MemoryBackend;
///
/// let backend = MemoryBackend::new();
/// let login = Policy::new("login", ["2/h".parse()?])?;
/// assert!(backend.try_acquire(&login, "alice", Cost::ONE).allowed());
/// assert!(backend.try_acquire(&login, "alice", Cost::ONE).allowed());
/// let refused = backend.try_acquire(&login, "alice", Cost::ONE);
/// assert!(!refused.allowed() && refused.retry_after().is_some());
/// assert!(backend.try_acquire(&login, "bob", Cost::ONE).allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryBackend {
    pub(crate) time: Time,
    pub(crate) prints: Fingerprinter,
    pub(crate) table: Table,
    pub(crate) map: Map,
    pub(crate) room: Room,
    sweeper: Sweeper,
    overflow: Overflow,
    pub(crate) leases: Leases,
    pub(crate) documents: Documents,
}

impl MemoryBackend {
    /// A backend that holds up to 1,000,000 records.
    ///
    /// The first one in a process measures the processor's counter against its clock, which takes
    /// some milliseconds (at most 200).
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A backend with other settings.
    pub fn builder() -> MemoryBackendBuilder {
        MemoryBackendBuilder::default()
    }

    pub(crate) fn with(time: Time, max_keys: u64) -> Self {
        Self {
            time,
            prints: Fingerprinter::random(),
            table: Table::new(max_keys),
            map: Map::new(max_keys),
            room: Room::new(max_keys),
            sweeper: Sweeper::new(),
            overflow: Overflow::new(max_keys),
            leases: Leases::new(max_keys),
            documents: Documents::default(),
        }
    }

    /// Charges if every quota has room: [`CounterBackend::acquire`] without a future.
    #[inline(always)]
    pub fn try_acquire<'k>(
        &self,
        policy: &Policy,
        key: impl Into<Key<'k>>,
        cost: Cost,
    ) -> Decision {
        self.call(&Acquire(cost), policy, &key.into(), None)
    }

    /// Asks without charging: [`CounterBackend::peek`] without a future.
    #[inline]
    #[must_use]
    pub fn try_peek<'k>(&self, policy: &Policy, key: impl Into<Key<'k>>, cost: Cost) -> Decision {
        self.call(&Peek(cost), policy, &key.into(), None)
    }

    /// Gives a charge back: [`CounterBackend::refund`] without a future.
    pub fn try_refund<'k>(
        &self,
        policy: &Policy,
        key: impl Into<Key<'k>>,
        refund: Refund,
    ) -> Decision {
        self.call(&GiveBack(refund), policy, &key.into(), None)
    }

    /// Forgets a key: [`CounterBackend::reset`] without a future.
    ///
    /// What a key without a record of its own used of the overflow record stays used.
    pub fn try_reset<'k>(&self, policy: &Policy, key: impl Into<Key<'k>>) {
        let print = self.prints.of(policy, &key.into());
        let mut shard = self.map.shard(print);
        if let Some(record) = shard.records.remove(&print) {
            self.room.release(Place::Map, record.weight());
        }
        let mut bucket = self.table.lock(print.hi);
        if let Some((position, _)) = bucket.find(print) {
            bucket.remove(position);
            self.room.release(Place::Table, 1);
        }
    }

    /// How much is held.
    ///
    /// Counts the records in use one by one, without holding anybody up: some milliseconds for a
    /// million.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats_at(Timestamp::from_micros(self.time.moment(None).now))
    }

    /// The same in virtual time.
    #[must_use]
    pub fn stats_at(&self, now: Timestamp) -> Stats {
        let now = now.as_micros();
        Stats {
            live: self.table.live(now) + self.map.live(now),
            held: self.room.used(),
            max_keys: self.room.max(),
            overflow_decisions: self.overflow.decisions(),
        }
    }

    #[inline(always)]
    fn call<C: Call>(
        &self,
        call: &C,
        policy: &Policy,
        key: &Key<'_>,
        at: Option<Timestamp>,
    ) -> C::Answer {
        // The answer is worked out where it is asked for: a caller who only looks at `allowed` does
        // not pay for the divisions that the waits need.
        match self.in_passing(call, policy, key, at) {
            Ok((rate, now, outcome)) => call.answer(&rate, now, outcome),
            Err((print, moment)) => self.elsewhere(call, policy, print, moment),
        }
    }

    /// Decides for who has an entry in the table.
    #[inline(never)]
    fn in_passing<C: Call>(
        &self,
        call: &C,
        policy: &Policy,
        key: &Key<'_>,
        at: Option<Timestamp>,
    ) -> Result<(Rate, u64, C::Outcome), (Fingerprint, Moment)> {
        let print = self.prints.of(policy, key);
        let moment = self.time.moment(at);
        let now = moment.now;
        let Some(rate) = Rate::of(policy, now) else {
            return Err((print, moment));
        };
        let decide = |stored| call.bucket(&rate, Some(stored), now);
        match self.table.update(print, rate.n, decide) {
            Some(outcome) => Ok((rate, now, outcome)),
            None => Err((print, moment)),
        }
    }

    /// Decides for who has no entry in the table: yet, or because the policy is not for it.
    #[inline(never)]
    fn elsewhere<C: Call>(
        &self,
        call: &C,
        policy: &Policy,
        print: Fingerprint,
        moment: Moment,
    ) -> C::Answer {
        let claim = Claim {
            backend: self,
            policy,
            print,
            moment,
        };
        loop {
            match claim.decide(call) {
                Ok(answer) => return answer,
                Err(Full) if self.make_room(moment) => {}
                Err(Full) => return self.overflow.decide(call, policy, moment.now),
            }
        }
    }

    fn make_room(&self, moment: Moment) -> bool {
        self.sweeper
            .make_room(moment.now, &self.room, &self.table, &self.map)
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("clock", &self.time)
            .field("held", &self.room.used())
            .field("max_keys", &self.room.max())
            .finish()
    }
}

impl fmt::Display for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory://")
    }
}

#[deny(clippy::missing_trait_methods)]
impl CounterBackend for MemoryBackend {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        Ok(self.call(&Acquire(cost), subject.policy, subject.key, subject.at))
    }

    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        Some(Ok(self.call(
            &Acquire(cost),
            subject.policy,
            subject.key,
            subject.at,
        )))
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        Ok(self.call(&Batch(costs), subject.policy, subject.key, subject.at))
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        Ok(self.call(&Peek(cost), subject.policy, subject.key, subject.at))
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        Ok(self.call(&GiveBack(refund), subject.policy, subject.key, subject.at))
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.try_reset(subject.policy, subject.key);
        Ok(())
    }

    async fn ping(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Never: nothing here is a trip.
    async fn acquire_many(
        &self,
        batches: &[tollgate_core::Batch<'_>],
    ) -> Result<Vec<Option<Vec<Decision>>>, BackendError> {
        Ok(batches.iter().map(|_| None).collect())
    }

    fn merge_group(&self, _: Subject<'_>) -> Option<u64> {
        None
    }

    fn prefers_coalescing(&self) -> bool {
        false
    }

    fn accepts(&self, _: &Policy) -> Result<(), BackendError> {
        Ok(())
    }

    fn leases(self: Arc<Self>) -> Option<SharedLeases> {
        Some(SharedLeases::of(self))
    }

    fn documents(self: Arc<Self>) -> Option<SharedDocuments> {
        Some(SharedDocuments::of(self))
    }

    /// Says so if in the last minute the bound was reached and keys shared the overflow record.
    fn warnings(&self) -> Vec<String> {
        if !self.overflow.is_in_use(self.time.moment(None).now) {
            return Vec::new();
        }
        vec![format!(
            "memory: all {} records were in use within the last minute, so new keys share one record a policy; raise max_keys",
            self.room.max()
        )]
    }
}
