//! The arithmetic at its edges. The traces that every backend must reproduce run in the testkit.

use super::*;
use crate::{Cost, Decision, Refund, Timestamp};

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn acquire(quotas: &[Quota], record: &mut Vec<Option<State>>, now: u64, cost: u64) -> Decision {
    apply(
        quotas,
        record,
        at(now),
        Operation::Acquire(Cost::new(cost).unwrap()),
    )
    .decision
}

#[test]
fn a_refusal_leaves_the_record_as_it_was() {
    for algorithm in Algorithm::ALL {
        let quotas = [Quota::new(algorithm, 2, Duration::from_secs(1)).unwrap()];
        let mut record = Vec::new();
        assert!(acquire(&quotas, &mut record, 10_000_000, 2).allowed());
        let before = record.clone();
        assert!(!acquire(&quotas, &mut record, 10_400_000, 2).allowed());
        assert_eq!(record, before, "{algorithm}");
    }
}

#[test]
fn a_rate_whose_units_pass_64_bits_is_exact() {
    // A prime limit: n is the limit itself, and now in units is about 2^103.
    let quotas = ["4503599627370449/s burst=1".parse().unwrap()];
    let mut record = Vec::new();
    let now = 1_700_000_000_000_000;
    assert!(acquire(&quotas, &mut record, now, 1).allowed());
    assert_eq!(
        acquire(&quotas, &mut record, now, 1).retry_after(),
        Some(Duration::from_micros(1))
    );
    assert!(acquire(&quotas, &mut record, now + 1, 1).allowed());
}

#[test]
fn a_changed_rate_keeps_the_time_until_full() {
    let now = 1_000_000_000;
    let mut record = Vec::new();
    acquire(&["10/10s".parse().unwrap()], &mut record, now, 5);
    // Full in 5 s; at 7 a second the bucket of 70 is half empty.
    let answer = apply(
        &["70/10s".parse().unwrap()],
        &mut record,
        at(now),
        Operation::Peek(Cost::ONE),
    );
    assert_eq!(answer.decision.remaining(), Some(35));
    assert_eq!(answer.decision.reset_after(), Some(Duration::from_secs(5)));
}

#[test]
fn another_algorithm_or_period_reads_as_absent() {
    let now = 1_000_000_000;
    let mut record = Vec::new();
    acquire(
        &["10/10s fixed_window".parse().unwrap()],
        &mut record,
        now,
        10,
    );
    for other in [
        "10/10s",
        "10/10s sliding_window",
        "10/20s fixed_window",
        "10/10s sliding_log",
    ] {
        let answer = apply(
            &[other.parse().unwrap()],
            &mut record,
            at(now),
            Operation::Peek(Cost::ONE),
        );
        assert_eq!(answer.decision.remaining(), Some(10), "{other}");
    }
}

#[test]
fn a_refund_that_gives_nothing_back_changes_nothing() {
    for algorithm in Algorithm::ALL {
        let quotas = [Quota::new(algorithm, 5, Duration::from_secs(60)).unwrap()];
        let mut record = Vec::new();
        let refund = Refund {
            cost: 5,
            charged_at: at(60_000_000),
        };
        let applied = apply(
            &quotas,
            &mut record,
            at(60_000_000),
            Operation::Refund(refund),
        );
        assert!(!applied.changed && record.is_empty(), "{algorithm}");
    }
}

#[test]
fn the_headers_example_of_a_sliding_window() {
    // 2 of 1,000 an hour, a minute into the window: 998 left for the next 3,540 s at least.
    let quotas = ["1000/h sliding_window".parse().unwrap()];
    let decision = acquire(&quotas, &mut Vec::new(), 3_600_000_000 * 10 + 60_000_000, 2);
    assert_eq!(
        decision.quotas()[0].more_after,
        Some(Duration::from_secs(3_540))
    );
}
