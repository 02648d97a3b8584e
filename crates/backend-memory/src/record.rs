//! What the map counts a record as, and how a log is kept within the bound.

use tollgate_core::algorithm::State;
use tollgate_core::record::Record;

/// One, and one for each admission of a log beyond its first.
pub(crate) fn weight(record: &Record) -> u64 {
    let more: usize = record
        .iter()
        .flatten()
        .map(|state| match state {
            State::SlidingLog { admissions, .. } => admissions.len().saturating_sub(1),
            _ => 0,
        })
        .sum();
    1 + more as u64
}

/// Makes one of the newest two admissions of each log, until the record weighs at most `bound`,
/// which is at least 1. The merged one counts as made when the newest was, so the log may
/// refuse a little longer than it should and never admits more.
pub(crate) fn merge_newest(record: &mut Record, bound: u64) {
    while weight(record) > bound {
        for state in record.iter_mut().flatten() {
            if let State::SlidingLog { admissions, .. } = state
                && admissions.len() > 1
                && let Some(newest) = admissions.pop_back()
                && let Some(last) = admissions.back_mut()
            {
                last.at = newest.at;
                last.cost += newest.cost;
            }
        }
    }
}

/// Drops admissions that have left by `now`.
pub(crate) fn forget_old(record: &mut Record, now: u64) {
    for state in record.iter_mut().flatten() {
        if let State::SlidingLog {
            period,
            total,
            admissions,
        } = state
        {
            let left = |at: u64| at.saturating_add(*period) <= now;
            while let Some(oldest) = admissions.pop_front_if(|oldest| left(oldest.at)) {
                *total -= oldest.cost;
            }
        }
    }
    shrink(record);
}

/// Gives back memory that a log no longer needs.
pub(crate) fn shrink(record: &mut Record) {
    for state in record.iter_mut().flatten() {
        if let State::SlidingLog { admissions, .. } = state
            && admissions.capacity() > 16
            && admissions.capacity() / 4 > admissions.len()
        {
            admissions.shrink_to(2 * admissions.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::{Admission, Operation, apply};
    use tollgate_core::{Cost, Quota, Timestamp};

    use super::*;

    #[test]
    fn a_merged_log_admits_no_more_and_forgets_nothing() {
        let quotas = Quota::parse_list("10/1s sliding_log").unwrap();
        let mut record = Record::new();
        let charge = |record: &mut Record, at: u64| {
            let now = Timestamp::from_micros(at);
            apply(&quotas, record, now, Operation::Acquire(Cost::ONE)).decision
        };
        for at in 0..5 {
            assert!(charge(&mut record, at).allowed());
        }
        assert_eq!(weight(&record), 5);
        merge_newest(&mut record, 3);
        let Some(State::SlidingLog { admissions, .. }) = &record[0] else {
            panic!("a log")
        };
        let entry = |at, cost| Admission { at, cost };
        assert_eq!(admissions, &[entry(0, 1), entry(1, 1), entry(4, 3)]);
        assert_eq!(charge(&mut record, 5).remaining(), Some(4));
        // Those of 2 and 3 are only gone with that of 4.
        assert_eq!(charge(&mut record, 1_000_003).remaining(), Some(5));
    }

    #[test]
    fn a_log_that_was_long_gives_its_memory_back() {
        let quotas = Quota::parse_list("100000/1s sliding_log").unwrap();
        let mut record = Record::new();
        for at in (0..10_000).chain([1_000_000 + 9_998]) {
            let now = Timestamp::from_micros(at);
            apply(&quotas, &mut record, now, Operation::Acquire(Cost::ONE));
        }
        assert_eq!(weight(&record), 2);
        shrink(&mut record);
        let Some(State::SlidingLog { admissions, .. }) = &record[0] else {
            panic!("a log")
        };
        assert!(admissions.capacity() < 16, "{}", admissions.capacity());
    }
}
