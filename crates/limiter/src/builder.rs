//! How a limiter is put together.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_core::{Clock, CounterBackend, SharedBackend};

use crate::concurrency::Keeper;
use crate::limiter::Inner;
use crate::monitor::Monitor;
use crate::{
    Breaker, CircuitBreaker, Coalesced, FailurePolicy, Fallback, Limiter, Tiered, Timeout, metering,
};

/// Puts a [`Limiter`] together:
/// `Tiered(Fallback(CircuitBreaker(Timeout(Coalesced(store), 50ms)), open), 100000)`, where
/// `Coalesced` is there for the stores that gain by it.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{FailurePolicy, Limiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(tollgate::connect("memory://").await?)
///     .timeout(Duration::from_millis(20))
///     .on_failure(FailurePolicy::Local)
///     .remember_refusals(10_000)
///     .build();
/// assert!(limiter.to_string().starts_with("Tiered(Fallback(CircuitBreaker(Timeout("));
/// assert!(limiter.to_string().ends_with(", 20ms)), local), 10000)"));
/// # Ok(())
/// # }
/// ```
pub struct Builder {
    backend: SharedBackend,
    name: Box<str>,
    timeout: Duration,
    on_failure: FailurePolicy,
    breaker: Breaker,
    remembered: usize,
    remembered_for: Option<Duration>,
    coalesce: Option<bool>,
    clock: Option<Arc<dyn Clock>>,
}

impl Builder {
    pub(crate) fn new(backend: impl CounterBackend) -> Self {
        Self {
            backend: erase(backend),
            name: "default".into(),
            timeout: Duration::from_millis(50),
            on_failure: FailurePolicy::Open,
            breaker: Breaker::default(),
            remembered: 100_000,
            remembered_for: None,
            coalesce: None,
            clock: None,
        }
    }

    /// The label `limiter` of its metrics, for a process that has several. Default: `default`.
    #[must_use]
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// How long the store may take, connecting included. Default: 50 ms.
    #[must_use]
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// What is answered when the store does not. Default: [`FailurePolicy::Open`].
    #[must_use]
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.on_failure = policy;
        self
    }

    /// When a failing store is no longer asked, and for how long.
    #[must_use]
    pub const fn breaker(mut self, settings: Breaker) -> Self {
        self.breaker = settings;
        self
    }

    /// How many refusals are remembered at most, so that those who are refused do not reach the
    /// store; see [`Tiered`]. Default: 100,000, of which each takes about 250 bytes.
    #[must_use]
    pub const fn remember_refusals(mut self, max: usize) -> Self {
        self.remembered = max;
        self
    }

    /// How long a refusal is remembered at most: a reset or a refund by another process is noticed
    /// by then. A refused client that keeps asking costs the store one call each time. Default: until
    /// something fits again; zero remembers nothing. See [`Tiered::for_at_most`].
    #[must_use]
    pub const fn remember_refusals_for(mut self, limit: Duration) -> Self {
        self.remembered_for = Some(limit);
        self
    }

    /// Asks the store every time.
    #[must_use]
    pub const fn forget_refusals(self) -> Self {
        self.remember_refusals(0)
    }

    /// Whether concurrent charges share trips to the store; see [`Coalesced`]. Default: where a trip
    /// costs so much that the store [says](CounterBackend::prefers_coalescing) they should.
    ///
    /// Worth it on Redis too where single keys are hot or the server is busy.
    #[must_use]
    pub const fn coalesce(mut self, on: bool) -> Self {
        self.coalesce = Some(on);
        self
    }

    /// Decides by this clock instead of the store's: virtual time, for tests and simulations.
    ///
    /// Timeouts, the breaker and [`acquire_wait`](crate::RateLimit::acquire_wait) still wait in the
    /// time of the runtime.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// The limiter.
    #[must_use]
    pub fn build(self) -> Limiter {
        let monitor = Arc::new(Monitor::new(&self.name, self.on_failure));
        let coalesce = self.coalesce;
        let on = coalesce.unwrap_or_else(|| self.backend.prefers_coalescing());
        let store = Coalesced::with(self.backend, on, metering::coalesced(&self.name, on));
        let timeout = Timeout::new(store, self.timeout).recording(metering::waited(&self.name));
        let state = metering::breaker_state(&self.name);
        state.set(metering::breaker_value(crate::BreakerState::Closed));
        let notified = Arc::clone(&monitor);
        let breaker = CircuitBreaker::new(timeout, self.breaker).on_change(Arc::new(move |now| {
            state.set(metering::breaker_value(now));
            notified.changed();
        }));
        let fallback =
            Fallback::reporting(breaker, self.on_failure, &self.name, Arc::clone(&monitor))
                .with_retry_after(self.breaker.cooldown);
        let mut stack = Tiered::new(fallback, self.remembered);
        if let Some(limit) = self.remembered_for {
            stack = stack.for_at_most(limit);
        }
        Limiter(Arc::new(Inner {
            name: self.name,
            stack,
            monitor,
            on_failure: self.on_failure,
            clock: self.clock,
            policies: Mutex::default(),
            concurrency: Mutex::default(),
            keeper: Keeper::default(),
        }))
    }
}

/// Erases the type of a backend, unless it is erased already: one pointer to follow, not two.
fn erase(backend: impl CounterBackend) -> SharedBackend {
    let mut backend = Some(backend);
    let any: &mut dyn Any = &mut backend;
    if let Some(shared) = any
        .downcast_mut::<Option<SharedBackend>>()
        .and_then(Option::take)
    {
        return shared;
    }
    SharedBackend::new(backend.expect("it was taken only if it was erased already"))
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("backend", &format_args!("{}", self.backend))
            .field("timeout", &self.timeout)
            .field("on_failure", &self.on_failure)
            .field("breaker", &self.breaker)
            .field("remembered", &self.remembered)
            .field("remembered_for", &self.remembered_for)
            .field("coalesce", &self.coalesce)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
