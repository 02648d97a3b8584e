use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::algorithm::{self, State};
use tollgate_core::record::Record;
use tollgate_core::{Quota, Refund};

use super::*;
use crate::call::{Acquire, Batch, Call, GiveBack, Peek};

/// Rates with `n` of 1, small and the largest that qualifies, tiny and huge bursts.
fn quotas() -> impl Strategy<Value = Quota> {
    let rates = prop_oneof![
        Just((1, 1_000_000)),
        Just((10, 1_000_000)),
        Just((7, 1_000_000)),
        Just((100, 60_000_000)),
        Just((1_023, 1_000_000)),
        Just((1_000_000_000, 1_000_000)),
        Just((1_024, 1_025_000)),
        Just((1, 3_600_000_000)),
        (1_u64..2_000, 1_000_u64..100_000_000),
    ];
    (
        rates,
        prop_oneof![Just(None), (1_u64..2_000).prop_map(Some)],
    )
        .prop_filter_map("fits the table", |((limit, period), burst)| {
            let quota = Quota::token_bucket(limit, Duration::from_micros(period)).ok()?;
            let quota = match burst {
                Some(burst) => quota.with_burst(burst).ok()?,
                None => quota,
            };
            (quota.tick_micros() == 1 && quota.units_per_tick() <= MAX_N).then_some(quota)
        })
}

#[derive(Clone, Debug)]
enum Op {
    Acquire(u64, u64),
    Batch(Vec<u64>),
    Peek(u64),
    Refund(u64),
    Change(Quota),
}

fn ops() -> impl Strategy<Value = Op> {
    let cost = prop_oneof![
        4 => 1_u64..5,
        2 => 1_u64..2_000,
        1 => Just(u64::MAX),
    ];
    prop_oneof![
        6 => (cost.clone(), 0_u64..10).prop_map(|(cost, more)| Op::Acquire(cost, more)),
        1 => prop::collection::vec(1_u64..5, 0..5).prop_map(Op::Batch),
        2 => cost.clone().prop_map(Op::Peek),
        2 => prop_oneof![cost, Just(0)].prop_map(Op::Refund),
        1 => quotas().prop_map(Op::Change),
    ]
}

/// Mostly forward, a little or far; sometimes back, within the tolerance and beyond.
fn steps() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => Just(0),
        4 => 0_i64..2_000_000,
        2 => 0_i64..200_000_000,
        1 => -70_000_000_i64..0,
        1 => -10_000_000_000_i64..0,
    ]
}

fn both<C: Call>(
    call: &C,
    policy: &Policy,
    stored: &mut Option<Stored>,
    record: &mut Record,
    now: u64,
) -> Result<(), TestCaseError>
where
    C::Answer: PartialEq + std::fmt::Debug,
{
    let rate = Rate::of(policy, now).expect("the quota fits and the moment is before 2112");
    let (outcome, write) = call.bucket(&rate, *stored, now);
    let (expected, changed) = call.record(policy.quotas(), record, now);
    prop_assert_eq!(call.answer(&rate, now, outcome), expected);
    prop_assert_eq!(write.is_some(), changed);
    if let Some(tat) = write {
        *stored = Some(Stored { tat, n: rate.n });
        let state = State::TokenBucket {
            tick: 1,
            n: rate.n,
            tat: tat.into(),
        };
        prop_assert_eq!(&record[..], &[Some(state)]);
        prop_assert_eq!(
            stored.map(Stored::idle_at),
            Some(tollgate_core::record::expires_at(record))
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_step_is_the_cores_own(
        quota in quotas(),
        start in prop_oneof![1_700_000_000_000_000_u64..1_800_000_000_000_000, Just(0), Just(MAX_NOW - 1)],
        calls in prop::collection::vec((steps(), ops()), 1..80),
    ) {
        let policy = |quota| Policy::new("p", [quota]).unwrap();
        let mut policy_now = policy(quota);
        let (mut stored, mut record) = (None, Record::new());
        let mut now = start;
        for (step, op) in calls {
            now = now.saturating_add_signed(step).min(MAX_NOW);
            let (p, s, r) = (&policy_now, &mut stored, &mut record);
            match op {
                Op::Acquire(cost, more) => {
                    let cost = Cost::range(cost, cost.saturating_add(more)).unwrap();
                    both(&Acquire(cost), p, s, r, now)?;
                }
                Op::Batch(costs) => {
                    let costs: Vec<_> = costs.iter().map(|c| Cost::new(*c).unwrap()).collect();
                    both(&Batch(&costs), p, s, r, now)?;
                }
                Op::Peek(cost) => both(&Peek(Cost::new(cost).unwrap()), p, s, r, now)?,
                Op::Refund(cost) => {
                    let charged_at = Timestamp::from_micros(now);
                    both(&GiveBack(Refund { cost, charged_at }), p, s, r, now)?;
                }
                Op::Change(quota) => policy_now = policy(quota),
            }
            if let Some(stored) = stored {
                let mut fresh = Record::new();
                let cost = Cost::ONE;
                let as_none = algorithm::apply(
                    policy_now.quotas(),
                    &mut fresh,
                    Timestamp::from_micros(now),
                    algorithm::Operation::Peek(cost),
                );
                let (is, _) = Peek(cost).record(policy_now.quotas(), &mut record.clone(), now);
                prop_assert!(!stored.is_idle(now) || is == as_none.decision);
            }
        }
    }
}

#[test]
fn what_does_not_fit_the_table_is_not_counted_there() {
    let fits = |quotas: &str, now| {
        let policy = Policy::new("p", Quota::parse_list(quotas).unwrap()).unwrap();
        Rate::of(&policy, now).is_some()
    };
    assert!(fits("100/60s", 0));
    assert!(fits("1000000000/1s", MAX_NOW));
    assert!(!fits("100/60s", MAX_NOW + 1));
    assert!(!fits("1000000007/1s", 0), "n is too large");
    assert!(!fits("5/1s, 100/1m", 0), "two quotas");
    assert!(!fits("100/60s sliding_window", 0), "another algorithm");
    assert!(!fits("7/30d burst=10000", 0), "another tick");
}
