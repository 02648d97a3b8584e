//! What identities share that come when the bound is reached: one record a policy.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use tollgate_core::Policy;
use tollgate_core::record::{self, Record};

use crate::call::Call;
use crate::record::{merge_newest, shrink};
use crate::room::Padded;

/// How many records there may be before idle ones are dropped. There is one a policy, and policies
/// are configuration; this is for those who name policies after identities all the same.
const MANY: usize = 1_024;

const MINUTE: u64 = 60_000_000;

/// Counted outside the bound.
pub(crate) struct Overflow {
    records: Padded<Mutex<HashMap<[u8; 16], Record>>>,
    decisions: AtomicU64,
    /// When the last one was made.
    last: AtomicU64,
    /// The most admissions a log keeps apart.
    bound: u64,
}

impl Overflow {
    pub(crate) fn new(bound: u64) -> Self {
        Self {
            records: Padded(Mutex::default()),
            decisions: AtomicU64::new(0),
            last: AtomicU64::new(0),
            bound,
        }
    }

    /// How many decisions were made here.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions.load(Relaxed)
    }

    /// Whether one was made in the last minute.
    pub(crate) fn is_in_use(&self, now: u64) -> bool {
        self.decisions() > 0 && now.saturating_sub(self.last.load(Relaxed)) < MINUTE
    }

    pub(crate) fn decide<C: Call>(&self, call: &C, policy: &Policy, now: u64) -> C::Answer {
        self.decisions.fetch_add(1, Relaxed);
        self.last.store(now, Relaxed);
        let mut records = self.records.0.lock();
        if records.len() >= MANY && !records.contains_key(policy.digest()) {
            records.retain(|_, record| record::expires_at(record) > now);
        }
        let record = records.entry(*policy.digest()).or_default();
        let (answer, changed) = call.record(policy.quotas(), record, now);
        if changed {
            merge_newest(record, self.bound);
            shrink(record);
        }
        answer
    }
}
