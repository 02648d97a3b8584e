//! Sliding window counter: two windows aligned to the epoch, the previous one weighted by the part
//! of it that the period still covers.

use super::State;
use crate::Quota;

/// The two windows at `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// The number of the current window. It may be one that has not begun yet.
    pub window: u64,
    /// Ticks since it began; 0 if it has not.
    pub elapsed: u64,
    /// The count of the window before.
    pub previous: u64,
    /// The count of this window.
    pub current: u64,
    /// See [`super::Meter::moved`].
    pub moved: bool,
}

impl Meter {
    pub(super) fn settle(quota: &Quota, stored: Option<&State>, now: u64) -> Self {
        let (t, ticks) = (quota.tick_of(now), quota.period_ticks());
        let here = Self {
            window: t / ticks,
            elapsed: t % ticks,
            previous: 0,
            current: 0,
            moved: false,
        };
        let Some(&State::SlidingWindow {
            period,
            window,
            previous,
            current,
        }) = stored
        else {
            return here;
        };
        if u128::from(period) != quota.period().as_micros() {
            return here;
        }
        if window > here.window {
            let ahead = u128::from(window) * u128::from(ticks) - u128::from(t);
            return if ahead > u128::from(quota.slack_ticks()) {
                Self {
                    previous,
                    current,
                    moved: true,
                    ..here
                }
            } else {
                Self {
                    window,
                    elapsed: 0,
                    previous,
                    current,
                    moved: false,
                }
            };
        }
        match here.window - window {
            0 => Self {
                previous,
                current,
                ..here
            },
            1 => Self {
                previous: current,
                ..here
            },
            _ => here,
        }
    }

    pub(super) fn available(&self, quota: &Quota) -> u64 {
        let ticks = u128::from(quota.period_ticks());
        let used = u128::from(self.previous) * (ticks - u128::from(self.elapsed))
            + u128::from(self.current) * ticks;
        let room = (u128::from(quota.limit()) * ticks).saturating_sub(used);
        // Room is at most 2^52, so this loses nothing.
        (room / ticks) as u64
    }

    pub(super) fn charge(&mut self, _: &Quota, cost: u64) {
        self.current += cost;
    }

    pub(super) fn refund(&mut self, quota: &Quota, cost: u64, charged_at: u64) -> bool {
        let window = quota.tick_of(charged_at) / quota.period_ticks();
        let count = if window == self.window {
            &mut self.current
        } else if window.checked_add(1) == Some(self.window) {
            &mut self.previous
        } else {
            return false;
        };
        let before = *count;
        *count = before.saturating_sub(cost);
        *count != before
    }

    pub(super) fn state(&self, quota: &Quota) -> State {
        State::SlidingWindow {
            period: quota.period_ticks() * quota.tick_micros(),
            window: self.window,
            previous: self.previous,
            current: self.current,
        }
    }

    /// The moment, in microseconds, at which `cost` fits if nobody else comes; `None` if it never
    /// does. In this window as soon as the previous one weighs little enough; else in the next one,
    /// where the current count is the one that fades; at the latest in the one after.
    pub(super) fn fits_at(&self, quota: &Quota, cost: u64) -> Option<u128> {
        let ticks = u128::from(quota.period_ticks());
        let limit = u128::from(quota.limit());
        let (cost, current) = (u128::from(cost), u128::from(self.current));
        let spare = limit.checked_sub(cost)?;
        let start = u128::from(self.window) * ticks;
        // The earliest offset into a window at which `count`, fading, leaves `room`.
        let fades = |count: u128, room: u128| {
            if count <= room {
                0
            } else {
                ticks - room * ticks / count
            }
        };
        let at = match spare.checked_sub(current) {
            Some(room) if fades(u128::from(self.previous), room) < ticks => {
                start + fades(u128::from(self.previous), room).max(u128::from(self.elapsed))
            }
            _ => start + ticks + fades(current, spare),
        };
        Some(at * u128::from(quota.tick_micros()))
    }

    /// The moment from which nothing counts any more: now or earlier if nothing does.
    pub(super) fn resets_at(&self, quota: &Quota) -> u128 {
        let windows = match (self.previous, self.current) {
            (0, 0) => return 0,
            (_, 0) => 1,
            _ => 2,
        };
        (u128::from(self.window) + windows) * quota.period().as_micros()
    }

    /// The end of this window.
    pub(super) fn ends_at(&self, quota: &Quota) -> u128 {
        (u128::from(self.window) + 1) * quota.period().as_micros()
    }
}
