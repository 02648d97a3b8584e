//! Settings of a limit on concurrency.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::MAX_NAME;

use super::slots::Slots;
use super::wait::Waiters;
use super::{Concurrency, ConcurrencyError, Inner};
use crate::time::FOREVER;
use crate::{FailurePolicy, Limiter};

/// Below this nothing can be renewed in time over a network.
const SHORTEST_TTL: Duration = Duration::from_millis(100);

/// Builds a [`Concurrency`]; [`Limiter::concurrency`] begins one.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limiter;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
/// let exports = limiter
///     .concurrency("exports", 2)
///     .wait(Duration::from_secs(5))
///     .ttl(Duration::from_secs(30))
///     .per_client()
///     .build()?;
/// let permit = exports.acquire("alice").await?;
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct ConcurrencyBuilder {
    limiter: Limiter,
    name: Box<str>,
    #[cfg(feature = "http")]
    named: bool,
    slots: u32,
    ttl: Duration,
    wait: Duration,
    retry_after: Duration,
    per_client: bool,
    max_waiters: usize,
    on_failure: Option<FailurePolicy>,
    replace: bool,
}

impl ConcurrencyBuilder {
    pub(crate) fn new(limiter: Limiter, name: &str, slots: u32) -> Self {
        Self {
            limiter,
            name: name.into(),
            #[cfg(feature = "http")]
            named: true,
            slots,
            ttl: Duration::from_secs(60),
            wait: Duration::ZERO,
            retry_after: Duration::from_secs(1),
            per_client: false,
            max_waiters: 1_024,
            on_failure: None,
            replace: false,
        }
    }

    /// Slots that are kept under their number.
    #[cfg(feature = "http")]
    pub(crate) fn unnamed(limiter: Limiter, slots: u32) -> Self {
        Self {
            named: false,
            ..Self::new(limiter, &format!("{slots} in flight"), slots)
        }
    }

    #[cfg(feature = "http")]
    pub(crate) const fn is_named(&self) -> bool {
        self.named
    }

    /// How long a slot is held without a renewal, and so how long the slot of a dead process stays
    /// taken. Default: 60 s; at least 100 ms, at most a year. It is renewed every third of it.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for a slot when all are taken. Default: not at all.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How soon those may come back who found all slots taken. Default: 1 s.
    pub const fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = wait;
        self
    }

    /// Keys are clients, each with slots of its own: who finds them taken has too many himself.
    pub const fn per_client(mut self) -> Self {
        self.per_client = true;
        self
    }

    /// How many callers of this process may wait at one time; one more is refused at once.
    /// Default: 1,024.
    pub const fn max_waiters(mut self, max: usize) -> Self {
        self.max_waiters = max;
        self
    }

    /// What happens when the store does not answer. Default: as the limiter does. Open and local are
    /// the same here: this process counts its own slots.
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.on_failure = Some(policy);
        self
    }

    /// The name may have had another number of slots, which this one takes the place of: for limits
    /// that change while the program runs. Permits that are out stay out, and count.
    pub const fn replace(mut self) -> Self {
        self.replace = true;
        self
    }

    /// The limit. The same name with the same number of slots shares the slots, in this process and
    /// all others.
    ///
    /// # Errors
    /// [`ConcurrencyError`]: the store cannot hold leases (memcached) or not so many (DynamoDB), or a
    /// setting is wrong.
    pub fn build(self) -> Result<Concurrency, ConcurrencyError> {
        let name = self.name;
        let printable = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if name.is_empty() || name.len() > MAX_NAME || !printable {
            return Err(ConcurrencyError::Name(name));
        }
        let Some(slots) = NonZeroU32::new(self.slots) else {
            return Err(ConcurrencyError::NoSlots(name));
        };
        if !(SHORTEST_TTL..=FOREVER).contains(&self.ttl) {
            let ttl = self.ttl;
            return Err(ConcurrencyError::Ttl { name, ttl });
        }
        let Some(store) = Slots::of(&self.limiter) else {
            let store = self.limiter.backend().to_string();
            return Err(ConcurrencyError::Unsupported { name, store });
        };
        if let Err(source) = store.accepts(slots) {
            return Err(ConcurrencyError::TooMany { name, source });
        }
        if self.replace {
            self.limiter.replace_slots(&name, slots);
        } else if let Some(known) = self.limiter.register_slots(&name, slots)
            && known != slots
        {
            return Err(ConcurrencyError::Taken {
                name,
                known: known.get(),
                slots: slots.get(),
            });
        }
        let rule: Box<str> = format!("concurrency:{name}").into();
        if let Some(policy) = self.on_failure {
            self.limiter.fallback().set_rule(&rule, policy);
        }
        Ok(Concurrency(Arc::new(Inner {
            limiter: self.limiter,
            name,
            rule,
            slots,
            ttl: self.ttl,
            wait: self.wait,
            retry_after: self.retry_after,
            per_client: self.per_client,
            waiters: Waiters::new(self.max_waiters),
            store,
        })))
    }
}
