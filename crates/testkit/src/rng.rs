//! A seeded generator, so that a failure can be run again.

use std::time::Duration;

use tollgate_core::{Algorithm, Cost, Quota, Timestamp};

/// Pseudo-random numbers (SplitMix64) that depend on the seed alone.
///
/// ```
/// use tollgate_testkit::Rng;
///
/// assert_eq!(Rng::new(7).below(1_000), Rng::new(7).below(1_000));
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// Periods, in microseconds, that meet every tick and every unit.
const PERIODS: [u64; 8] = [
    1_000,
    10_000,
    123_457,
    1_000_000,
    7_000_000,
    60_000_000,
    900_000_000,
    3_600_000_000,
];

impl Rng {
    /// Numbers of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0 to `bound - 1`; 0 for a bound of 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n`.
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A small quota of this algorithm.
    pub fn quota(&mut self, algorithm: Algorithm) -> Quota {
        let limit = self.between(1, 40);
        let period = Duration::from_micros(PERIODS[self.below(PERIODS.len() as u64) as usize]);
        let quota = Quota::new(algorithm, limit, period).expect("small quotas can be counted");
        if algorithm == Algorithm::TokenBucket && self.one_in(2) {
            let burst = self.between(1, 2 * limit);
            return quota
                .with_burst(burst)
                .expect("small quotas can be counted");
        }
        quota
    }

    /// A cost around what the quota allows: mostly small, at times the whole or too much, at times
    /// "as much as there is".
    pub fn cost(&mut self, capacity: u64) -> Cost {
        let cost = match self.below(8) {
            0 => capacity,
            1 => capacity + 1,
            2 => self.between(1, capacity),
            _ => 1,
        };
        let max = if self.one_in(5) {
            cost + self.below(capacity + 1)
        } else {
            cost
        };
        Cost::range(cost, max).expect("max is not below the cost, which is not 0")
    }

    /// A moment of this century.
    pub fn moment(&mut self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000 + self.below(1_000_000_000_000))
    }

    /// How long to wait before the next call: often nothing, else about as long as matters to a
    /// quota of this period, its edges included.
    pub fn pause(&mut self, now: Timestamp, period: Duration) -> Duration {
        let period = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        let to_edge = period - now.as_micros() % period;
        Duration::from_micros(match self.below(9) {
            0..=2 => 0,
            3 => 1,
            4 => to_edge,
            5 => to_edge - 1,
            6 => self.below(2 * period),
            _ => self.below(period / 4 + 1),
        })
    }
}
