//! Who leaves with whom, in which order, and what does not wait at all.

use std::pin::pin;

use crate::common::{Mode, Scripted, at, quotas};
use crate::lab::{Lab, cost, eventually, poll};
use tollgate::{Algorithm, Cost, CounterBackend, Key, Policy, Subject};

#[tokio::test]
async fn those_who_arrive_meanwhile_leave_together_and_are_answered_as_if_alone() {
    for algorithm in Algorithm::ALL {
        let lab = Lab::new(&format!("10/10s {algorithm}"));
        let alone = Scripted::default();
        let costs = [
            Cost::ONE,
            cost(2),
            cost(3),
            cost(9),
            Cost::ONE,
            Cost::range(1, 5).unwrap(),
            Cost::ONE,
            cost(11),
        ];
        let mut callers = vec![lab.spawn("k", costs[0])];
        eventually(|| lab.store.calls() == 1).await;
        for cost in &costs[1..] {
            callers.push(lab.queue("k", *cost).await);
        }
        lab.release().await;
        lab.release().await;
        let key = Key::from("k");
        for (caller, cost) in callers.into_iter().zip(costs) {
            let subject = Subject::new(&lab.policy, &key).at(lab.now);
            let right = alone.acquire(subject, cost).await.unwrap();
            assert_eq!(caller.await.unwrap().unwrap(), right, "{algorithm}");
        }
        assert_eq!(lab.store.log(), ["k 1", "k 2 3 9 1 1-5 1 11"]);
    }
}

#[tokio::test]
async fn a_charge_on_an_idle_key_goes_straight_through_while_others_are_busy() {
    let lab = Lab::new("10/s");
    let busy = lab.spawn("a", Cost::ONE);
    eventually(|| lab.store.calls() == 1).await;
    let key = Key::from("b");
    let mut call = pin!(lab.acquire(&key, Cost::ONE));
    assert!(poll(call.as_mut()).is_pending());
    assert_eq!(
        lab.store.log(),
        ["a 1", "b 1"],
        "in its own future, at once"
    );
    lab.release().await;
    lab.release().await;
    assert!(call.await.unwrap().allowed());
    assert!(busy.await.unwrap().unwrap().allowed());
    assert_eq!(lab.backend.waiting(), 0);
}

#[tokio::test]
async fn one_after_the_other_nothing_waits_and_no_task_is_made() {
    let lab = Lab::over(Scripted::new(Mode::Yields(1)), "100/s");
    let key = Key::from("k");
    for _ in 0..10 {
        let mut call = pin!(lab.acquire(&key, Cost::ONE));
        assert!(poll(call.as_mut()).is_pending());
        assert!(
            poll(call.as_mut()).is_ready(),
            "it needs nobody else to run"
        );
    }
    assert_eq!(lab.store.calls(), 10);
}

#[tokio::test]
async fn other_policies_and_other_times_do_not_share_a_batch() {
    let lab = Lab::new("10/s");
    let mut later = lab.clone();
    later.now = at(500);
    let mut other = lab.clone();
    other.policy = Policy::new("other", quotas("10/s")).unwrap();
    // The same name with other quotas: the same record, but not the same question.
    let mut changed = lab.clone();
    changed.policy = Policy::new("p", quotas("5/s")).unwrap();
    let mut callers = vec![lab.spawn("k", Cost::ONE)];
    eventually(|| lab.store.calls() == 1).await;
    callers.push(lab.queue("k", Cost::ONE).await);
    callers.push(later.spawn("k", Cost::ONE));
    eventually(|| lab.store.calls() == 2).await;
    callers.push(other.spawn("k", Cost::ONE));
    eventually(|| lab.store.calls() == 3).await;
    callers.push(changed.spawn("k", Cost::ONE));
    eventually(|| lab.store.calls() == 4).await;
    callers.push(lab.queue("k", Cost::ONE).await);
    lab.store.set(Mode::Works);
    for _ in 0..4 {
        lab.release().await;
    }
    for caller in callers {
        assert!(caller.await.unwrap().unwrap().allowed());
    }
    assert_eq!(lab.store.log(), ["k 1", "k 1", "k 1", "k 1", "k 1 1"]);
}

#[tokio::test]
async fn the_rest_goes_straight_through() {
    let lab = Lab::new("10/s");
    let first = lab.spawn("k", Cost::ONE);
    eventually(|| lab.store.calls() == 1).await;
    let waiting = lab.queue("k", Cost::ONE).await;
    lab.store.set(Mode::Works);
    let key = Key::from("k");
    let subject = Subject::new(&lab.policy, &key).at(lab.now);
    assert_eq!(
        lab.backend
            .acquire_batch(subject, &[Cost::ONE; 2])
            .await
            .unwrap()
            .len(),
        2
    );
    let peeked = lab.backend.peek(subject, Cost::ONE).await.unwrap();
    assert_eq!(peeked.remaining(), Some(8));
    lab.backend.reset(subject).await.unwrap();
    lab.backend.ping().await.unwrap();
    assert_eq!(lab.backend.warnings(), ["it does as it is told"]);
    assert_eq!(lab.backend.to_string(), "Coalesced(scripted)");
    lab.release().await;
    first.await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().remaining(), Some(8));
}
