//! Which policy fails how, and how often each did. Looked at only when the store fails.

use std::collections::HashMap;
use std::sync::Arc;

use metrics::Counter;
use parking_lot::{Mutex, RwLock};
use tollgate_core::{BackendError, ErrorKind};

use crate::{FailurePolicy, metering};

/// Names come from configuration; should they not, memory stays bounded, and what is beyond shares
/// one series.
const MAX_POLICIES: usize = 10_000;
const OTHERS: &str = "other";

pub(super) struct Rules {
    default: FailurePolicy,
    limiter: Box<str>,
    by_name: RwLock<HashMap<Box<str>, Arc<Rule>>>,
}

#[derive(Default)]
struct Rule {
    own: Mutex<Option<FailurePolicy>>,
    unenforced: Mutex<Vec<(ErrorKind, Counter)>>,
}

impl Rules {
    pub(super) fn new(default: FailurePolicy, limiter: &str) -> Self {
        Self {
            default,
            limiter: limiter.into(),
            by_name: RwLock::default(),
        }
    }

    pub(super) const fn default_rule(&self) -> FailurePolicy {
        self.default
    }

    pub(super) fn set(&self, policy: &str, rule: FailurePolicy) {
        let mut by_name = self.by_name.write();
        *by_name.entry(policy.into()).or_default().own.lock() = Some(rule);
    }

    pub(super) fn get(&self, policy: &str) -> FailurePolicy {
        let by_name = self.by_name.read();
        let own = by_name.get(policy).and_then(|rule| *rule.own.lock());
        own.unwrap_or(self.default)
    }

    /// Counts decisions that the store did not make, and says how to make them.
    pub(super) fn count(
        &self,
        policy: &str,
        error: &BackendError,
        decisions: u64,
    ) -> FailurePolicy {
        let (name, rule) = self.entry(policy);
        let mut counters = rule.unenforced.lock();
        match counters.iter().find(|(kind, _)| *kind == error.kind()) {
            Some((_, counter)) => counter.increment(decisions),
            None => {
                let counter = metering::unenforced(&self.limiter, name, error.kind());
                counter.increment(decisions);
                counters.push((error.kind(), counter));
            }
        }
        let own = *rule.own.lock();
        own.unwrap_or(self.default)
    }

    fn entry<'a>(&self, policy: &'a str) -> (&'a str, Arc<Rule>) {
        if let Some(rule) = self.by_name.read().get(policy) {
            return (policy, Arc::clone(rule));
        }
        let mut by_name = self.by_name.write();
        let name = if by_name.len() < MAX_POLICIES {
            policy
        } else {
            OTHERS
        };
        (name, Arc::clone(by_name.entry(name.into()).or_default()))
    }
}
