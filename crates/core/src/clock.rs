//! Time as the limiter counts it: whole microseconds since the Unix epoch, and who is asked for it.
//!
//! A decision asks for the time once and passes the answer down. A backend that has a clock of its
//! own (Redis) uses that one; every backend takes a [`Timestamp`] instead when it is driven in
//! virtual time.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment: microseconds since the Unix epoch.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::Timestamp;
///
/// let start = Timestamp::from_micros(1_700_000_000_000_000);
/// assert_eq!(start + Duration::from_millis(5), Timestamp::from_micros(1_700_000_000_005_000));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// A moment so many microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at the last representable moment.
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(micros(wait)))
    }
}

/// Saturates at the epoch.
impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, wait: Duration) -> Self {
        Self(self.0.saturating_sub(micros(wait)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Somebody who knows what time it is.
///
/// # Behavior
/// - [`now`](Clock::now) never blocks and never fails.
/// - It may move back (a wall clock does); every algorithm bounds what that can do.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// The wall clock of the operating system.
///
/// Stores without a clock of their own are counted by it, so the processes that share one must run
/// a time service: what a skew of up to a minute can do is bounded and never hands out quota twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(micros(since))
    }
}

/// A clock that moves only when told: for tests, simulations and replays.
///
/// Clones share the time.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::new(Timestamp::from_micros(1_000));
/// clock.advance(Duration::from_micros(500));
/// assert_eq!(clock.now(), Timestamp::from_micros(1_500));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(start.0)))
    }

    /// Moves forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros(by), Ordering::SeqCst);
    }

    /// Moves anywhere, also back.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
