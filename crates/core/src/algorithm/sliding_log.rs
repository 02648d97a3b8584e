//! Sliding log: every admission is remembered until it is a period old.
//!
//! Admissions of the same microsecond are one entry. Entries are only read here; a charge is held
//! in the meter until [`super::Meter::store`] writes it.

use std::collections::VecDeque;

use super::{Admission, State};
use crate::Quota;

/// The log at `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// How many of the oldest entries have left.
    gone: usize,
    /// The sum of those that have not, and of what was charged since.
    total: u64,
    /// What was charged since.
    charged: u64,
    /// When a charge counts as made: now, or with the newest entry if that is ahead.
    pub(super) stamp: u64,
    /// What a refund took, and from which entry.
    refunded: Option<(usize, u64)>,
    /// See [`super::Meter::moved`]. Every entry then counts as made at `stamp`.
    pub(super) moved: bool,
}

/// The entries of a stored log.
pub(super) fn admissions(stored: Option<&State>) -> Option<&VecDeque<Admission>> {
    match stored {
        Some(State::SlidingLog { admissions, .. }) => Some(admissions),
        _ => None,
    }
}

impl Meter {
    pub(super) fn settle(quota: &Quota, stored: Option<&State>, now: u64) -> Self {
        let mut meter = Self {
            gone: 0,
            total: 0,
            charged: 0,
            stamp: now,
            refunded: None,
            moved: false,
        };
        let Some(State::SlidingLog {
            period,
            total,
            admissions,
        }) = stored
        else {
            return meter;
        };
        if u128::from(*period) != quota.period().as_micros() {
            meter.gone = admissions.len();
            return meter;
        }
        meter.total = *total;
        for admission in admissions {
            if admission.at.saturating_add(*period) > now {
                break;
            }
            meter.gone += 1;
            meter.total -= admission.cost;
        }
        if let Some(newest) = admissions.back() {
            if newest.at.saturating_sub(now) > quota.slack_ticks() {
                meter.moved = true;
            } else {
                meter.stamp = now.max(newest.at);
            }
        }
        meter
    }

    pub(super) fn available(&self, quota: &Quota) -> u64 {
        quota.limit().saturating_sub(self.total)
    }

    pub(super) fn charge(&mut self, _: &Quota, cost: u64) {
        self.total += cost;
        self.charged += cost;
    }

    pub(super) fn refund(
        &mut self,
        admissions: Option<&VecDeque<Admission>>,
        cost: u64,
        charged_at: u64,
    ) -> bool {
        let (index, there) = if self.moved {
            // They all count as made now.
            (
                self.gone,
                if charged_at == self.stamp {
                    self.total
                } else {
                    0
                },
            )
        } else {
            let found = admissions.and_then(|all| {
                let index = all
                    .binary_search_by_key(&charged_at, |entry| entry.at)
                    .ok()?;
                (index >= self.gone).then(|| (index, all[index].cost))
            });
            found.unwrap_or((0, 0))
        };
        let taken = cost.min(there);
        self.total -= taken;
        self.refunded = (taken > 0).then_some((index, taken));
        taken > 0
    }

    pub(super) fn store(&self, quota: &Quota, stored: &mut Option<State>) {
        let mut admissions = match stored.take() {
            Some(State::SlidingLog { admissions, .. }) => admissions,
            _ => VecDeque::new(),
        };
        if let (Some((index, taken)), false) = (self.refunded, self.moved) {
            admissions[index].cost -= taken;
            if admissions[index].cost == 0 {
                admissions.remove(index);
            }
        }
        admissions.drain(..self.gone.min(admissions.len()));
        if self.moved {
            admissions.clear();
            let cost = self.total - self.charged;
            admissions.extend((cost > 0).then_some(Admission {
                at: self.stamp,
                cost,
            }));
        }
        if self.charged > 0 {
            match admissions.back_mut() {
                Some(newest) if newest.at == self.stamp => newest.cost += self.charged,
                _ => admissions.push_back(Admission {
                    at: self.stamp,
                    cost: self.charged,
                }),
            }
        }
        *stored = Some(State::SlidingLog {
            period: quota.period_ticks() * quota.tick_micros(),
            total: self.total,
            admissions,
        });
    }

    /// What has not left yet, oldest first, as it counts now.
    fn live<'a>(
        &'a self,
        admissions: Option<&'a VecDeque<Admission>>,
    ) -> impl Iterator<Item = Admission> + 'a {
        let all = admissions.filter(|_| !self.moved);
        let stored = all
            .into_iter()
            .flat_map(VecDeque::iter)
            .enumerate()
            .skip(self.gone);
        let kept = stored.map(|(index, entry)| match self.refunded {
            Some((from, taken)) if from == index => Admission {
                cost: entry.cost - taken,
                ..*entry
            },
            _ => *entry,
        });
        let made_now = if self.moved { self.total } else { self.charged };
        kept.chain([Admission {
            at: self.stamp,
            cost: made_now,
        }])
        .filter(|entry| entry.cost > 0)
    }

    /// The moment, in microseconds, at which `cost` fits; `None` if it never does.
    pub(super) fn fits_at(
        &self,
        quota: &Quota,
        admissions: Option<&VecDeque<Admission>>,
        cost: u64,
    ) -> Option<u128> {
        let spare = quota.limit().checked_sub(cost)?;
        let mut total = self.total;
        let mut at = 0;
        for admission in self.live(admissions) {
            if total <= spare {
                break;
            }
            total -= admission.cost;
            at = u128::from(admission.at) + quota.period().as_micros();
        }
        Some(at)
    }

    /// The moment the oldest leaves; 0 if there is none.
    pub(super) fn resets_at(
        &self,
        quota: &Quota,
        admissions: Option<&VecDeque<Admission>>,
    ) -> u128 {
        self.live(admissions).next().map_or(0, |oldest| {
            u128::from(oldest.at) + quota.period().as_micros()
        })
    }
}
