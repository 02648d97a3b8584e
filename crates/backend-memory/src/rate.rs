//! A plain token bucket in 64-bit numbers: the same answers as `tollgate_core::algorithm`, for the
//! policies that nearly everybody has, in a few nanoseconds.
//!
//! A policy qualifies if a single token bucket is all it has, its tick is 1 us and its `n` small
//! enough that a moment in units fits 62 bits. All others are counted by the core's own steps.

use std::time::Duration;

use tollgate_core::{Algorithm, Cost, Decision, Policy, QuotaAnswer, Timestamp};

use crate::hash::SPARE_BITS;

/// The largest `n`: what an entry has bits for.
const MAX_N: u64 = 1 << SPARE_BITS;

/// The last moment (in 2112) that is counted this way.
const MAX_NOW: u64 = 1 << 52;

/// How far, in microseconds, state may be ahead of now before the clock is taken to have moved.
const SLACK: u64 = 60_000_000;

/// What is stored: `tat`, the moment the bucket is full again, in units of which `n` are a
/// microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) tat: u64,
    pub(crate) n: u64,
}

impl Stored {
    /// Whether it decides like none.
    #[inline]
    pub(crate) fn is_idle(self, now: u64) -> bool {
        self.tat <= now.saturating_mul(self.n)
    }

    /// The moment from which it does.
    pub(crate) fn idle_at(self) -> u64 {
        self.tat.div_ceil(self.n)
    }
}

/// The numbers of a token bucket, under the names of `docs/algorithms.md`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) n: u64,
    p: u64,
    full: u64,
    capacity: u64,
}

impl Rate {
    /// `None` if the policy, or the moment, does not qualify.
    #[inline]
    pub(crate) fn of(policy: &Policy, now: u64) -> Option<Self> {
        let [quota] = policy.quotas() else {
            return None;
        };
        let n = quota.units_per_tick();
        if quota.algorithm() != Algorithm::TokenBucket
            || quota.tick_micros() != 1
            || n > MAX_N
            || now > MAX_NOW
        {
            return None;
        }
        Some(Self {
            n,
            p: quota.units_per_token(),
            full: quota.units_when_full(),
            capacity: quota.capacity(),
        })
    }

    /// The bucket at `now`.
    #[inline]
    pub(crate) fn settle(&self, stored: Option<Stored>, now: u64) -> Bucket {
        let elapsed = now * self.n;
        let debt = stored.map_or(0, |stored| self.tat(stored).saturating_sub(elapsed));
        let moved = debt > self.full + SLACK * self.n;
        Bucket {
            elapsed,
            debt: if moved { self.full } else { debt },
            moved,
        }
    }

    /// A bucket of another rate keeps its time until full.
    #[inline]
    fn tat(&self, stored: Stored) -> u64 {
        if stored.n == self.n {
            stored.tat
        } else {
            stored.idle_at() * self.n
        }
    }

    /// Units of `cost` tokens; more than any bucket holds if that does not fit.
    #[inline]
    fn units(&self, cost: u64) -> u64 {
        cost.saturating_mul(self.p)
    }

    #[inline]
    fn micros(&self, units: u64) -> Duration {
        Duration::from_micros(units.div_ceil(self.n))
    }
}

/// A bucket at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    elapsed: u64,
    debt: u64,
    /// Whether the clock had moved back so far that the bucket was brought to now.
    pub(crate) moved: bool,
}

impl Bucket {
    /// What to store for it.
    #[inline]
    pub(crate) fn tat(&self) -> u64 {
        self.elapsed + self.debt
    }

    #[inline]
    fn level(&self, rate: &Rate) -> u64 {
        rate.full.saturating_sub(self.debt)
    }

    /// Takes what `cost` asks for; 0 if that is not there.
    #[inline]
    pub(crate) fn acquire(&mut self, rate: &Rate, cost: Cost) -> u64 {
        if !self.has(rate, cost) {
            return 0;
        }
        let granted = if cost.min() == cost.max() {
            cost.min()
        } else {
            (self.level(rate) / rate.p).min(cost.max())
        };
        self.debt += rate.units(granted);
        granted
    }

    #[inline]
    pub(crate) fn has(&self, rate: &Rate, cost: Cost) -> bool {
        rate.units(cost.min()) <= self.level(rate)
    }

    /// Gives back; whether that changed anything.
    pub(crate) fn refund(&mut self, rate: &Rate, cost: u64) -> bool {
        let before = self.debt;
        self.debt = before.saturating_sub(rate.units(cost));
        self.debt != before
    }

    /// The answer to a request for `cost`.
    #[inline(always)]
    pub(crate) fn answer(
        &self,
        rate: &Rate,
        now: u64,
        cost: u64,
        allowed: bool,
        granted: u64,
    ) -> Decision {
        let remaining = self.level(rate) / rate.p;
        // `cost` is at most the capacity here, so its units fit.
        let wait = |cost: u64| rate.micros(self.debt.saturating_sub(rate.full - rate.units(cost)));
        Decision::of_one(
            Timestamp::from_micros(now),
            QuotaAnswer {
                allowed,
                granted,
                remaining,
                retry_after: (!allowed && cost <= rate.capacity).then(|| wait(cost)),
                reset_after: rate.micros(self.debt),
                more_after: (remaining < rate.capacity).then(|| wait(remaining + 1)),
            },
        )
    }
}

#[cfg(test)]
mod tests;
