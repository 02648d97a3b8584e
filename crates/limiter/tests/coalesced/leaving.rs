//! Callers who give up: they take nothing and leak nothing.

use std::pin::pin;
use std::task::Poll;

use crate::common::{Mode, Scripted};
use crate::lab::{Lab, PATIENT, cost, eventually, poll};
use tokio::task::yield_now;
use tollgate::{Cost, Key};
use tollgate_testkit::{Rng, wait_until};

#[tokio::test]
async fn a_caller_who_gives_up_before_the_charge_has_left_takes_nothing() {
    let lab = Lab::new("10/s");
    let first = lab.spawn("k", Cost::ONE);
    eventually(|| lab.store.calls() == 1).await;
    let second = lab.queue("k", cost(2)).await;
    let gone = lab.queue("k", cost(3)).await;
    let fourth = lab.queue("k", cost(4)).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    lab.release().await;
    lab.release().await;
    assert_eq!(first.await.unwrap().unwrap().remaining(), Some(9));
    assert_eq!(second.await.unwrap().unwrap().remaining(), Some(7));
    assert_eq!(fourth.await.unwrap().unwrap().remaining(), Some(3));
    assert_eq!(lab.store.log(), ["k 1", "k 2 4"]);
}

#[tokio::test]
async fn what_callers_took_who_gave_up_on_the_way_is_given_back_once() {
    let lab = Lab::new("10/s");
    let first = lab.spawn("k", Cost::ONE);
    eventually(|| lab.store.calls() == 1).await;
    let mut callers = Vec::new();
    for charge in [2, 1, 3, 9] {
        callers.push(lab.queue("k", cost(charge)).await);
    }
    lab.release().await;
    let batch = lab.store.held().await;
    // The second is charged 2, the fourth 3, and the last is refused.
    for gone in [0, 2, 3] {
        callers[gone].abort();
        let _ = (&mut callers[gone]).await;
    }
    lab.store.set(Mode::Works);
    batch.send(Ok(())).unwrap();
    let third = callers.swap_remove(1).await.unwrap().unwrap();
    assert_eq!(
        third.remaining(),
        Some(6),
        "what came before it was charged"
    );
    first.await.unwrap().unwrap();
    eventually(|| lab.store.log().len() == 3).await;
    assert_eq!(lab.store.log(), ["k 1", "k 2 1 3 9", "refund k 5"]);
    assert_eq!(lab.remaining("k").await, 8);
}

#[tokio::test]
async fn an_answer_that_nobody_takes_is_given_back() {
    let lab = Lab::new("10/s");
    let first = lab.spawn("k", Cost::ONE);
    eventually(|| lab.store.calls() == 1).await;
    let key = Key::from("k");
    {
        let mut call = pin!(lab.acquire(&key, cost(4)));
        assert!(poll(call.as_mut()).is_pending());
        let other = lab.queue("k", cost(2)).await;
        lab.release().await;
        lab.release().await;
        other.await.unwrap().unwrap();
    }
    first.await.unwrap().unwrap();
    lab.store.set(Mode::Works);
    eventually(|| lab.store.log().len() == 3).await;
    assert_eq!(lab.store.log()[2], "refund k 4");
    // It was held if it came before the mode was changed.
    while lab.store.calls() > 3 && lab.remaining("k").await != 7 {
        lab.release().await;
        yield_now().await;
    }
    assert_eq!(lab.remaining("k").await, 7);
}

#[tokio::test]
async fn the_first_caller_may_give_up_without_harm_to_those_who_wait() {
    let lab = Lab::new("10/s");
    let first = lab.spawn("k", Cost::ONE);
    eventually(|| lab.store.calls() == 1).await;
    let second = lab.queue("k", Cost::ONE).await;
    let third = lab.queue("k", Cost::ONE).await;
    first.abort();
    let _ = first.await;
    let lost = lab.store.held().await;
    lab.release().await;
    assert!(lost.is_closed());
    assert_eq!(second.await.unwrap().unwrap().remaining(), Some(9));
    assert_eq!(third.await.unwrap().unwrap().remaining(), Some(8));
}

/// Callers come, go and fail at random. What is used in the end is what those were granted who got
/// an answer, and each answer is that of some order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancelled_callers_neither_lose_nor_leak_quota() {
    let mut refunded = false;
    for merging in [false, true] {
        for seed in 0..8_u64 {
            let store = Scripted::new(Mode::Yields(seed as usize % 5 + 1));
            let store = if merging { store.merging() } else { store };
            let lab = Lab::over(store, "5000/h sliding_window");
            let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
            let callers: Vec<_> = (0..800_u64)
                .map(|n| {
                    let lab = lab.clone();
                    tokio::spawn(async move {
                        let mut rng = Rng::new(seed * 1_000 + n);
                        let name = keys[rng.between(0, 7) as usize];
                        let key = Key::from(name);
                        let cost = Cost::new(rng.between(1, 3)).unwrap();
                        let mut call = pin!(lab.acquire(&key, cost));
                        for _ in 0..rng.between(0, 12) {
                            if let Poll::Ready(answer) = poll(call.as_mut()) {
                                return (name, answer.unwrap().granted());
                            }
                            yield_now().await;
                        }
                        if rng.between(0, 1) == 0 {
                            return (name, 0);
                        }
                        (name, call.await.unwrap().granted())
                    })
                })
                .collect();
            let mut used = std::collections::HashMap::new();
            for caller in callers {
                let (key, granted) = caller.await.unwrap();
                *used.entry(key).or_insert(0) += granted;
            }
            // Callers who have gone wait in the queue until the next trip finds that out.
            wait_until("the queue is empty", PATIENT, async || {
                lab.backend.waiting() == 0
            })
            .await;
            lab.store.set(Mode::Works);
            for key in keys {
                let right = 5_000 - used.get(key).copied().unwrap_or(0);
                wait_until("what was taken in vain is back", PATIENT, async || {
                    lab.remaining(key).await == right
                })
                .await;
            }
            let log = lab.store.log();
            refunded |= log.iter().any(|line| line.starts_with("refund"));
        }
    }
    // Whether one run has any is up to the threads; that none has is up to the code.
    assert!(refunded, "nobody left after the charge was sent");
}
