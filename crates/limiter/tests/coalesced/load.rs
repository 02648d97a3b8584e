//! Bounds, and many charges at once.

use std::sync::Arc;

use crate::common::{Mode, Scripted};
use crate::lab::{Lab, eventually};
use tokio::task::JoinHandle;
use tollgate::{Coalesced, Cost, Key};

#[tokio::test]
async fn beyond_the_bound_of_the_queue_a_charge_goes_by_itself() {
    let mut lab = Lab::new("100/s");
    lab.backend = Arc::new(Coalesced::new(lab.store.clone()).queue(2));
    let mut callers = vec![lab.spawn("k", Cost::ONE)];
    eventually(|| lab.store.calls() == 1).await;
    callers.push(lab.queue("k", Cost::ONE).await);
    callers.push(lab.queue("k", Cost::ONE).await);
    callers.push(lab.spawn("k", Cost::ONE));
    eventually(|| lab.store.calls() == 2).await;
    assert_eq!(lab.backend.waiting(), 2);
    lab.release().await;
    lab.release().await;
    lab.release().await;
    for caller in callers {
        assert!(caller.await.unwrap().unwrap().allowed());
    }
    assert_eq!(lab.store.log(), ["k 1", "k 1", "k 1 1"]);
}

#[tokio::test]
async fn a_batch_is_bounded_and_the_rest_leaves_next_in_order() {
    let lab = Lab::new("100000/s");
    let mut callers = vec![lab.spawn("k", Cost::ONE)];
    eventually(|| lab.store.calls() == 1).await;
    callers.extend((0..2_500).map(|_| lab.spawn("k", Cost::ONE)));
    eventually(|| lab.backend.waiting() == 2_500).await;
    lab.store.set(Mode::Works);
    lab.release().await;
    for (i, caller) in callers.into_iter().enumerate() {
        let decision = caller.await.unwrap().unwrap();
        assert_eq!(decision.remaining(), Some(99_999 - i as u64));
    }
    let sizes = |line: &String| line.split(' ').count() - 1;
    let sizes: Vec<_> = lab.store.log().iter().map(sizes).collect();
    assert_eq!(sizes, [1, 1_024, 1_024, 452]);
}

#[tokio::test]
async fn a_flood_on_one_key_does_not_keep_another_waiting() {
    let lab = Lab::over(Scripted::new(Mode::Yields(2)).merging(), "1000000/s");
    let flood: Vec<_> = (0..64)
        .map(|_| {
            let lab = lab.clone();
            tokio::spawn(async move {
                let key = Key::from("hot");
                loop {
                    lab.acquire(&key, Cost::ONE).await.unwrap();
                }
            })
        })
        .collect();
    for turn in 0..100 {
        let before = lab.store.calls();
        let key = Key::from("cold");
        assert!(lab.acquire(&key, Cost::ONE).await.unwrap().allowed());
        // A trip that is under way, its own, and as many of the others meanwhile.
        let trips = lab.store.calls() - before;
        assert!(trips <= 6, "{trips} trips in turn {turn}");
    }
    flood.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn batches_really_form() {
    let lab = Lab::over(Scripted::new(Mode::Yields(3)), "1000000/s");
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let lab = lab.clone();
            tokio::spawn(async move {
                let key = Key::from("k");
                for _ in 0..100 {
                    lab.acquire(&key, Cost::ONE).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let trips = lab.store.calls();
    assert!(trips <= 6_400 / 50, "{trips} trips for 6,400 charges");
    assert_eq!(lab.remaining("k").await, 1_000_000 - 6_400);
}
