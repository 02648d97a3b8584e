//! The limiter: a store behind its protection, and the policies that count there.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_core::{
    BackendError, Clock, CounterBackend, Policy, PolicyError, Quota, SharedBackend, Subject,
    Timestamp,
};

use crate::concurrency::Keeper;
use crate::monitor::Monitor;
use crate::rate_limit::{RateLimit, Registered};
use crate::{
    Builder, CircuitBreaker, Coalesced, ConcurrencyBuilder, FailurePolicy, Fallback, Health,
    Tiered, Timeout, Watch,
};

/// The whole stack; static, so that only the store at its bottom is behind a pointer.
pub(crate) type Stack = Tiered<Fallback<CircuitBreaker<Timeout<Coalesced<SharedBackend>>>>>;

/// A store behind a timeout, a circuit breaker, a failure policy and a memory of refusals.
///
/// Cheap to clone; clones are the same limiter.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
/// let search = limiter.policy("search", Quota::parse_list("10/s, 1000/h")?)?;
/// assert!(search.acquire("alice").await?.allowed());
///
/// // The same name and the same quotas: the same counters. Other quotas: an error.
/// let same = limiter.policy("search", Quota::parse_list("10/s, 1000/h")?)?;
/// assert_eq!(same.peek("alice").await?.remaining(), Some(9));
/// assert!(limiter.policy("search", Quota::parse_list("20/s")?).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) name: Box<str>,
    pub(crate) stack: Stack,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) on_failure: FailurePolicy,
    /// Virtual time, if any.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) policies: Mutex<HashMap<Box<str>, Arc<Registered>>>,
    pub(crate) concurrency: Mutex<HashMap<Box<str>, NonZeroU32>>,
    pub(crate) keeper: Keeper,
}

impl Limiter {
    /// Begins a limiter over a store: a [`SharedBackend`] that [`connect`](crate::connect) made, or
    /// any backend.
    pub fn builder(backend: impl CounterBackend) -> Builder {
        Builder::new(backend)
    }

    /// The policy of this name, ready to be asked. It fails as the limiter does, unless it was given
    /// a failure policy of its own before.
    ///
    /// # Errors
    /// [`PolicyError::Taken`] when the name belongs to other quotas already, [`PolicyError::Store`]
    /// when the store cannot count such a policy; and when the name or the number of quotas is not
    /// one a policy can have.
    pub fn policy(
        &self,
        name: &str,
        quotas: impl IntoIterator<Item = Quota>,
    ) -> Result<RateLimit, PolicyError> {
        let policy = self.acceptable(name, quotas)?;
        let registered = {
            let mut policies = self.0.policies.lock();
            match policies.get(name) {
                Some(known) if *known.policy() == policy => Arc::clone(known),
                Some(_) => return Err(PolicyError::Taken(name.into())),
                None => {
                    let new = Arc::new(Registered::new(&self.0.name, policy));
                    policies.insert(name.into(), Arc::clone(&new));
                    new
                }
            }
        };
        Ok(RateLimit::new(self.clone(), registered))
    }

    /// The policy of this name, with these quotas in place of those it had: for limits that change
    /// while the program runs. What was used under it is still used where the algorithm and the
    /// period stay the same; handles that were given out before keep the quotas they had.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
    /// let before = limiter.policy("search", Quota::parse_list("2/h fixed_window")?)?;
    /// before.acquire("alice").cost(2).await?;
    /// let after = limiter.replace_policy("search", Quota::parse_list("5/h fixed_window")?)?;
    /// assert_eq!(after.peek("alice").await?.remaining(), Some(3));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`policy`](Self::policy), but that the name may be taken.
    pub fn replace_policy(
        &self,
        name: &str,
        quotas: impl IntoIterator<Item = Quota>,
    ) -> Result<RateLimit, PolicyError> {
        let policy = self.acceptable(name, quotas)?;
        let mut policies = self.0.policies.lock();
        let registered = match policies.get(name) {
            Some(known) if *known.policy() == policy => Arc::clone(known),
            _ => {
                let new = Arc::new(Registered::new(&self.0.name, policy));
                policies.insert(name.into(), Arc::clone(&new));
                new
            }
        };
        drop(policies);
        Ok(RateLimit::new(self.clone(), registered))
    }

    /// Lets go of a name, so that it may come to mean something else and holds no memory here.
    /// Nothing that was counted is touched, and handles go on.
    pub fn forget_policy(&self, name: &str) {
        self.0.policies.lock().remove(name);
        self.0.concurrency.lock().remove(name);
    }

    fn acceptable(
        &self,
        name: &str,
        quotas: impl IntoIterator<Item = Quota>,
    ) -> Result<Policy, PolicyError> {
        let policy = Policy::new(name, quotas)?;
        self.backend()
            .accepts(&policy)
            .map_err(|error| PolicyError::Store(error.to_string().into()))?;
        Ok(policy)
    }

    /// The policy of this name, with a failure policy of its own. It holds for every handle of the
    /// name; the last one that was given does.
    ///
    /// # Errors
    /// As [`policy`](Self::policy).
    pub fn policy_with(
        &self,
        name: &str,
        quotas: impl IntoIterator<Item = Quota>,
        on_failure: FailurePolicy,
    ) -> Result<RateLimit, PolicyError> {
        let limit = self.policy(name, quotas)?;
        self.fallback().set_rule(name, on_failure);
        Ok(limit)
    }

    /// Begins a limit on how many run at the same time: at most `slots` holders for each key, over
    /// all processes; see [`Concurrency`](crate::Concurrency).
    pub fn concurrency(&self, name: &str, slots: u32) -> ConcurrencyBuilder {
        ConcurrencyBuilder::new(self.clone(), name, slots)
    }

    /// Gives back every slot that this limiter still holds, and waits until those that were dropped
    /// have been given back: for shutdown, within a deadline of your own. Holders are told that they
    /// lost their slots.
    pub async fn drain(&self) {
        self.0.keeper.drain().await;
    }

    /// Whether limits are being enforced, and if not, why. Asks nobody: it is what the last call
    /// found. [`ping`](Self::ping) makes it fresh.
    #[must_use]
    pub fn health(&self) -> Health {
        let (enforcing, since, reason) = self.0.monitor.read();
        Health {
            enforcing,
            since,
            reason,
            on_failure: self.0.on_failure,
            unenforced: self.0.monitor.unenforced(),
            breaker: self.fallback().inner().state(),
            warnings: self.0.stack.warnings(),
        }
    }

    /// Tells when [`health`](Self::health) changes.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch::new(self.clone(), self.0.monitor.subscribe())
    }

    /// Asks the store whether it answers, within the timeout and through the breaker, and takes the
    /// answer into [`health`](Self::health). Counts nothing.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), BackendError> {
        self.0.stack.ping().await
    }

    /// Drops every remembered refusal, so that the store is asked again. Counters are not touched.
    pub fn forget(&self) {
        self.0.stack.forget();
    }

    /// The store itself, without timeout, breaker or failure policy.
    #[must_use]
    pub fn backend(&self) -> &SharedBackend {
        self.fallback().inner().inner().inner().inner()
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.0.keeper
    }

    /// The name has so many slots from now on.
    pub(crate) fn replace_slots(&self, name: &str, slots: NonZeroU32) {
        self.0.concurrency.lock().insert(name.into(), slots);
    }

    /// The number of slots that the name already had, if any.
    pub(crate) fn register_slots(&self, name: &str, slots: NonZeroU32) -> Option<NonZeroU32> {
        let mut known = self.0.concurrency.lock();
        match known.get(name) {
            Some(known) => Some(*known),
            None => known.insert(name.into(), slots),
        }
    }

    /// A call to the store that is no charge, behind the same timeout and breaker.
    pub(crate) async fn guarded<T>(
        &self,
        call: impl Future<Output = Result<T, BackendError>> + Send,
    ) -> Result<T, BackendError> {
        let breaker = self.fallback().inner();
        let answer = breaker.guard(breaker.inner().bound(call)).await;
        match &answer {
            Ok(_) => self.0.monitor.answered(),
            Err(error) => self.0.monitor.failed(error, 0),
        }
        answer
    }

    /// The moment of a call in virtual time.
    pub(crate) fn virtual_now(&self) -> Option<Timestamp> {
        self.0.clock.as_ref().map(|clock| clock.now())
    }

    pub(crate) fn fallback(&self) -> &Fallback<CircuitBreaker<Timeout<Coalesced<SharedBackend>>>> {
        self.0.stack.inner()
    }

    /// What a call is about. The clock is asked here, once a call, and only in virtual time: a
    /// backend has a clock of its own.
    pub(crate) fn subject<'a>(
        &self,
        policy: &'a Policy,
        key: &'a tollgate_core::Key<'a>,
    ) -> Subject<'a> {
        Subject {
            policy,
            key,
            at: self.virtual_now(),
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("name", &self.0.name)
            .field("stack", &format_args!("{}", self.0.stack))
            .field("monitor", &self.0.monitor)
            .finish()
    }
}

/// The stack, outside in.
impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.stack, f)
    }
}
