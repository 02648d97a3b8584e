//! Token bucket by virtual scheduling (the generic cell rate algorithm, ITU-T I.371).
//!
//! The only state is `tat`, the moment the bucket is full again. Time is counted in units of which
//! `n` come back each tick and one token is `p`, so that no rate needs a fraction.

use super::State;
use crate::Quota;

/// A bucket at `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Units missing until full. More than a full bucket where the state is ahead of now.
    pub debt: u128,
    /// See [`super::Meter::moved`].
    pub moved: bool,
}

impl Meter {
    pub(super) fn settle(quota: &Quota, stored: Option<&State>, now: u64) -> Self {
        let elapsed = elapsed_units(quota, now);
        let debt = tat(quota, stored).saturating_sub(elapsed);
        let full = u128::from(quota.units_when_full());
        let slack = u128::from(quota.slack_ticks()) * u128::from(quota.units_per_tick());
        if debt > full + slack {
            return Self {
                debt: full,
                moved: true,
            };
        }
        Self { debt, moved: false }
    }

    pub(super) fn available(&self, quota: &Quota) -> u64 {
        let level = u128::from(quota.units_when_full()).saturating_sub(self.debt);
        // The level is at most 2^52, so this loses nothing.
        level as u64 / quota.units_per_token()
    }

    pub(super) fn charge(&mut self, quota: &Quota, cost: u64) {
        self.debt += units(quota, cost);
    }

    pub(super) fn refund(&mut self, quota: &Quota, cost: u64) -> bool {
        let before = self.debt;
        self.debt = before.saturating_sub(units(quota, cost));
        self.debt != before
    }

    pub(super) fn state(&self, quota: &Quota, now: u64) -> State {
        State::TokenBucket {
            tick: quota.tick_micros(),
            n: quota.units_per_tick(),
            tat: elapsed_units(quota, now) + self.debt,
        }
    }

    /// The moment, in microseconds, at which `cost` is there; `None` if it never is.
    pub(super) fn fits_at(&self, quota: &Quota, now: u64, cost: u64) -> Option<u128> {
        if cost > quota.capacity() {
            return None;
        }
        let room = u128::from(quota.units_when_full()) - units(quota, cost);
        Some(paid_at(quota, now, self.debt.saturating_sub(room)))
    }

    /// The moment it is full again.
    pub(super) fn resets_at(&self, quota: &Quota, now: u64) -> u128 {
        paid_at(quota, now, self.debt)
    }
}

fn units(quota: &Quota, cost: u64) -> u128 {
    u128::from(cost) * u128::from(quota.units_per_token())
}

/// `t * n`: now, in units.
fn elapsed_units(quota: &Quota, now: u64) -> u128 {
    u128::from(quota.tick_of(now)) * u128::from(quota.units_per_tick())
}

/// The moment at which so many units have come back: now if there are none to wait for.
fn paid_at(quota: &Quota, now: u64, debt: u128) -> u128 {
    if debt == 0 {
        return u128::from(now);
    }
    let ticks = debt.div_ceil(u128::from(quota.units_per_tick()));
    (u128::from(quota.tick_of(now)) + ticks) * u128::from(quota.tick_micros())
}

/// The stored `tat` in this quota's units: a bucket of another rate keeps its time until full.
fn tat(quota: &Quota, stored: Option<&State>) -> u128 {
    let Some(State::TokenBucket { tick, n, tat }) = stored else {
        return 0;
    };
    if (*tick, *n) == (quota.tick_micros(), quota.units_per_tick()) {
        return *tat;
    }
    // Saturating, since a store may hold anything: such a bucket is far ahead, so it is brought back.
    let full_at = tat
        .div_ceil(u128::from(*n))
        .saturating_mul(u128::from(*tick));
    full_at
        .div_ceil(u128::from(quota.tick_micros()))
        .saturating_mul(u128::from(quota.units_per_tick()))
}
