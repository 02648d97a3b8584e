//! A record as the map keeps it, what it counts as, and how a log is kept within the bound.

use tollgate_core::algorithm::State;
use tollgate_core::record::{self, Record};

/// A record in little space: one window, which is nearly always all there is, needs no allocation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Sliding {
        period: u64,
        window: u64,
        previous: u64,
        current: u64,
    },
    Fixed {
        period: u64,
        window: u64,
        count: u64,
    },
    /// Boxed twice: an entry of the map stays small.
    Other(Box<Record>),
}

impl Kept {
    /// What `record` holds.
    pub(crate) fn new(record: &mut Record) -> Self {
        match record[..] {
            [
                Some(State::SlidingWindow {
                    period,
                    window,
                    previous,
                    current,
                }),
            ] => Self::Sliding {
                period,
                window,
                previous,
                current,
            },
            [
                Some(State::FixedWindow {
                    period,
                    window,
                    count,
                }),
            ] => Self::Fixed {
                period,
                window,
                count,
            },
            _ => {
                record.shrink_to_fit();
                Self::Other(Box::new(std::mem::take(record)))
            }
        }
    }

    /// As the core knows it; `None` if it is kept that way.
    fn state(&self) -> Option<State> {
        match *self {
            Self::Sliding {
                period,
                window,
                previous,
                current,
            } => Some(State::SlidingWindow {
                period,
                window,
                previous,
                current,
            }),
            Self::Fixed {
                period,
                window,
                count,
            } => Some(State::FixedWindow {
                period,
                window,
                count,
            }),
            Self::Other(_) => None,
        }
    }

    /// Lets `change` have it as a record. `scratch` is any record, and is left as any.
    pub(crate) fn update<T>(
        &mut self,
        scratch: &mut Record,
        change: impl FnOnce(&mut Record) -> T,
    ) -> T {
        let Some(state) = self.state() else {
            let Self::Other(record) = self else {
                unreachable!("all other kinds are states");
            };
            return change(record);
        };
        scratch.clear();
        scratch.push(Some(state));
        let answer = change(scratch);
        *self = Self::new(scratch);
        answer
    }

    /// The moment, in microseconds, from which it decides like none.
    pub(crate) fn idle_at(&self) -> u64 {
        match (self, self.state()) {
            (Self::Other(record), _) => record::expires_at(record),
            (_, Some(state)) => state.expires_at(),
            (_, None) => 0,
        }
    }

    /// See [`weight`].
    pub(crate) fn weight(&self) -> u64 {
        match self {
            Self::Other(record) => weight(record),
            _ => 1,
        }
    }

    /// See [`forget_old`]; how much lighter it became.
    pub(crate) fn forget_old(&mut self, now: u64) -> u64 {
        let Self::Other(record) = self else {
            return 0;
        };
        let before = weight(record);
        forget_old(record, now);
        before - weight(record)
    }
}

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
fn forget_old(record: &mut Record, now: u64) {
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
    fn every_record_is_kept_as_it_is() {
        for quotas in [
            "5/1s",
            "5/1s sliding_window",
            "5/1s fixed_window",
            "5/1s sliding_log",
            "5/1s sliding_window, 9/1m fixed_window",
        ] {
            let quotas = Quota::parse_list(quotas).unwrap();
            let mut record = Record::new();
            let mut scratch = Record::new();
            let now = Timestamp::from_micros(7);
            apply(&quotas, &mut record, now, Operation::Acquire(Cost::ONE));
            let mut kept = Kept::new(&mut record.clone());
            for _ in 0..6 {
                let operation = Operation::Acquire(Cost::ONE);
                let expected = apply(&quotas, &mut record, now, operation);
                let answer = kept.update(&mut scratch, |r| apply(&quotas, r, now, operation));
                assert_eq!(answer, expected);
                assert_eq!(kept, Kept::new(&mut record.clone()));
                assert_eq!(kept.idle_at(), tollgate_core::record::expires_at(&record));
            }
        }
        assert!(size_of::<(crate::hash::Fingerprint, Kept)>() <= 56);
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
