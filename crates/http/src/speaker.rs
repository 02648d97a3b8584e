//! Which of several quotas speaks in headers and bodies that have room for one.

use std::cmp::Reverse;
use std::time::Duration;

use tollgate_core::{Decision, Policy, Quota, QuotaAnswer};

/// The quota that speaks for a decision, and what it says.
#[derive(Clone, Copy, Debug)]
pub struct Speaker<'a> {
    /// Where it stands among the quotas.
    pub position: usize,
    /// The quota.
    pub quota: &'a Quota,
    /// Its answer.
    pub answer: &'a QuotaAnswer,
}

/// The quota that speaks: on refusal the refusing one with the longest wait (never is the
/// longest), else the one with the fewest remaining; ties go to the longest reset.
///
/// `None` when no quota was asked.
///
/// ```
/// use tollgate_core::algorithm::{Operation, apply};
/// use tollgate_core::{Cost, Policy, Quota, Timestamp};
/// use tollgate_http::speaker;
///
/// let policy = Policy::new("api", Quota::parse_list("60/60s, 10/h")?)?;
/// let decision =
///     apply(policy.quotas(), &mut Vec::new(), Timestamp::default(), Operation::Acquire(Cost::ONE))
///         .decision;
/// assert_eq!(speaker(&policy, &decision).map(|it| it.quota.limit()), Some(10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn speaker<'a>(policy: &'a Policy, decision: &'a Decision) -> Option<Speaker<'a>> {
    speaker_of(policy.quotas(), decision)
}

/// The same of the quotas of several policies.
pub(crate) fn speaker_of<'a>(quotas: &'a [Quota], decision: &'a Decision) -> Option<Speaker<'a>> {
    if let ([quota], [answer]) = (quotas, decision.quotas()) {
        return Some(Speaker {
            position: 0,
            quota,
            answer,
        });
    }
    let all = || {
        quotas
            .iter()
            .zip(decision.quotas())
            .enumerate()
            .map(|(position, (quota, answer))| Speaker {
                position,
                quota,
                answer,
            })
    };
    let refusing = all()
        .filter(|it| !it.answer.allowed)
        .first_max_by_key(|it| {
            let wait = it.answer.retry_after.unwrap_or(Duration::MAX);
            (wait, it.answer.reset_after)
        });
    refusing.or_else(|| {
        all().first_max_by_key(|it| (Reverse(it.answer.remaining), it.answer.reset_after))
    })
}

trait FirstMax: Iterator + Sized {
    /// The first of the largest; the standard `max_by_key` gives the last.
    fn first_max_by_key<K: Ord>(self, key: impl Fn(&Self::Item) -> K) -> Option<Self::Item> {
        self.reduce(|best, next| if key(&next) > key(&best) { next } else { best })
    }
}

impl<I: Iterator> FirstMax for I {}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::Timestamp;

    fn answer(allowed: bool, remaining: u64, retry: Option<u64>, reset: u64) -> QuotaAnswer {
        QuotaAnswer {
            allowed,
            granted: u64::from(allowed),
            remaining,
            retry_after: retry.map(Duration::from_secs),
            reset_after: Duration::from_secs(reset),
            more_after: None,
        }
    }

    fn speaks(answers: Vec<QuotaAnswer>) -> u64 {
        let quotas = (1..=answers.len() as u64)
            .map(|limit| Quota::fixed_window(limit, Duration::from_secs(60)).unwrap());
        let policy = Policy::new("p", quotas).unwrap();
        let decision = Decision::of(Timestamp::default(), answers);
        speaker(&policy, &decision).unwrap().quota.limit()
    }

    #[test]
    fn the_refusing_quota_with_the_longest_wait_speaks() {
        let passed = answer(true, 0, None, 900);
        let soon = answer(false, 0, Some(5), 5);
        let late = answer(false, 1, Some(50), 50);
        let never = answer(false, 7, None, 1);
        assert_eq!(speaks(vec![passed, soon, late]), 3);
        assert_eq!(speaks(vec![late, soon, passed]), 1);
        assert_eq!(speaks(vec![soon, never, late]), 2);
        assert_eq!(speaks(vec![soon, answer(false, 0, Some(5), 6)]), 2);
        assert_eq!(speaks(vec![soon, soon]), 1);
    }

    #[test]
    fn else_the_one_with_the_fewest_remaining() {
        assert_eq!(
            speaks(vec![answer(true, 9, None, 900), answer(true, 3, None, 1)]),
            2
        );
        assert_eq!(
            speaks(vec![answer(true, 3, None, 9), answer(true, 3, None, 10)]),
            2
        );
    }

    #[test]
    fn nobody_speaks_when_no_quota_was_asked() {
        let policy = Policy::new("p", ["1/s".parse().unwrap()]).unwrap();
        let open = Decision::unenforced(
            tollgate_core::Origin::FailOpen,
            true,
            1,
            None,
            Timestamp::default(),
        );
        assert!(speaker(&policy, &open).is_none());
    }
}
