//! Whole seconds, as headers carry them: rounded up, so that nobody comes back too early.

use std::time::Duration;

use tollgate_core::{Decision, NoSlot, Quota, Timestamp};

/// What `Retry-After` says for a refusal: whole seconds, rounded up, at least 1.
///
/// `None` for what was admitted, and where waiting never helps.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Decision, Origin, Timestamp};
/// use tollgate_http::retry_after_seconds;
///
/// let closed = |wait| {
///     Decision::unenforced(Origin::FailClosed, false, 0, wait, Timestamp::default())
/// };
/// assert_eq!(retry_after_seconds(&closed(Some(Duration::from_millis(1_200)))), Some(2));
/// assert_eq!(retry_after_seconds(&closed(None)), Some(1));
/// ```
#[must_use]
pub fn retry_after_seconds(decision: &Decision) -> Option<u64> {
    if decision.allowed() || decision.is_never() {
        return None;
    }
    // Never earlier than the `t` of a refusing quota in the same answer.
    let more = decision
        .quotas()
        .iter()
        .filter(|answer| !answer.allowed)
        .filter_map(|answer| answer.more_after)
        .max();
    let wait = decision.retry_after().max(more).unwrap_or_default();
    Some(ceil(wait).max(1))
}

/// The same where no slot is free.
pub(crate) fn no_slot_seconds(no_slot: &NoSlot) -> u64 {
    ceil(no_slot.retry_after()).max(1)
}

/// Seconds, rounded up.
pub(crate) const fn ceil(wait: Duration) -> u64 {
    if wait.subsec_nanos() > 0 {
        wait.as_secs().saturating_add(1)
    } else {
        wait.as_secs()
    }
}

/// The second of the epoch, rounded up, that lies `wait` after `now`.
pub(crate) fn epoch_second(now: Timestamp, wait: Duration) -> u64 {
    (now + wait).as_micros().div_ceil(1_000_000)
}

/// The time in which a quota's whole capacity comes back, in seconds rounded up: the `w` of the
/// policy field.
pub(crate) fn window(quota: &Quota) -> u64 {
    let micros = u128::from(quota.capacity()) * quota.period().as_micros();
    let seconds = micros.div_ceil(u128::from(quota.limit()) * 1_000_000);
    u64::try_from(seconds).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_the_time_in_which_the_capacity_comes_back() {
        for (text, seconds) in [
            ("100/60s", 60),
            ("5/s burst=50", 10),
            ("3/s burst=50", 17),
            ("5/250ms", 1),
            ("1000/d fixed_window", 86_400),
            ("1/52000d", 4_492_800_000),
        ] {
            assert_eq!(window(&text.parse().unwrap()), seconds, "{text}");
        }
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(ceil(Duration::ZERO), 0);
        assert_eq!(ceil(Duration::from_micros(1)), 1);
        assert_eq!(ceil(Duration::from_secs(2)), 2);
        assert_eq!(ceil(Duration::MAX), u64::MAX);
        let now = Timestamp::from_micros(1_700_000_000_000_001);
        assert_eq!(epoch_second(now, Duration::ZERO), 1_700_000_001);
    }
}
