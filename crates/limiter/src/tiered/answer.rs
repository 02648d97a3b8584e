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
    /// `None` if there is nothing to remember. It holds for `longest` microseconds at most.
    pub(super) fn new(
        hash: u128,
        subject: Subject<'_>,
        cost: u64,
        now: Moment,
        longest: u64,
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
        let held = wait.saturating_add(cut).min(longest);
        (held > 0).then(|| Self {
            hash,
            cost,
            virtual_time: now.virtual_time,
            from: now.micros,
            until: now.micros.saturating_add(held),
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
    ///
    /// Once more may have come back than was there, though not enough, nothing is known of what is
    /// left, and no quota speaks.
    pub(super) fn answer(&self, subject: Subject<'_>, cost: u64, now: Moment) -> Decision {
        let passed = Passed {
            time: Duration::from_micros(now.micros.saturating_sub(self.from)),
            cut: Duration::from_micros(u64::from(!self.virtual_time)),
        };
        let charged_at = self.decision.charged_at() + passed.time;
        let quotas = subject.policy.quotas();
        let then = self.decision.quotas();
        let answer = |(quota, then): (&Quota, &QuotaAnswer)| {
            let wait = wait_for(quota, then, self.cost, cost);
            (passed.answer(then, self.cost, wait), wait)
        };
        if let ([quota], [then]) = (quotas, then)
            && let (Some(answer), _) = answer((quota, then))
        {
            return Decision::of_one(charged_at, answer).with_origin(Origin::RememberedRefusal);
        }
        let answers = quotas.iter().zip(then).map(answer);
        let known: Option<Vec<_>> = answers.clone().map(|(answer, _)| answer).collect();
        if let Some(known) = known {
            return Decision::of(charged_at, known).with_origin(Origin::RememberedRefusal);
        }
        let wait = answers
            .map(|(_, wait)| match wait {
                Wait::None => Some(Duration::ZERO),
                Wait::For(wait) => Some(passed.left_of(wait)),
                Wait::Never => None,
            })
            .reduce(|a, b| Some(a?.max(b?)))
            .flatten();
        Decision::unenforced(Origin::RememberedRefusal, false, 0, wait, charged_at)
    }
}

#[derive(Clone, Copy)]
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

/// The time since a refusal.
struct Passed {
    time: Duration,
    /// What its beginning was cut by.
    cut: Duration,
}

impl Passed {
    fn left_of(&self, wait: Duration) -> Duration {
        (wait + self.cut).saturating_sub(self.time)
    }

    /// What a quota says now that said `then` to `refused`; `None` if that is not known.
    fn answer(&self, then: &QuotaAnswer, refused: u64, wait: Wait) -> Option<QuotaAnswer> {
        let more_after = match (then.retry_after, then.more_after) {
            // It lacked just one, so nothing comes back before it is enough.
            (Some(wait), Some(_))
                if refused == then.remaining.saturating_add(1) && !self.left_of(wait).is_zero() =>
            {
                Some(self.left_of(wait))
            }
            (_, Some(more)) if self.time < more => Some(self.left_of(more)),
            (_, Some(_)) => return None,
            (_, None) => None,
        };
        let (allowed, retry_after) = match wait {
            Wait::None => (true, None),
            Wait::Never => (false, None),
            Wait::For(wait) => match self.left_of(wait) {
                Duration::ZERO => (true, None),
                left => (false, Some(left)),
            },
        };
        Some(QuotaAnswer {
            allowed,
            granted: 0,
            remaining: then.remaining,
            retry_after,
            reset_after: self.left_of(then.reset_after),
            more_after,
        })
    }
}
