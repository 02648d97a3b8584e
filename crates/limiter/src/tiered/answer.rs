//! A remembered refusal, and what it answers later.

use std::time::Duration;

use tollgate_core::{Algorithm, Decision, Origin, Policy, Quota, QuotaAnswer, Subject};

use super::table::Moment;

/// How long a refusal is remembered that no wait would change: its cost is above the capacity.
const NEVER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Entry {
    hash: u128,
    cost: u64,
    virtual_time: bool,
    from: u64,
    until: u64,
    policy: Policy,
    decision: Decision,
}

impl Entry {
    /// `None` if there is nothing to remember.
    pub(super) fn new(
        hash: u128,
        subject: Subject<'_>,
        cost: u64,
        now: Moment,
        decision: &Decision,
    ) -> Option<Self> {
        let wait = match decision.retry_after() {
            Some(wait) => wait,
            None if cost > subject.policy.capacity() => NEVER,
            None => return None,
        };
        let wait = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        // The process's own time is cut to a whole microsecond, which must not shorten a wait.
        let cut = u64::from(!now.virtual_time);
        Some(Self {
            hash,
            cost,
            virtual_time: now.virtual_time,
            from: now.micros,
            until: now.micros.saturating_add(wait).saturating_add(cut),
            policy: subject.policy.clone(),
            decision: decision.clone(),
        })
    }

    pub(super) const fn hash(&self) -> u128 {
        self.hash
    }

    /// The least cost that is refused.
    pub(super) const fn cost(&self) -> u64 {
        self.cost
    }

    pub(super) const fn until(&self) -> u64 {
        self.until
    }

    /// Whether it may be dropped.
    pub(super) const fn is_over(&self, now: Moment) -> bool {
        self.virtual_time == now.virtual_time && now.micros >= self.until
    }

    /// Whether it is known to be true: same quotas, same time, not before and not after.
    pub(super) fn holds(&self, subject: Subject<'_>, now: Moment) -> bool {
        self.virtual_time == now.virtual_time
            && (self.from..self.until).contains(&now.micros)
            && self.policy == *subject.policy
    }

    /// The answer to `cost`, which is not below the one that was refused, while it holds.
    pub(super) fn answer(&self, subject: Subject<'_>, cost: u64, now: Moment) -> Decision {
        let passed = Duration::from_micros(now.micros.saturating_sub(self.from));
        let cut = Duration::from_micros(u64::from(!self.virtual_time));
        let charged_at = self.decision.charged_at() + passed;
        let answer = |(quota, then): (&Quota, &QuotaAnswer)| {
            let wait = wait_for(quota, then, self.cost, cost);
            later(then, wait, passed, cut, cost)
        };
        let quotas = subject.policy.quotas();
        let decision = match (quotas, self.decision.quotas()) {
            ([quota], [then]) => Decision::of_one(charged_at, answer((quota, then))),
            (quotas, then) => {
                Decision::of(charged_at, quotas.iter().zip(then).map(answer).collect())
            }
        };
        decision.with_origin(Origin::RememberedRefusal)
    }
}

enum Wait {
    None,
    For(Duration),
    Never,
}

/// How long after the refusal of `refused` a quota has room for `cost` at the latest.
fn wait_for(quota: &Quota, then: &QuotaAnswer, refused: u64, cost: u64) -> Wait {
    if cost > quota.capacity() {
        return Wait::Never;
    }
    if cost == refused {
        return match (then.allowed, then.retry_after) {
            (true, _) => Wait::None,
            (false, Some(wait)) => Wait::For(wait),
            (false, None) => Wait::Never,
        };
    }
    if then.remaining >= cost {
        return Wait::None;
    }
    let known = then.retry_after.unwrap_or_default();
    let empty = match quota.algorithm() {
        // All that was admitted leaves within a period.
        Algorithm::SlidingLog => quota.period(),
        // It need not be full, only so full.
        Algorithm::TokenBucket => {
            let spare = (quota.capacity() - cost) * quota.units_per_token();
            let ticks = spare / quota.units_per_tick();
            let early = ticks.saturating_mul(quota.tick_micros());
            then.reset_after
                .saturating_sub(Duration::from_micros(early))
        }
        _ => then.reset_after,
    };
    Wait::For(empty.max(known))
}

/// What `then` is after `passed`.
fn later(
    then: &QuotaAnswer,
    wait: Wait,
    passed: Duration,
    cut: Duration,
    cost: u64,
) -> QuotaAnswer {
    let left = |wait: Duration| (wait + cut).saturating_sub(passed);
    let (allowed, retry_after) = match wait {
        Wait::None => (true, None),
        Wait::Never => (false, None),
        Wait::For(wait) => match left(wait) {
            Duration::ZERO => (true, None),
            left => (false, Some(left)),
        },
    };
    QuotaAnswer {
        allowed,
        granted: 0,
        remaining: if allowed {
            then.remaining.max(cost)
        } else {
            then.remaining
        },
        retry_after,
        reset_after: then.reset_after.saturating_sub(passed),
        // Something may have come back since, unnoticed; the rest is told at the next moment.
        more_after: then
            .more_after
            .map(|wait| left(wait).max(Duration::from_micros(1))),
    }
}
