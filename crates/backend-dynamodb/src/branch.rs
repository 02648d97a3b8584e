//! The writes that commute: increments under a range, not compare and swap.
//!
//! Each branch is one way in which a quota's numbers go from before a charge to after it. Its
//! condition is derived from the same numbers as the core's step, and holds exactly when the step
//! would admit the charge in that branch; so whoever else writes meanwhile, what is admitted is
//! what some serial order admits. Where no branch fits, the old numbers themselves are the condition
//! ([`Update::exact`]).

use aws_sdk_dynamodb::types::AttributeValue;
use tollgate_core::algorithm::{Meter, State};
use tollgate_core::record::Record;
use tollgate_core::{Algorithm, Quota, Refund, Timestamp};

use crate::record::{Held, SHAPE, n_value, shape_of};
use crate::update::Update;

/// How one quota's numbers change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Branch {
    /// A bucket that is not full: `t` grows by what is charged, whatever it is, if there is room.
    Busy { from: u128, to: u128, units: u128 },
    /// A full bucket, whenever it became so.
    Idle { until: u128, units: u128 },
    /// Windows that count on. `previous` may be less than was seen: a late refund only makes room.
    Same {
        window: u64,
        previous: Option<u64>,
        room: u64,
        cost: u64,
    },
    /// A sliding window that begins: what was current becomes previous.
    Next { window: u64, room: u64, cost: u64 },
    /// A window that begins after others, if any, that count no more.
    New {
        window: u64,
        previous: Option<u64>,
        cost: u64,
    },
    /// A bucket gets back what it owes.
    Repaid { from: u128, to: u128, units: u128 },
    /// A window gets back what it counted, `previous` or current.
    Uncounted {
        window: u64,
        previous: bool,
        cost: u64,
    },
    /// Nothing changes, and nothing may have changed.
    Unchanged(State),
}

/// One update for all quotas, and what the answer to it says of the moment before.
#[derive(Debug)]
pub(crate) struct Commuting {
    branches: Vec<Branch>,
    shape: String,
}

impl Commuting {
    /// Charges each quota, which must have room for it by what is held. `None` if only an exact
    /// write will do.
    pub(crate) fn charge(quotas: &[Quota], held: &Held, now: Timestamp, cost: u64) -> Option<Self> {
        let branch = |quota: &Quota, stored: &State| charge(quota, stored, now.as_micros(), cost);
        Self::of(quotas, held, branch)
    }

    /// Takes a charge back from each quota that it still counts in.
    pub(crate) fn refund(
        quotas: &[Quota],
        held: &Held,
        now: Timestamp,
        taken: Refund,
    ) -> Option<Self> {
        let branch = |quota: &Quota, stored: &State| refund(quota, stored, now.as_micros(), taken);
        Self::of(quotas, held, branch)
    }

    fn of(
        quotas: &[Quota],
        held: &Held,
        branch: impl Fn(&Quota, &State) -> Option<Branch>,
    ) -> Option<Self> {
        if !held.has_shape_of(quotas) || held.record.len() != quotas.len() {
            return None;
        }
        let branches = quotas
            .iter()
            .zip(&held.record)
            .map(|(quota, stored)| branch(quota, stored.as_ref()?))
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            branches,
            shape: shape_of(quotas),
        })
    }

    /// The write.
    pub(crate) fn update(&self) -> Update {
        let mut update = Update::default();
        update.when_equal(SHAPE, AttributeValue::S(self.shape.clone()));
        for (i, branch) in self.branches.iter().enumerate() {
            branch.write(i, &mut update);
        }
        update
    }

    /// The record as it was before the write that left `after`.
    pub(crate) fn before(&self, after: &Record) -> Option<Record> {
        self.branches
            .iter()
            .zip(after)
            .map(|(branch, after)| branch.before(after.as_ref()?))
            .collect()
    }

    /// The latest moment, in microseconds, from which the record may decide like none after the
    /// charge, whatever others have written. 0 if it does not move.
    pub(crate) fn expires_at(&self, quotas: &[Quota]) -> u64 {
        let each = self.branches.iter().zip(quotas);
        each.map(|(branch, quota)| branch.expires_at(quota))
            .max()
            .unwrap_or(0)
    }
}

fn charge(quota: &Quota, stored: &State, now: u64, cost: u64) -> Option<Branch> {
    let meter = Meter::settle(quota, Some(stored), now);
    if meter.moved() {
        return None;
    }
    let limit = u128::from(quota.limit());
    match (meter, stored) {
        (Meter::TokenBucket(meter), State::TokenBucket { .. }) => {
            let elapsed = elapsed(quota, now);
            let units = units(quota, cost);
            let full = u128::from(quota.units_when_full());
            Some(if meter.debt == 0 {
                Branch::Idle {
                    until: elapsed,
                    units,
                }
            } else {
                let to = (elapsed + full).checked_sub(units)?;
                Branch::Busy {
                    from: elapsed + 1,
                    to,
                    units,
                }
            })
        }
        (
            Meter::SlidingWindow(meter),
            &State::SlidingWindow {
                window, previous, ..
            },
        ) => {
            let ticks = u128::from(quota.period_ticks());
            let left = ticks - u128::from(meter.elapsed);
            if window == meter.window {
                let room = (limit * ticks).checked_sub(u128::from(previous) * left)? / ticks;
                let room = (room as u64).checked_sub(cost)?;
                let previous = Some(previous);
                Some(Branch::Same {
                    window,
                    previous,
                    room,
                    cost,
                })
            } else if window + 1 == meter.window {
                let room = limit.checked_sub(u128::from(cost))? * ticks / left;
                let room = u64::try_from(room).unwrap_or(u64::MAX);
                Some(Branch::Next {
                    window: meter.window,
                    room,
                    cost,
                })
            } else {
                Some(Branch::New {
                    window: meter.window,
                    previous: Some(0),
                    cost,
                })
            }
        }
        (Meter::FixedWindow(meter), &State::FixedWindow { window, .. }) => {
            Some(if window == meter.window {
                let room = quota.limit().checked_sub(cost)?;
                Branch::Same {
                    window,
                    previous: None,
                    room,
                    cost,
                }
            } else {
                Branch::New {
                    window: meter.window,
                    previous: None,
                    cost,
                }
            })
        }
        _ => None,
    }
}

fn refund(quota: &Quota, stored: &State, now: u64, taken: Refund) -> Option<Branch> {
    let (cost, charged_at) = (taken.cost, taken.charged_at.as_micros());
    let mut meter = Meter::settle(quota, Some(stored), now);
    if meter.moved() {
        return None;
    }
    let settled = meter;
    if !meter.refund(quota, Some(stored), cost, charged_at) {
        return match stored {
            State::SlidingLog { .. } => None,
            unchanged => Some(Branch::Unchanged(unchanged.clone())),
        };
    }
    match (settled, stored) {
        (Meter::TokenBucket(meter), State::TokenBucket { .. }) => {
            let units = units(quota, cost);
            let slack = u128::from(quota.slack_ticks()) * u128::from(quota.units_per_tick());
            let elapsed = elapsed(quota, now);
            (meter.debt >= units).then(|| Branch::Repaid {
                from: elapsed + units,
                to: elapsed + u128::from(quota.units_when_full()) + slack,
                units,
            })
        }
        (Meter::SlidingWindow(meter), &State::SlidingWindow { window, .. }) => {
            let charged = quota.tick_of(charged_at) / quota.period_ticks();
            let previous = charged != window;
            let count = if previous {
                meter.previous
            } else {
                meter.current
            };
            (window == meter.window && count >= cost).then_some(Branch::Uncounted {
                window,
                previous,
                cost,
            })
        }
        (Meter::FixedWindow(meter), &State::FixedWindow { window, .. }) => {
            (window == meter.window && meter.count >= cost).then_some(Branch::Uncounted {
                window,
                previous: false,
                cost,
            })
        }
        _ => None,
    }
}

/// `t * n`: now, in units.
fn elapsed(quota: &Quota, now: u64) -> u128 {
    u128::from(quota.tick_of(now)) * u128::from(quota.units_per_tick())
}

fn units(quota: &Quota, cost: u64) -> u128 {
    u128::from(cost) * u128::from(quota.units_per_token())
}

impl Branch {
    fn write(&self, i: usize, update: &mut Update) {
        match self {
            Self::Busy { from, to, units } => {
                let (from, to) = (update.number(from), update.number(to));
                let units = update.number(units);
                update.when(format!("t{i} BETWEEN {from} AND {to}"));
                update.set(format!("t{i}"), format!("t{i} + {units}"));
            }
            Self::Repaid { from, to, units } => {
                let (from, to) = (update.number(from), update.number(to));
                let units = update.number(units);
                update.when(format!("t{i} BETWEEN {from} AND {to}"));
                update.set(format!("t{i}"), format!("t{i} - {units}"));
            }
            Self::Idle { until, units } => {
                let (now, tat) = (update.number(until), update.number(until + units));
                update.when(format!("t{i} <= {now}"));
                update.set(format!("t{i}"), tat);
            }
            Self::Same {
                window,
                previous,
                room,
                cost,
            } => {
                let (window, room) = (update.number(window), update.number(room));
                update.when(format!("w{i} = {window}"));
                if let Some(previous) = previous {
                    let previous = update.number(previous);
                    update.when(format!("p{i} <= {previous}"));
                }
                update.when(format!("c{i} <= {room}"));
                let cost = update.number(cost);
                update.set(format!("c{i}"), format!("c{i} + {cost}"));
            }
            Self::Next { window, room, cost } => {
                let before = update.number(window - 1);
                let (window, room) = (update.number(window), update.number(room));
                update.when(format!("w{i} = {before}"));
                update.when(format!("c{i} <= {room}"));
                let cost = update.number(cost);
                update.set(format!("w{i}"), window);
                // All that a SET reads is what was there before it.
                update.set(format!("p{i}"), format!("c{i}"));
                update.set(format!("c{i}"), cost);
            }
            Self::New {
                window,
                previous,
                cost,
            } => {
                // The window before counts where there is a previous one.
                let first = window - u64::from(previous.is_some());
                let (first, window) = (update.number(first), update.number(window));
                update.when(format!("w{i} < {first}"));
                update.set(format!("w{i}"), window);
                if let Some(previous) = previous {
                    let previous = update.number(previous);
                    update.set(format!("p{i}"), previous);
                }
                let cost = update.number(cost);
                update.set(format!("c{i}"), cost);
            }
            Self::Uncounted {
                window,
                previous,
                cost,
            } => {
                let count = if *previous { 'p' } else { 'c' };
                let (window, cost) = (update.number(window), update.number(cost));
                update.when(format!("w{i} = {window}"));
                update.when(format!("{count}{i} >= {cost}"));
                update.set(format!("{count}{i}"), format!("{count}{i} - {cost}"));
            }
            Self::Unchanged(state) => match state {
                State::TokenBucket { tat, .. } => update.when_equal(&format!("t{i}"), n_value(tat)),
                State::SlidingWindow {
                    window,
                    previous,
                    current,
                    ..
                } => {
                    update.when_equal(&format!("w{i}"), n_value(window));
                    update.when_equal(&format!("p{i}"), n_value(previous));
                    update.when_equal(&format!("c{i}"), n_value(current));
                }
                State::FixedWindow { window, count, .. } => {
                    update.when_equal(&format!("w{i}"), n_value(window));
                    update.when_equal(&format!("c{i}"), n_value(count));
                }
                State::SlidingLog { .. } => {}
            },
        }
    }

    /// The state before the write that left `after`; `Some(None)` where it was one that counts no
    /// more.
    fn before(&self, after: &State) -> Option<Option<State>> {
        let mut before = after.clone();
        match (self, &mut before) {
            (Self::Busy { units, .. }, State::TokenBucket { tat, .. }) => {
                *tat = tat.checked_sub(*units)?;
            }
            (Self::Repaid { units, .. }, State::TokenBucket { tat, .. }) => *tat += units,
            (Self::Idle { .. }, State::TokenBucket { .. })
            | (Self::New { .. }, State::SlidingWindow { .. } | State::FixedWindow { .. }) => {
                return Some(None);
            }
            (
                Self::Same { cost, .. },
                State::SlidingWindow { current: count, .. } | State::FixedWindow { count, .. },
            ) => *count = count.checked_sub(*cost)?,
            (
                Self::Next { .. },
                State::SlidingWindow {
                    window,
                    previous,
                    current,
                    ..
                },
            ) => {
                *window = window.checked_sub(1)?;
                *current = *previous;
                *previous = 0;
            }
            (
                Self::Uncounted {
                    previous: false,
                    cost,
                    ..
                },
                State::SlidingWindow { current: count, .. } | State::FixedWindow { count, .. },
            )
            | (
                Self::Uncounted {
                    previous: true,
                    cost,
                    ..
                },
                State::SlidingWindow {
                    previous: count, ..
                },
            ) => *count = count.checked_add(*cost)?,
            (Self::Unchanged(state), found) if state == found => {}
            _ => return None,
        }
        Some(Some(before))
    }

    fn expires_at(&self, quota: &Quota) -> u64 {
        let period = u128::from(quota.period_ticks()) * u128::from(quota.tick_micros());
        let micros = match self {
            // With the room that the condition leaves, the bucket is full no later than this.
            Self::Busy { to: tat, units, .. } | Self::Idle { until: tat, units } => (tat + units)
                .div_ceil(u128::from(quota.units_per_tick()))
                .saturating_mul(u128::from(quota.tick_micros())),
            Self::Same {
                window, previous, ..
            }
            | Self::New {
                window, previous, ..
            } => {
                let windows = if previous.is_some() { 2 } else { 1 };
                (u128::from(*window) + windows) * period
            }
            Self::Next { window, .. } => (u128::from(*window) + 2) * period,
            Self::Repaid { .. } | Self::Uncounted { .. } | Self::Unchanged(_) => 0,
        };
        u64::try_from(micros).unwrap_or(u64::MAX)
    }
}

/// Whether a quota keeps a log, which no increment can write.
pub(crate) fn has_log(quotas: &[Quota]) -> bool {
    quotas
        .iter()
        .any(|quota| quota.algorithm() == Algorithm::SlidingLog)
}
