//! The four algorithms as pure steps over plain integers: no clock, no I/O.
//!
//! `docs/algorithms.md` defines every decision; each module here is one section of it. A stored
//! [`State`] is first settled at `now` into a [`Meter`], which answers questions and takes charges
//! without touching what is stored; only [`Meter::store`] changes it. So a refusal stores nothing,
//! a peek cannot write, and several quotas are charged all or nothing.

pub mod fixed_window;
pub mod sliding_log;
pub mod sliding_window;
mod step;
#[cfg(test)]
mod tests;
pub mod token_bucket;

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Algorithm, Quota, QuotaAnswer};

pub use step::{Applied, Operation, apply, apply_batch};

/// What is stored for one quota, with enough of the quota's shape to tell what it means after the
/// quota was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `docs/algorithms.md`")]
pub enum State {
    /// `tat` is the moment the bucket is full again, in units: `n` of them a tick.
    TokenBucket { tick: u64, n: u64, tat: u128 },
    /// Counts of window number `window` of the epoch and of the one before.
    SlidingWindow {
        period: u64,
        window: u64,
        previous: u64,
        current: u64,
    },
    /// The count of window number `window` of the epoch.
    FixedWindow {
        period: u64,
        window: u64,
        count: u64,
    },
    /// Admissions, oldest first, one for each microsecond that has any; `total` is their sum.
    SlidingLog {
        period: u64,
        total: u64,
        admissions: VecDeque<Admission>,
    },
}

/// What a sliding log remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// When, in microseconds.
    pub at: u64,
    /// How much.
    pub cost: u64,
}

impl State {
    /// The moment, in microseconds, from which this state decides like none.
    #[must_use]
    pub fn expires_at(&self) -> u64 {
        let end = match self {
            Self::TokenBucket { tick, n, tat } => tat
                .div_ceil(u128::from(*n))
                .saturating_mul(u128::from(*tick)),
            Self::SlidingWindow {
                period,
                window,
                previous,
                current,
            } => {
                let windows = match (previous, current) {
                    (0, 0) => 0,
                    (_, 0) => 1,
                    _ => 2,
                };
                (u128::from(*window) + windows) * u128::from(*period)
            }
            Self::FixedWindow { period, window, .. } => {
                (u128::from(*window) + 1) * u128::from(*period)
            }
            Self::SlidingLog {
                period, admissions, ..
            } => admissions
                .back()
                .map_or(0, |newest| u128::from(newest.at) + u128::from(*period)),
        };
        u64::try_from(end).unwrap_or(u64::MAX)
    }
}

/// The state of one quota as it is at `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// See [`token_bucket`].
    TokenBucket(token_bucket::Meter),
    /// See [`sliding_window`].
    SlidingWindow(sliding_window::Meter),
    /// See [`fixed_window`].
    FixedWindow(fixed_window::Meter),
    /// See [`sliding_log`].
    SlidingLog(sliding_log::Meter),
}

/// Calls the same function of whichever algorithm it is.
macro_rules! each {
    ($meter:expr, $m:ident => $call:expr) => {
        match $meter {
            Meter::TokenBucket($m) => $call,
            Meter::SlidingWindow($m) => $call,
            Meter::FixedWindow($m) => $call,
            Meter::SlidingLog($m) => $call,
        }
    };
}

impl Meter {
    /// Brings stored state to `now` (microseconds). State of another shape reads as absent.
    #[must_use]
    pub fn settle(quota: &Quota, stored: Option<&State>, now: u64) -> Self {
        match quota.algorithm() {
            Algorithm::TokenBucket => {
                Self::TokenBucket(token_bucket::Meter::settle(quota, stored, now))
            }
            Algorithm::SlidingWindow => {
                Self::SlidingWindow(sliding_window::Meter::settle(quota, stored, now))
            }
            Algorithm::FixedWindow => {
                Self::FixedWindow(fixed_window::Meter::settle(quota, stored, now))
            }
            Algorithm::SlidingLog => {
                Self::SlidingLog(sliding_log::Meter::settle(quota, stored, now))
            }
        }
    }

    /// How much is available.
    #[must_use]
    pub fn available(&self, quota: &Quota) -> u64 {
        each!(self, m => m.available(quota))
    }

    /// Takes `cost`, which must be available.
    pub fn charge(&mut self, quota: &Quota, cost: u64) {
        each!(self, m => m.charge(quota, cost));
    }

    /// Whether the clock had moved back so far that the state was brought to now, which must be
    /// stored whatever the decision.
    #[must_use]
    pub fn moved(&self) -> bool {
        each!(self, m => m.moved)
    }

    /// Gives back what was charged at `charged_at`; whether that changed anything.
    pub fn refund(
        &mut self,
        quota: &Quota,
        stored: Option<&State>,
        cost: u64,
        charged_at: u64,
    ) -> bool {
        match self {
            Self::TokenBucket(m) => m.refund(quota, cost),
            Self::SlidingWindow(m) => m.refund(quota, cost, charged_at),
            Self::FixedWindow(m) => m.refund(quota, cost, charged_at),
            Self::SlidingLog(m) => m.refund(sliding_log::admissions(stored), cost, charged_at),
        }
    }

    /// Writes what it has become.
    pub fn store(&self, quota: &Quota, stored: &mut Option<State>, now: u64) {
        match self {
            Self::TokenBucket(m) => *stored = Some(m.state(quota, now)),
            Self::SlidingWindow(m) => *stored = Some(m.state(quota)),
            Self::FixedWindow(m) => *stored = Some(m.state(quota)),
            Self::SlidingLog(m) => m.store(quota, stored),
        }
    }

    /// When a charge made now counts as made, in microseconds.
    #[must_use]
    pub fn charged_at(&self, now: u64) -> u64 {
        match self {
            Self::SlidingLog(m) => m.stamp,
            _ => now,
        }
    }

    /// The answer to a request for `cost` that was `granted` so much.
    #[must_use]
    pub fn answer(
        &self,
        quota: &Quota,
        stored: Option<&State>,
        now: u64,
        request: Request,
    ) -> QuotaAnswer {
        let remaining = self.available(quota);
        let Request {
            cost,
            allowed,
            granted,
        } = request;
        let fits = |cost: u64| match self {
            Self::TokenBucket(m) => m.fits_at(quota, now, cost),
            Self::SlidingWindow(m) => m.fits_at(quota, cost),
            Self::FixedWindow(m) => m.fits_at(quota, cost),
            Self::SlidingLog(m) => m.fits_at(quota, sliding_log::admissions(stored), cost),
        };
        let reset_at = match self {
            Self::TokenBucket(m) => m.resets_at(quota, now),
            Self::SlidingWindow(m) => m.resets_at(quota),
            Self::FixedWindow(m) => m.resets_at(quota),
            Self::SlidingLog(m) => m.resets_at(quota, sliding_log::admissions(stored)),
        };
        let wait = |at: u128| {
            let micros = at.saturating_sub(u128::from(now));
            Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
        };
        let more_at = (remaining < quota.capacity())
            .then(|| fits(remaining + 1))
            .flatten()
            .map(|at| match self {
                Self::SlidingWindow(m) => at.min(m.ends_at(quota)),
                _ => at,
            });
        QuotaAnswer {
            allowed,
            granted,
            remaining,
            retry_after: if allowed { None } else { fits(cost).map(wait) },
            reset_after: wait(reset_at),
            more_after: more_at.map(wait),
        }
    }
}

/// What was asked of a quota, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The least that was asked for.
    pub cost: u64,
    /// Whether this quota admits it.
    pub allowed: bool,
    /// How much was charged.
    pub granted: u64,
}
