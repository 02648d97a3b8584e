//! One call on one record: every quota of a policy decided together, and charged all or nothing.

use super::{Meter, Request, State};
use crate::{Cost, Decision, Quota, QuotaAnswer, Refund, Timestamp};

/// What a call does.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Charge.
    Acquire(Cost),
    /// Ask.
    Peek(Cost),
    /// Give back.
    Refund(Refund),
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The answer.
    pub decision: Decision,
    /// Whether the record was changed and must be stored.
    pub changed: bool,
}

/// Decides one call at `now` and brings `record` up to date: one state a quota, in order. Missing
/// states read as absent, and the record grows to the number of quotas only when it is changed.
pub fn apply(
    quotas: &[Quota],
    record: &mut Vec<Option<State>>,
    now: Timestamp,
    operation: Operation,
) -> Applied {
    let mut call = Call::settle(quotas, record, now);
    let (decision, changed) = match operation {
        Operation::Acquire(cost) => {
            let decision = call.acquire(cost);
            let moved = call.meters.iter().any(Meter::moved);
            (
                decision.clone(),
                if decision.allowed() {
                    Write::All
                } else if moved {
                    Write::Moved
                } else {
                    Write::Nothing
                },
            )
        }
        Operation::Peek(cost) => (call.peek(cost), Write::Nothing),
        Operation::Refund(refund) => call.refund(refund),
    };
    let meters = call.meters;
    store(quotas, &meters, record, now, &changed);
    Applied {
        decision,
        changed: !matches!(changed, Write::Nothing),
    }
}

/// As many single charges in this order at one moment.
pub fn apply_batch(
    quotas: &[Quota],
    record: &mut Vec<Option<State>>,
    now: Timestamp,
    costs: &[Cost],
) -> (Vec<Decision>, bool) {
    let mut call = Call::settle(quotas, record, now);
    let decisions: Vec<_> = costs.iter().map(|cost| call.acquire(*cost)).collect();
    let write = if decisions.iter().any(Decision::allowed) {
        Write::All
    } else if !costs.is_empty() && call.meters.iter().any(Meter::moved) {
        Write::Moved
    } else {
        Write::Nothing
    };
    let meters = call.meters;
    store(quotas, &meters, record, now, &write);
    (decisions, !matches!(write, Write::Nothing))
}

/// Which states a call writes.
enum Write {
    Nothing,
    All,
    /// Those that a moved clock brought back.
    Moved,
    /// Those that a refund changed.
    These(Vec<bool>),
}

fn store(
    quotas: &[Quota],
    meters: &[Meter],
    record: &mut Vec<Option<State>>,
    now: Timestamp,
    write: &Write,
) {
    if matches!(write, Write::Nothing) {
        return;
    }
    record.resize(quotas.len(), None);
    for (i, (quota, meter)) in quotas.iter().zip(meters).enumerate() {
        let wanted = match write {
            Write::Nothing => false,
            Write::All => true,
            Write::Moved => meter.moved(),
            Write::These(these) => these[i],
        };
        if wanted {
            meter.store(quota, &mut record[i], now.as_micros());
        }
    }
}

struct Call<'a> {
    quotas: &'a [Quota],
    record: &'a [Option<State>],
    meters: Vec<Meter>,
    now: Timestamp,
}

impl<'a> Call<'a> {
    fn settle(quotas: &'a [Quota], record: &'a [Option<State>], now: Timestamp) -> Self {
        let meters = quotas
            .iter()
            .enumerate()
            .map(|(i, quota)| Meter::settle(quota, stored(record, i), now.as_micros()))
            .collect();
        Self {
            quotas,
            record,
            meters,
            now,
        }
    }

    fn acquire(&mut self, cost: Cost) -> Decision {
        let available: Vec<_> = self.available();
        let least = available.iter().copied().min().unwrap_or(0);
        let granted = if least >= cost.min() {
            least.min(cost.max())
        } else {
            0
        };
        if granted > 0 {
            for (meter, quota) in self.meters.iter_mut().zip(self.quotas) {
                meter.charge(quota, granted);
            }
        }
        self.decision(|i| Request {
            cost: cost.min(),
            allowed: available[i] >= cost.min(),
            granted,
        })
    }

    fn peek(&self, cost: Cost) -> Decision {
        let available = self.available();
        self.decision(|i| Request {
            cost: cost.min(),
            allowed: available[i] >= cost.min(),
            granted: 0,
        })
    }

    fn refund(&mut self, refund: Refund) -> (Decision, Write) {
        let these: Vec<bool> = self
            .meters
            .iter_mut()
            .zip(self.quotas)
            .enumerate()
            .map(|(i, (meter, quota))| {
                let stored = stored(self.record, i);
                meter.refund(quota, stored, refund.cost, refund.charged_at.as_micros())
            })
            .collect();
        let decision = self.decision(|_| Request {
            cost: 0,
            allowed: true,
            granted: 0,
        });
        let write = if these.contains(&true) {
            Write::These(these)
        } else {
            Write::Nothing
        };
        (decision, write)
    }

    fn available(&self) -> Vec<u64> {
        self.meters
            .iter()
            .zip(self.quotas)
            .map(|(meter, quota)| meter.available(quota))
            .collect()
    }

    fn decision(&self, request: impl Fn(usize) -> Request) -> Decision {
        let now = self.now.as_micros();
        let answer = |i: usize| -> QuotaAnswer {
            self.meters[i].answer(&self.quotas[i], stored(self.record, i), now, request(i))
        };
        let charged_at = self
            .meters
            .iter()
            .map(|meter| meter.charged_at(now))
            .max()
            .unwrap_or(now);
        let charged_at = Timestamp::from_micros(charged_at);
        if self.meters.len() == 1 {
            return Decision::of_one(charged_at, answer(0));
        }
        Decision::of(charged_at, (0..self.meters.len()).map(answer).collect())
    }
}

fn stored(record: &[Option<State>], i: usize) -> Option<&State> {
    record.get(i).and_then(Option::as_ref)
}
