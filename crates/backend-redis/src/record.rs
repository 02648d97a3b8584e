//! What a script is told and what it replies.
//!
//! Lua counts in doubles, so no number here passes 2^53. A reply holds the time and what is stored
//! for each quota; the decision is then computed by the same pure step that memory runs, from the
//! same numbers that the script decided by. `lua/src/load.lua` has the other half.

use tollgate_core::algorithm::{
    Admission, Applied, Meter, Operation, Request, State, apply, token_bucket,
};
use tollgate_core::record::Record;
use tollgate_core::{
    Algorithm, BackendError, Cost, Decision, ErrorKind, MAX_EXACT, Quota, QuotaAnswer, Refund,
    Timestamp,
};

use crate::Args;

/// 2^53: the largest whole number of which a double is still sure.
const MAX_LUA: u64 = MAX_EXACT * 2;

/// The reply of a script for one quota that declines: the record has another shape.
const DECLINED: i64 = -(MAX_LUA as i64);

/// What a script does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<'a> {
    Acquire(&'a [Cost]),
    Peek(Cost),
    Refund(Refund),
}

/// The arguments of every script but the short one.
pub(crate) fn args(
    quotas: &[Quota],
    at: Option<Timestamp>,
    call: Call<'_>,
) -> Result<Args, BackendError> {
    let charges = if let Call::Acquire(costs) = call {
        costs.len()
    } else {
        2
    };
    let mut args = Args::with_capacity(3 + 7 * quotas.len() + 2 * charges);
    match at {
        Some(at) => args.push_number(moment(at)?),
        None => args.push(""),
    }
    args.push(match call {
        Call::Acquire(_) => "a",
        Call::Peek(_) => "p",
        Call::Refund(_) => "r",
    });
    args.push_number(quotas.len() as u64);
    for quota in quotas {
        args.push(match quota.algorithm() {
            Algorithm::TokenBucket => "b",
            Algorithm::SlidingWindow => "s",
            Algorithm::FixedWindow => "f",
            _ => "l",
        });
        push_quota(&mut args, quota);
    }
    match call {
        Call::Acquire(costs) => costs.iter().for_each(|cost| push_cost(&mut args, *cost)),
        Call::Peek(cost) => push_cost(&mut args, cost),
        Call::Refund(refund) => quotas
            .iter()
            .for_each(|quota| push_refund(&mut args, quota, refund)),
    }
    Ok(args)
}

/// The arguments of a script for one charge on one quota.
pub(crate) fn one_args(
    quota: &Quota,
    at: Option<Timestamp>,
    cost: Cost,
) -> Result<Args, BackendError> {
    let mut args = Args::with_capacity(7);
    push_quota(&mut args, quota);
    push_cost(&mut args, cost);
    if let Some(at) = at {
        args.push_number(moment(at)?);
    }
    Ok(args)
}

/// Whether a script for one charge left it to the one for all.
pub(crate) fn declined(reply: &[i64]) -> bool {
    matches!(reply, [DECLINED])
}

fn push_quota(args: &mut Args, quota: &Quota) {
    let numbers = match quota.algorithm() {
        Algorithm::TokenBucket => [
            quota.tick_micros(),
            quota.units_per_tick(),
            quota.units_per_token(),
            quota.units_when_full(),
        ],
        _ => [
            quota.tick_micros(),
            quota.period_ticks(),
            quota.limit(),
            quota.slack_ticks(),
        ],
    };
    for number in numbers {
        args.push_number(number);
    }
}

/// More than any quota has is all the same.
fn push_cost(args: &mut Args, cost: Cost) {
    args.push_number(cost.min().min(MAX_LUA));
    args.push_number(cost.max().min(MAX_LUA));
}

fn push_refund(args: &mut Args, quota: &Quota, refund: Refund) {
    let charged_at = refund.charged_at.as_micros();
    let (first, second) = match quota.algorithm() {
        Algorithm::TokenBucket => {
            let units = u128::from(refund.cost) * u128::from(quota.units_per_token());
            let n = u128::from(quota.units_per_tick());
            // Longer than any bucket takes to fill is all the same.
            let whole = u64::try_from(units / n).unwrap_or(u64::MAX);
            (whole, (units % n) as u64)
        }
        Algorithm::SlidingLog => (refund.cost, charged_at),
        _ => (
            refund.cost,
            quota.tick_of(charged_at) / quota.period_ticks(),
        ),
    };
    args.push_number(first.min(MAX_LUA));
    args.push_number(second.min(MAX_LUA));
}

fn moment(at: Timestamp) -> Result<u64, BackendError> {
    if at.as_micros() > MAX_EXACT {
        return Err(BackendError::new(
            ErrorKind::Config,
            "the time given is later than 2^52 us, which Redis scripts cannot count",
        ));
    }
    Ok(at.as_micros())
}

/// Reads a reply: the time, and what is stored for each quota.
pub(crate) fn read(quotas: &[Quota], reply: &[i64]) -> Result<(Timestamp, Record), BackendError> {
    read_all(quotas, reply).ok_or_else(malformed)
}

fn read_all(quotas: &[Quota], reply: &[i64]) -> Option<(Timestamp, Record)> {
    let mut numbers = reply.iter().map(|number| u64::try_from(*number).ok());
    let mut next = || numbers.next().flatten();
    let now = Timestamp::from_micros(next()?);
    let mut record = Record::with_capacity(quotas.len());
    for quota in quotas {
        let period = quota.period_ticks() * quota.tick_micros();
        record.push(Some(match quota.algorithm() {
            Algorithm::TokenBucket => {
                let n = quota.units_per_tick();
                let (at, rest) = (next()?, next()?);
                State::TokenBucket {
                    tick: quota.tick_micros(),
                    n,
                    tat: u128::from(at) * u128::from(n) + u128::from(rest),
                }
            }
            Algorithm::SlidingWindow => State::SlidingWindow {
                period,
                window: next()?,
                previous: next()?,
                current: next()?,
            },
            Algorithm::FixedWindow => State::FixedWindow {
                period,
                window: next()?,
                count: next()?,
            },
            _ => {
                let count = usize::try_from(next()?)
                    .ok()
                    .filter(|n| *n <= reply.len())?;
                let admissions = (0..count)
                    .map(|_| {
                        Some(Admission {
                            at: next()?,
                            cost: next()?,
                        })
                    })
                    .collect::<Option<std::collections::VecDeque<_>>>()?;
                let total = admissions
                    .iter()
                    .try_fold(0_u64, |sum, entry| sum.checked_add(entry.cost))?;
                State::SlidingLog {
                    period,
                    total,
                    admissions,
                }
            }
        }));
    }
    numbers.next().is_none().then_some((now, record))
}

/// The decision on a refund: the state that it left, and nothing refused.
pub(crate) fn refunded(quotas: &[Quota], reply: &[i64]) -> Result<Decision, BackendError> {
    let (now, mut record) = read(quotas, reply)?;
    let Applied { decision, .. } = apply(quotas, &mut record, now, Operation::Peek(Cost::ONE));
    let answers = decision.quotas().iter().map(|answer| QuotaAnswer {
        allowed: true,
        retry_after: None,
        ..*answer
    });
    Ok(Decision::of(decision.charged_at(), answers.collect()))
}

/// The arguments of `token_bucket_us`.
pub(crate) fn short_args(
    quota: &Quota,
    at: Option<Timestamp>,
    cost: u64,
) -> Result<Args, BackendError> {
    let mut args = Args::with_capacity(3);
    args.push_number(units(quota, cost));
    args.push_number(quota.units_when_full());
    if let Some(at) = at {
        args.push_number(moment(at)?);
    }
    Ok(args)
}

/// At most one token more than a full bucket, which is refused all the same.
fn units(quota: &Quota, cost: u64) -> u64 {
    cost.min(quota.capacity() + 1) * quota.units_per_token()
}

/// Reads the reply of `token_bucket_us`; `None` if it declined.
pub(crate) fn short_decision(
    quota: &Quota,
    at: Timestamp,
    cost: u64,
    reply: &[i64],
) -> Result<Option<Decision>, BackendError> {
    let &[room] = reply else {
        return Err(malformed());
    };
    if room == DECLINED {
        return Ok(None);
    }
    let allowed = room >= 0;
    // What is missing from a full bucket is what there is no room for, less the cost if refused.
    let full = i128::from(quota.units_when_full()) - i128::from(room);
    let debt = if allowed {
        full
    } else {
        full - i128::from(units(quota, cost))
    };
    let debt = u128::try_from(debt).map_err(|_| malformed())?;
    let meter = Meter::TokenBucket(token_bucket::Meter { debt, moved: false });
    let request = Request {
        cost,
        allowed,
        granted: if allowed { cost } else { 0 },
    };
    // Only waits are answered, and at one unit a microsecond they do not depend on now.
    let answer = meter.answer(quota, None, at.as_micros(), request);
    Ok(Some(Decision::of_one(at, answer)))
}

/// Charges on one record: which of the batches, by which quota, and what.
pub(crate) type Charges<'a> = (usize, &'a Quota, &'a [Cost]);

/// Whether `token_bucket_us_many` can make these charges: only fixed costs.
pub(crate) fn fixed(costs: &[Cost]) -> bool {
    !costs.is_empty() && costs.iter().all(|cost| cost.min() == cost.max())
}

/// The arguments of `token_bucket_us_many`: records in a row that are charged alike are told once,
/// and so are costs in a row.
pub(crate) fn many_args(
    charges: &[Charges<'_>],
    at: Option<Timestamp>,
) -> Result<Args, BackendError> {
    let mut args = Args::with_capacity(1 + 5 * charges.len());
    match at {
        Some(at) => args.push_number(moment(at)?),
        None => args.push(""),
    }
    for alike in charges.chunk_by(|a, b| a.1 == b.1 && a.2 == b.2) {
        let (_, quota, costs) = alike[0];
        let runs = || costs.chunk_by(|a, b| a == b);
        args.push_number(alike.len() as u64);
        args.push_number(quota.units_when_full());
        args.push_number(runs().count() as u64);
        for run in runs() {
            args.push_number(units(quota, run[0].min()));
            args.push_number(run.len() as u64);
        }
    }
    Ok(args)
}

/// Reads what `token_bucket_us_many` replied for one record: what was missing from a full bucket.
pub(crate) fn short_decisions(
    quota: &Quota,
    at: Timestamp,
    costs: &[Cost],
    debt: i64,
) -> Result<Option<Vec<Decision>>, BackendError> {
    if debt == DECLINED {
        return Ok(None);
    }
    let debt = u128::try_from(debt).map_err(|_| malformed())?;
    let mut meter = Meter::TokenBucket(token_bucket::Meter { debt, moved: false });
    let decide = |cost: &Cost| {
        let allowed = meter.available(quota) >= cost.min();
        let granted = if allowed { cost.min() } else { 0 };
        if allowed {
            meter.charge(quota, granted);
        }
        let request = Request {
            cost: cost.min(),
            allowed,
            granted,
        };
        Decision::of_one(at, meter.answer(quota, None, at.as_micros(), request))
    };
    Ok(Some(costs.iter().map(decide).collect()))
}

/// As many charges of 1 as one that takes up to so many.
pub(crate) fn ones(costs: &[Cost]) -> Option<Cost> {
    if costs.iter().any(|cost| *cost != Cost::ONE) {
        return None;
    }
    Cost::range(1, costs.len() as u64).ok()
}

pub(crate) fn malformed() -> BackendError {
    BackendError::new(
        ErrorKind::Malformed,
        "the script's reply has another shape; is something else answering?",
    )
}
