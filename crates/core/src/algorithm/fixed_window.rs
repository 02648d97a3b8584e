//! Fixed window: a count for each window of the epoch.

use super::State;
use crate::Quota;

/// The window at `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Its number. It may be one that has not begun yet.
    pub window: u64,
    /// What it has counted.
    pub count: u64,
    /// See [`super::Meter::moved`].
    pub moved: bool,
}

impl Meter {
    pub(super) fn settle(quota: &Quota, stored: Option<&State>, now: u64) -> Self {
        let (t, ticks) = (quota.tick_of(now), quota.period_ticks());
        let here = Self {
            window: t / ticks,
            count: 0,
            moved: false,
        };
        let Some(&State::FixedWindow {
            period,
            window,
            count,
        }) = stored
        else {
            return here;
        };
        if u128::from(period) != quota.period().as_micros() || window < here.window {
            return here;
        }
        let ahead = (u128::from(window) * u128::from(ticks)).saturating_sub(u128::from(t));
        if ahead > u128::from(quota.slack_ticks()) {
            return Self {
                count,
                moved: true,
                ..here
            };
        }
        Self {
            window,
            count,
            moved: false,
        }
    }

    pub(super) fn available(&self, quota: &Quota) -> u64 {
        quota.limit().saturating_sub(self.count)
    }

    pub(super) fn charge(&mut self, _: &Quota, cost: u64) {
        self.count += cost;
    }

    pub(super) fn refund(&mut self, quota: &Quota, cost: u64, charged_at: u64) -> bool {
        if quota.tick_of(charged_at) / quota.period_ticks() != self.window {
            return false;
        }
        let before = self.count;
        self.count = before.saturating_sub(cost);
        self.count != before
    }

    pub(super) fn state(&self, quota: &Quota) -> State {
        State::FixedWindow {
            period: quota.period_ticks() * quota.tick_micros(),
            window: self.window,
            count: self.count,
        }
    }

    /// The moment, in microseconds, at which `cost` fits; `None` if it never does.
    pub(super) fn fits_at(&self, quota: &Quota, cost: u64) -> Option<u128> {
        (cost <= quota.limit()).then(|| self.ends_at(quota))
    }

    /// The moment from which nothing counts any more: now or earlier if nothing does.
    pub(super) fn resets_at(&self, quota: &Quota) -> u128 {
        if self.count == 0 {
            0
        } else {
            self.ends_at(quota)
        }
    }

    fn ends_at(&self, quota: &Quota) -> u128 {
        (u128::from(self.window) + 1) * quota.period().as_micros()
    }
}
