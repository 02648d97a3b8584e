//! What a call does to one identity's state, in both of its forms: the 64-bit bucket of the table
//! and the core's record.

use tollgate_core::algorithm::{self, Operation};
use tollgate_core::record::Record;
use tollgate_core::{Cost, Decision, Quota, Refund, Timestamp};

use crate::rate::{Bucket, Rate, Stored};

/// One call. Deciding may be repeated (another thread may win), so it has no effects of its own.
pub(crate) trait Call {
    /// What deciding on a bucket leads to; kept small, the answer is worked out from it later.
    type Outcome;
    /// What the caller is told.
    type Answer;
    /// Whether it speaks of an identity's own record, so that past the bound the overflow record
    /// must answer. (A refund without a record gives nothing back.)
    const OWNS: bool;

    /// Decides; and the `tat` to store, if any.
    fn bucket(&self, rate: &Rate, stored: Option<Stored>, now: u64)
    -> (Self::Outcome, Option<u64>);

    /// The answer to what [`bucket`](Self::bucket) decided.
    fn answer(&self, rate: &Rate, now: u64, outcome: Self::Outcome) -> Self::Answer;

    /// Decides on a record and brings it up to date; whether it changed.
    fn record(&self, quotas: &[Quota], record: &mut Record, now: u64) -> (Self::Answer, bool);
}

pub(crate) struct Acquire(pub(crate) Cost);
pub(crate) struct Batch<'a>(pub(crate) &'a [Cost]);
pub(crate) struct Peek(pub(crate) Cost);
pub(crate) struct GiveBack(pub(crate) Refund);

impl Call for Acquire {
    type Outcome = (Bucket, u64);
    type Answer = Decision;
    const OWNS: bool = true;

    #[inline]
    fn bucket(
        &self,
        rate: &Rate,
        stored: Option<Stored>,
        now: u64,
    ) -> (Self::Outcome, Option<u64>) {
        let mut bucket = rate.settle(stored, now);
        let granted = bucket.acquire(rate, self.0);
        let write = (granted > 0 || bucket.moved).then(|| bucket.tat());
        ((bucket, granted), write)
    }

    #[inline(always)]
    fn answer(&self, rate: &Rate, now: u64, (bucket, granted): Self::Outcome) -> Decision {
        bucket.answer(rate, now, self.0.min(), granted > 0, granted)
    }

    fn record(&self, quotas: &[Quota], record: &mut Record, now: u64) -> (Decision, bool) {
        apply(quotas, record, now, Operation::Acquire(self.0))
    }
}

impl Call for Batch<'_> {
    type Outcome = Vec<Decision>;
    type Answer = Vec<Decision>;
    const OWNS: bool = true;

    fn bucket(
        &self,
        rate: &Rate,
        stored: Option<Stored>,
        now: u64,
    ) -> (Self::Outcome, Option<u64>) {
        let mut bucket = rate.settle(stored, now);
        let mut charged = false;
        let decisions = self
            .0
            .iter()
            .map(|cost| {
                let granted = bucket.acquire(rate, *cost);
                charged |= granted > 0;
                bucket.answer(rate, now, cost.min(), granted > 0, granted)
            })
            .collect();
        let write = charged || (bucket.moved && !self.0.is_empty());
        (decisions, write.then(|| bucket.tat()))
    }

    fn answer(&self, _: &Rate, _: u64, decisions: Self::Outcome) -> Vec<Decision> {
        decisions
    }

    fn record(&self, quotas: &[Quota], record: &mut Record, now: u64) -> (Vec<Decision>, bool) {
        algorithm::apply_batch(quotas, record, Timestamp::from_micros(now), self.0)
    }
}

impl Call for Peek {
    type Outcome = Bucket;
    type Answer = Decision;
    const OWNS: bool = true;

    #[inline]
    fn bucket(
        &self,
        rate: &Rate,
        stored: Option<Stored>,
        now: u64,
    ) -> (Self::Outcome, Option<u64>) {
        (rate.settle(stored, now), None)
    }

    #[inline(always)]
    fn answer(&self, rate: &Rate, now: u64, bucket: Self::Outcome) -> Decision {
        bucket.answer(rate, now, self.0.min(), bucket.has(rate, self.0), 0)
    }

    fn record(&self, quotas: &[Quota], record: &mut Record, now: u64) -> (Decision, bool) {
        apply(quotas, record, now, Operation::Peek(self.0))
    }
}

impl Call for GiveBack {
    type Outcome = Bucket;
    type Answer = Decision;
    const OWNS: bool = false;

    fn bucket(
        &self,
        rate: &Rate,
        stored: Option<Stored>,
        now: u64,
    ) -> (Self::Outcome, Option<u64>) {
        let mut bucket = rate.settle(stored, now);
        let changed = bucket.refund(rate, self.0.cost);
        (bucket, changed.then(|| bucket.tat()))
    }

    fn answer(&self, rate: &Rate, now: u64, bucket: Self::Outcome) -> Decision {
        bucket.answer(rate, now, 0, true, 0)
    }

    fn record(&self, quotas: &[Quota], record: &mut Record, now: u64) -> (Decision, bool) {
        apply(quotas, record, now, Operation::Refund(self.0))
    }
}

fn apply(
    quotas: &[Quota],
    record: &mut Record,
    now: u64,
    operation: Operation,
) -> (Decision, bool) {
    let applied = algorithm::apply(quotas, record, Timestamp::from_micros(now), operation);
    (applied.decision, applied.changed)
}
