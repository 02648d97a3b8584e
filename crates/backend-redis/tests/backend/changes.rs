//! The Lua twins beside the pure steps: random calls on a record whose quotas keep changing.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::time::Duration;
use tollgate_core::algorithm::{Operation, apply, apply_batch};
use tollgate_core::{
    Algorithm, Cost, CounterBackend, Key, Policy, Quota, Refund, Subject, Timestamp,
};
use tollgate_redis::RedisBackend;
use tollgate_testkit::shared_redis;

use super::T0;

#[derive(Clone, Debug)]
enum Call {
    Acquire(u64, u64),
    Batch(Vec<u64>),
    Peek(u64),
    Refund(usize, u64),
    Reset,
    /// Other quotas under the same name.
    Change(Vec<Quota>),
}

fn quota() -> impl Strategy<Value = Quota> {
    let limits = prop_oneof![1_u64..6, 1_u64..200, 1_u64..10_000_000];
    let periods = prop_oneof![
        Just(1_000_u64),
        Just(1_000_000),
        Just(7_000_000),
        Just(60_000_000),
        1_000_u64..100_000_000,
        Just(86_400_000_000),
    ];
    let quota = (0_usize..4, limits, periods, proptest::option::of(1_u64..50));
    quota.prop_filter_map("cannot be counted", |(algorithm, limit, period, burst)| {
        let quota = Quota::new(
            Algorithm::ALL[algorithm],
            limit,
            Duration::from_micros(period),
        )
        .ok()?;
        match burst {
            Some(burst) if algorithm == 0 => quota.with_burst(burst).ok(),
            _ => Some(quota),
        }
    })
}

fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    proptest::collection::vec(quota(), 1..4)
}

fn call() -> impl Strategy<Value = Call> {
    let cost = || prop_oneof![6 => 1_u64..4, 2 => 1_u64..200, 1 => 1_u64..10_000_000];
    prop_oneof![
        8 => (cost(), prop_oneof![3 => Just(0_u64), 1 => 0_u64..20]).prop_map(|(cost, more)| Call::Acquire(cost, cost + more)),
        2 => proptest::collection::vec(cost(), 1..5).prop_map(Call::Batch),
        2 => cost().prop_map(Call::Peek),
        3 => (any::<usize>(), cost()).prop_map(|(which, cost)| Call::Refund(which, cost)),
        1 => Just(Call::Reset),
        2 => quotas().prop_map(Call::Change),
    ]
}

/// Pauses, in microseconds; sometimes the clock moves back.
fn pause() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => Just(0_i64),
        4 => 0_i64..2_000,
        3 => 0_i64..10_000_000,
        1 => 0_i64..200_000_000_000,
        1 => -5_000_000_i64..0,
        1 => -300_000_000_i64..0,
    ]
}

#[test]
fn every_script_is_the_twin_of_the_pure_steps_while_quotas_change() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let backend = runtime.block_on(async { super::backend(shared_redis().await.url()).await });
    let config = Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    };
    let calls = proptest::collection::vec((pause(), call()), 1..60);
    TestRunner::new(config)
        .run(&(quotas(), calls), |(quotas, calls)| {
            runtime.block_on(compare(&backend, &super::name(), quotas, calls));
            Ok(())
        })
        .unwrap();
}

async fn compare(backend: &RedisBackend, name: &str, quotas: Vec<Quota>, calls: Vec<(i64, Call)>) {
    let mut policy = Policy::new(name, quotas).unwrap();
    let (key, mut now, mut record) = (Key::from("k"), T0, Vec::new());
    let mut charges: Vec<Timestamp> = vec![T0];
    for (pause, call) in calls {
        now = Timestamp::from_micros(now.as_micros().saturating_add_signed(pause));
        let subject = Subject::new(&policy, &key).at(now);
        let what = format!(
            "{call:?} at {now:?} on {:?} after {record:?}",
            policy.quotas()
        );
        match call {
            Call::Acquire(min, max) => {
                let cost = Cost::range(min, max).unwrap();
                let got = backend.acquire(subject, cost).await.unwrap();
                let right =
                    apply(policy.quotas(), &mut record, now, Operation::Acquire(cost)).decision;
                assert_eq!(got, right, "{what}");
                charges.push(right.charged_at());
            }
            Call::Batch(costs) => {
                let costs: Vec<_> = costs
                    .into_iter()
                    .map(|cost| Cost::new(cost).unwrap())
                    .collect();
                let got = backend.acquire_batch(subject, &costs).await.unwrap();
                let (right, _) = apply_batch(policy.quotas(), &mut record, now, &costs);
                assert_eq!(got, right, "{what}");
            }
            Call::Peek(cost) => {
                let cost = Cost::new(cost).unwrap();
                let got = backend.peek(subject, cost).await.unwrap();
                let right =
                    apply(policy.quotas(), &mut record, now, Operation::Peek(cost)).decision;
                assert_eq!(got, right, "{what}");
            }
            Call::Refund(which, cost) => {
                let charged_at = charges[which % charges.len()];
                let refund = Refund { cost, charged_at };
                let got = backend.refund(subject, refund).await.unwrap();
                let right =
                    apply(policy.quotas(), &mut record, now, Operation::Refund(refund)).decision;
                assert_eq!(got.quotas(), right.quotas(), "{what}");
            }
            Call::Reset => {
                backend.reset(subject).await.unwrap();
                record.clear();
            }
            Call::Change(quotas) => policy = Policy::new(name, quotas).unwrap(),
        }
    }
}
