//! A quota: so much per period, counted by one of four algorithms, exactly.
//!
//! Everything that can be known beforehand is worked out when a quota is built: the tick its time
//! is counted in and, for the token bucket, how many units a token is and how many come back each
//! tick. Counting is then plain integer arithmetic that stays exact even in a store that counts in
//! doubles (levels and counts never pass 2^52). A quota for which no such tick exists is refused,
//! with an error that names a close one that works.

mod error;
mod nearest;
#[cfg(feature = "serde")]
mod serde;
mod snippet;
#[cfg(test)]
mod tests;
mod text;

use std::num::NonZeroU32;
use std::time::Duration;

pub use error::{QuotaError, QuotaFault};

/// The largest number that a limit, a period in microseconds or a level may be: 2^52.
///
/// Half of what a double holds exactly, so that sums of two such numbers are exact as well.
pub const MAX_EXACT: u64 = 1 << 52;

/// The ticks that time may be counted in, in microseconds, finest first.
pub(crate) const TICKS: [u64; 3] = [1, 1_000, 1_000_000];

/// How a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket of `burst` tokens that refills continuously at `limit` a period (the GCRA).
    /// No window, so nobody gets twice the limit across an edge. One number of state.
    TokenBucket,
    /// Two windows, the previous one weighted by the part of it still inside the period.
    /// Three numbers of state; at most `limit` by that estimate.
    SlidingWindow,
    /// Windows aligned to the epoch. Two numbers of state; up to twice the limit across an edge.
    FixedWindow,
    /// Every admission is remembered for a period. Never above the limit in any period at all;
    /// state grows with the limit.
    SlidingLog,
}

impl Algorithm {
    /// The name used in text, JSON and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::SlidingWindow => "sliding_window",
            Self::FixedWindow => "fixed_window",
            Self::SlidingLog => "sliding_log",
        }
    }

    /// All of them, in the order of their names here.
    pub const ALL: [Self; 4] = [
        Self::TokenBucket,
        Self::SlidingWindow,
        Self::FixedWindow,
        Self::SlidingLog,
    ];
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// So many per period.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::Quota;
///
/// const LOGIN: Quota = match Quota::sliding_window(5, Duration::from_secs(900)) {
///     Ok(quota) => quota,
///     Err(_) => panic!("5 in 15 minutes can be counted"),
/// };
/// let search = Quota::token_bucket(100, Duration::from_secs(60))?.with_burst(20)?;
/// assert_eq!(search, "100/60s token_bucket burst=20".parse()?);
/// assert_eq!(search.capacity(), 20);
/// assert_eq!(LOGIN.to_string(), "5/15m sliding_window");
/// # Ok::<(), tollgate_core::QuotaError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    algorithm: Algorithm,
    limit: u64,
    period: u64,
    burst: u64,
    /// Microseconds a tick.
    tick: u64,
    /// Token bucket: units a token. The others: ticks a period.
    p: u64,
    /// Token bucket: units that come back each tick. The others: 1.
    n: u64,
}

impl Quota {
    /// `limit` tokens come back evenly over each `period`; the bucket holds `limit` of them unless
    /// [`with_burst`](Self::with_burst) says otherwise.
    ///
    /// # Errors
    /// When a number is out of range, or the rate cannot be counted exactly.
    pub const fn token_bucket(limit: u64, period: Duration) -> Result<Self, QuotaError> {
        Self::new(Algorithm::TokenBucket, limit, period)
    }

    /// At most `limit` by the estimate of two windows.
    ///
    /// # Errors
    /// When a number is out of range, or the windows cannot be weighted exactly.
    pub const fn sliding_window(limit: u64, period: Duration) -> Result<Self, QuotaError> {
        Self::new(Algorithm::SlidingWindow, limit, period)
    }

    /// At most `limit` in each window of the epoch.
    ///
    /// # Errors
    /// When a number is out of range.
    pub const fn fixed_window(limit: u64, period: Duration) -> Result<Self, QuotaError> {
        Self::new(Algorithm::FixedWindow, limit, period)
    }

    /// At most `limit` in any period at all.
    ///
    /// # Errors
    /// When a number is out of range.
    pub const fn sliding_log(limit: u64, period: Duration) -> Result<Self, QuotaError> {
        Self::new(Algorithm::SlidingLog, limit, period)
    }

    /// A quota by any algorithm.
    ///
    /// # Errors
    /// `limit` must be 1 to 2^52, `period` whole microseconds from 1 ms to 2^52 us, and the rate
    /// countable exactly.
    pub const fn new(
        algorithm: Algorithm,
        limit: u64,
        period: Duration,
    ) -> Result<Self, QuotaError> {
        Self::build(algorithm, limit, period, None)
    }

    /// A token bucket of `limit` a second. Every `u32` can be counted.
    #[must_use]
    pub const fn per_second(limit: NonZeroU32) -> Self {
        Self::per(limit, 1)
    }

    /// A token bucket of `limit` a minute. Every `u32` can be counted.
    #[must_use]
    pub const fn per_minute(limit: NonZeroU32) -> Self {
        Self::per(limit, 60)
    }

    /// A token bucket of `limit` an hour. Every `u32` can be counted.
    #[must_use]
    pub const fn per_hour(limit: NonZeroU32) -> Self {
        Self::per(limit, 3_600)
    }

    const fn per(limit: NonZeroU32, seconds: u64) -> Self {
        match Self::token_bucket(limit.get() as u64, Duration::from_secs(seconds)) {
            Ok(quota) => quota,
            Err(_) => panic!("a u32 a second, minute or hour fits a tick of 1 s at the latest"),
        }
    }

    /// The same rate with a bucket of `burst` tokens.
    ///
    /// # Errors
    /// When `burst` is 0 or above 2^52, the quota is no token bucket, or the rate cannot be counted
    /// exactly with so large a bucket.
    pub const fn with_burst(self, burst: u64) -> Result<Self, QuotaError> {
        Self::build(self.algorithm, self.limit, self.period(), Some(burst))
    }

    const fn build(
        algorithm: Algorithm,
        limit: u64,
        period: Duration,
        burst: Option<u64>,
    ) -> Result<Self, QuotaError> {
        let nanos = period.as_nanos();
        let fault = if limit == 0 {
            Some(QuotaFault::LimitIsZero)
        } else if limit > MAX_EXACT {
            Some(QuotaFault::LimitTooLarge)
        } else if !nanos.is_multiple_of(1_000) {
            Some(QuotaFault::PeriodNotWholeMicros)
        } else if nanos < 1_000_000 {
            Some(QuotaFault::PeriodTooShort)
        } else if nanos > MAX_EXACT as u128 * 1_000 {
            Some(QuotaFault::PeriodTooLong)
        } else {
            match burst {
                Some(_) if !matches!(algorithm, Algorithm::TokenBucket) => {
                    Some(QuotaFault::BurstWithoutBucket)
                }
                Some(0) => Some(QuotaFault::BurstIsZero),
                Some(burst) if burst > MAX_EXACT => Some(QuotaFault::BurstTooLarge),
                _ => None,
            }
        };
        if let Some(fault) = fault {
            return Err(QuotaError::new(fault, algorithm, limit, period, burst));
        }
        let micros = (nanos / 1_000) as u64;
        let depth = match burst {
            Some(burst) => burst,
            None => limit,
        };
        match units(algorithm, limit, micros, depth) {
            Some((tick, p, n)) => Ok(Self {
                algorithm,
                limit,
                period: micros,
                burst: depth,
                tick,
                p,
                n,
            }),
            None => Err(QuotaError::new(
                QuotaFault::NotExact,
                algorithm,
                limit,
                period,
                burst,
            )),
        }
    }

    /// How it counts.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How many per period.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period)
    }

    /// The most that can ever be admitted at once: `burst` for a token bucket, else `limit`.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.burst
    }

    /// Microseconds a tick: time is counted in these. For backends.
    #[must_use]
    pub const fn tick_micros(&self) -> u64 {
        self.tick
    }

    /// Token bucket: how many units one token is. For backends.
    #[must_use]
    pub const fn units_per_token(&self) -> u64 {
        self.p
    }

    /// Token bucket: how many units come back each tick. For backends.
    #[must_use]
    pub const fn units_per_tick(&self) -> u64 {
        self.n
    }

    /// Token bucket: the units of a full bucket, at most 2^52. For backends.
    #[must_use]
    pub const fn units_when_full(&self) -> u64 {
        self.burst.saturating_mul(self.p)
    }

    /// Windows and log: the period in ticks. For backends.
    #[must_use]
    pub const fn period_ticks(&self) -> u64 {
        self.period / self.tick
    }

    /// The tick that `micros` lies in.
    #[must_use]
    pub const fn tick_of(&self, micros: u64) -> u64 {
        micros / self.tick
    }

    /// How far, in ticks, state may be ahead of now before the clock is taken to have moved:
    /// 60 s, and for windows and the log at least one period.
    #[must_use]
    pub const fn slack_ticks(&self) -> u64 {
        let minute = 60_000_000 / self.tick;
        match self.algorithm {
            Algorithm::TokenBucket => minute,
            _ if self.p > minute => self.p,
            _ => minute,
        }
    }
}

/// The first tick in which counting is exact, as (tick, p, n).
const fn units(
    algorithm: Algorithm,
    limit: u64,
    period: u64,
    burst: u64,
) -> Option<(u64, u64, u64)> {
    let mut i = 0;
    while i < TICKS.len() {
        let tick = TICKS[i];
        if period.is_multiple_of(tick) {
            let ticks = period / tick;
            match algorithm {
                Algorithm::TokenBucket => {
                    let g = gcd(limit, ticks);
                    let (p, n) = (ticks / g, limit / g);
                    if burst as u128 * p as u128 <= MAX_EXACT as u128 {
                        return Some((tick, p, n));
                    }
                }
                Algorithm::SlidingWindow => {
                    if limit as u128 * ticks as u128 <= MAX_EXACT as u128 {
                        return Some((tick, ticks, 1));
                    }
                }
                Algorithm::FixedWindow | Algorithm::SlidingLog => return Some((1, period, 1)),
            }
        }
        i += 1;
    }
    None
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
