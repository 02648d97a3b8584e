//! For the tests of those who use this crate: stores that admit all or nothing, a recorder, and time
//! that stands still.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::testing::{Recorder, admit_all, refuse_all};
//! use tollgate::{Limiter, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let recorder = Recorder::new(admit_all());
//! let limiter = Limiter::builder(recorder.clone()).build();
//! let login = limiter.policy("login", Quota::parse_list("5/minute")?)?;
//! assert!(login.acquire("alice").cost(3).await?.allowed());
//! assert_eq!(recorder.charges("login", "alice"), [3]);
//!
//! let limiter = Limiter::builder(refuse_all(Duration::from_secs(7))).build();
//! let login = limiter.policy("login", Quota::parse_list("5/minute")?)?;
//! let refused = login.acquire("alice").await?;
//! assert_eq!(refused.retry_after(), Some(Duration::from_secs(7)));
//! # Ok(())
//! # }
//! ```
//!
//! A limit that counts, in time that moves only when told:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::testing::ManualClock;
//! use tollgate::{Limiter, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::default();
//! let limiter = Limiter::builder(tollgate::connect("memory://").await?)
//!     .clock(clock.clone())
//!     .build();
//! let login = limiter.policy("login", Quota::parse_list("1/minute")?)?;
//! assert!(login.acquire("alice").await?.allowed());
//! assert!(!login.acquire("alice").await?.allowed());
//! clock.advance(Duration::from_secs(60));
//! assert!(login.acquire("alice").await?.allowed());
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_core::{
    BackendError, Cost, CounterBackend, Decision, Key, Policy, QuotaAnswer, Refund, Subject,
};

pub use tollgate_core::ManualClock;

use crate::time::wall_clock;

/// A store that admits everything, and counts nothing.
#[must_use]
pub const fn admit_all() -> Always {
    Always { refuse: None }
}

/// A store that refuses everything, and says to come back after so long.
#[must_use]
pub const fn refuse_all(retry_after: Duration) -> Always {
    Always {
        refuse: Some(retry_after),
    }
}

/// A store that always says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Always {
    refuse: Option<Duration>,
}

impl Always {
    fn answer(self, subject: Subject<'_>, cost: u64, charged: bool) -> Decision {
        let quotas = subject.policy.quotas().iter().map(|quota| QuotaAnswer {
            allowed: self.refuse.is_none(),
            granted: if charged && self.refuse.is_none() {
                cost
            } else {
                0
            },
            remaining: if self.refuse.is_none() {
                quota.capacity()
            } else {
                0
            },
            retry_after: self.refuse,
            reset_after: self.refuse.unwrap_or_default(),
            more_after: self.refuse,
        });
        let at = subject.at.unwrap_or_else(wall_clock);
        Decision::of(at, quotas.collect())
    }
}

impl CounterBackend for Always {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        Ok(self.answer(subject, cost.max(), true))
    }

    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        Some(Ok(self.answer(subject, cost.max(), true)))
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        let answers = costs.iter().map(|it| self.answer(subject, it.max(), true));
        Ok(answers.collect())
    }

    async fn peek(&self, subject: Subject<'_>, _: Cost) -> Result<Decision, BackendError> {
        Ok(self.answer(subject, 0, false))
    }

    async fn refund(&self, subject: Subject<'_>, _: Refund) -> Result<Decision, BackendError> {
        Ok(self.answer(subject, 0, false))
    }

    async fn reset(&self, _: Subject<'_>) -> Result<(), BackendError> {
        Ok(())
    }

    async fn ping(&self) -> Result<(), BackendError> {
        Ok(())
    }
}

impl fmt::Display for Always {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refuse {
            None => f.write_str("admit_all"),
            Some(wait) => write!(f, "refuse_all({wait:?})"),
        }
    }
}

/// What a store was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// To charge, and it answered.
    Charge {
        /// The name of the policy.
        policy: String,
        /// For whom.
        key: Key<'static>,
        /// How much at least.
        cost: u64,
        /// Whether it was admitted.
        allowed: bool,
    },
    /// To give back, and it did.
    Refund {
        /// The name of the policy.
        policy: String,
        /// For whom.
        key: Key<'static>,
        /// How much.
        cost: u64,
    },
}

/// Writes down what the store inside is asked. Clones share what they wrote.
///
/// It grows without bound: it is for tests.
pub struct Recorder<B> {
    inner: Arc<B>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl<B> Recorder<B> {
    /// Around this store.
    pub fn new(inner: B) -> Self {
        Self {
            inner: Arc::new(inner),
            calls: Arc::default(),
        }
    }

    /// All calls that were answered, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    /// The costs that were charged and admitted for a policy and an identity, in order.
    ///
    /// What a layer charges for a rule without a name, or by route, is counted under a key that
    /// holds the route, too: look for that in [`calls`](Self::calls).
    #[must_use]
    pub fn charges<'a>(&self, name: &str, identity: impl Into<Key<'a>>) -> Vec<u64> {
        let identity = identity.into().into_owned();
        let calls = self.calls.lock();
        let costs = calls.iter().filter_map(|call| match call {
            Call::Charge {
                policy,
                key,
                cost,
                allowed: true,
            } if policy == name && *key == identity => Some(*cost),
            _ => None,
        });
        costs.collect()
    }

    fn charged(
        &self,
        subject: Subject<'_>,
        cost: Cost,
        answer: Result<Decision, BackendError>,
    ) -> Result<Decision, BackendError> {
        if let Ok(decision) = &answer {
            self.calls.lock().push(Call::Charge {
                policy: subject.policy.name().to_owned(),
                key: subject.key.clone().into_owned(),
                cost: cost.min(),
                allowed: decision.allowed(),
            });
        }
        answer
    }
}

impl<B: CounterBackend> CounterBackend for Recorder<B> {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        let answer = self.inner.acquire(subject, cost).await;
        self.charged(subject, cost, answer)
    }

    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        let answer = self.inner.acquire_now(subject, cost)?;
        Some(self.charged(subject, cost, answer))
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        let answers = self.inner.acquire_batch(subject, costs).await?;
        let answers = costs.iter().zip(answers);
        answers
            .map(|(cost, answer)| self.charged(subject, *cost, Ok(answer)))
            .collect()
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.inner.peek(subject, cost).await
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        let answer = self.inner.refund(subject, refund).await;
        if answer.is_ok() {
            self.calls.lock().push(Call::Refund {
                policy: subject.policy.name().to_owned(),
                key: subject.key.clone().into_owned(),
                cost: refund.cost,
            });
        }
        answer
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.inner.reset(subject).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.inner.ping().await
    }

    fn accepts(&self, policy: &Policy) -> Result<(), BackendError> {
        self.inner.accepts(policy)
    }

    fn prefers_coalescing(&self) -> bool {
        self.inner.prefers_coalescing()
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }
}

impl<B> Clone for Recorder<B> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            calls: Arc::clone(&self.calls),
        }
    }
}

impl<B: fmt::Debug> fmt::Debug for Recorder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("inner", &self.inner)
            .field("calls", &self.calls.lock().len())
            .finish()
    }
}

impl<B: fmt::Display> fmt::Display for Recorder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({})", self.inner)
    }
}
