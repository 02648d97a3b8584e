//! Settings.

use std::fmt;
use std::sync::Arc;

use tollgate_core::Clock;

use crate::MemoryBackend;
use crate::clock::{MonotonicClock, Time};
use crate::table::MAX_ENTRIES;

/// Builds a [`MemoryBackend`].
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Cost, ManualClock, Policy};
/// use tollgate_memory::MemoryBackend;
///
/// let clock = ManualClock::default();
/// let backend = MemoryBackend::builder().max_keys(10_000).clock(clock.clone()).build();
/// let policy = Policy::new("search", ["1/s".parse()?])?;
/// assert!(backend.try_acquire(&policy, "alice", Cost::ONE).allowed());
/// assert!(!backend.try_acquire(&policy, "alice", Cost::ONE).allowed());
/// clock.advance(Duration::from_secs(1));
/// assert!(backend.try_acquire(&policy, "alice", Cost::ONE).allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct MemoryBackendBuilder {
    max_keys: u64,
    clock: Option<Arc<dyn Clock>>,
}

impl MemoryBackendBuilder {
    /// The most records to hold: 1,000,000 unless set, at least 1, at most 134,217,726 (2^27 - 2).
    ///
    /// Address space for all of them is reserved at once (about 70 bytes each); memory is used as
    /// they come.
    pub fn max_keys(mut self, max_keys: u64) -> Self {
        self.max_keys = max_keys.clamp(1, MAX_ENTRIES);
        self
    }

    /// Counts by this clock, which may move back, instead of a monotonic one.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// The backend.
    #[must_use]
    pub fn build(self) -> MemoryBackend {
        let time = match self.clock {
            Some(clock) => Time::Given(clock),
            None => Time::Own(MonotonicClock::new()),
        };
        MemoryBackend::with(time, self.max_keys)
    }
}

impl Default for MemoryBackendBuilder {
    fn default() -> Self {
        Self {
            max_keys: 1_000_000,
            clock: None,
        }
    }
}

impl fmt::Debug for MemoryBackendBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackendBuilder")
            .field("max_keys", &self.max_keys)
            .field("clock", &self.clock)
            .finish()
    }
}
