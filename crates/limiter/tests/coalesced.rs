//! Concurrent charges that share trips to the store.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::recorder::Recorded;
use common::{Mode, Scripted, at, quotas};
use tokio::task::{JoinHandle, yield_now};
use tollgate::{
    Algorithm, BackendError, Coalesced, Cost, CounterBackend, Decision, ErrorKind, Key, Limiter,
    Policy, Subject, Timeout, Timestamp,
};
use tollgate_testkit::{Rng, wait_until};

const PATIENT: Duration = Duration::from_secs(20);

type Answer = Result<Decision, BackendError>;

#[derive(Clone)]
struct Lab {
    store: Scripted,
    backend: Arc<Coalesced<Scripted>>,
    policy: Policy,
    now: Timestamp,
}

impl Lab {
    /// Over a store whose calls wait for the test.
    fn new(quota: &str) -> Self {
        Self::over(Scripted::new(Mode::Held), quota)
    }

    fn over(store: Scripted, quota: &str) -> Self {
        Self {
            backend: Arc::new(Coalesced::new(store.clone())),
            store,
            policy: Policy::new("p", quotas(quota)).unwrap(),
            now: at(0),
        }
    }

    fn acquire<'a>(&'a self, key: &'a Key<'a>, cost: Cost) -> impl Future<Output = Answer> + 'a {
        let subject = Subject::new(&self.policy, key).at(self.now);
        self.backend.acquire(subject, cost)
    }

    fn spawn(&self, key: &'static str, cost: Cost) -> JoinHandle<Answer> {
        let lab = self.clone();
        tokio::spawn(async move { lab.acquire(&Key::from(key), cost).await })
    }

    /// A charge that has come to wait before this returns.
    async fn queue(&self, key: &'static str, cost: Cost) -> JoinHandle<Answer> {
        let before = self.backend.waiting();
        let caller = self.spawn(key, cost);
        eventually(|| self.backend.waiting() == before + 1).await;
        caller
    }

    /// Lets the next call of the store go on.
    async fn release(&self) {
        self.store.held().await.send(Ok(())).unwrap();
    }

    async fn remaining(&self, key: &str) -> u64 {
        self.store.set(Mode::Works);
        let key = Key::from(key);
        let subject = Subject::new(&self.policy, &key).at(self.now);
        let peeked = self.store.peek(subject, Cost::ONE).await.unwrap();
        peeked.remaining().unwrap()
    }
}

async fn eventually(condition: impl Fn() -> bool + Send + Sync) {
    wait_until("the condition holds", PATIENT, async || condition()).await;
}

fn cost(cost: u64) -> Cost {
    Cost::new(cost).unwrap()
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

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

#[tokio::test]
async fn an_error_is_that_of_each_and_the_next_trip_works() {
    let lab = Lab::new("10/s");
    let first = lab.spawn("k", Cost::ONE);
    eventually(|| lab.store.calls() == 1).await;
    let mut callers = Vec::new();
    for _ in 0..3 {
        callers.push(lab.queue("k", Cost::ONE).await);
    }
    lab.release().await;
    let batch = lab.store.held().await;
    let next = lab.queue("k", Cost::ONE).await;
    batch.send(Err(ErrorKind::Timeout)).unwrap();
    for caller in callers {
        let error = caller.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(error.to_string(), "timeout: as told");
        assert!(error.may_have_charged());
    }
    lab.release().await;
    assert!(next.await.unwrap().unwrap().allowed());
    assert!(first.await.unwrap().unwrap().allowed());
}

#[tokio::test]
async fn a_panic_of_the_backend_is_an_error_for_those_who_wait_and_blocks_no_key() {
    let lab = Lab::new("10/s");
    let first = lab.spawn("k", Cost::ONE);
    eventually(|| lab.store.calls() == 1).await;
    let second = lab.queue("k", Cost::ONE).await;
    let third = lab.queue("k", Cost::ONE).await;
    lab.store.set(Mode::Panics);
    lab.release().await;
    first.await.unwrap().unwrap();
    for caller in [second, third] {
        let error = caller.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other);
    }
    // The first caller's own panic is its own, and those behind it go on.
    lab.store.set(Mode::Yields(5));
    let key = Key::from("k");
    assert!(lab.acquire(&key, Cost::ONE).await.unwrap().allowed());
    lab.store.set(Mode::Panics);
    assert!(lab.spawn("k", Cost::ONE).await.unwrap_err().is_panic());
    lab.store.set(Mode::Works);
    assert!(lab.acquire(&key, Cost::ONE).await.unwrap().allowed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_keeps_a_key_for_no_longer_than_its_callers_wait() {
    let store = Scripted::new(Mode::Hangs);
    let limit = Duration::from_millis(50);
    let backend = Arc::new(Timeout::new(Coalesced::new(store.clone()), limit));
    let policy = Policy::new("p", quotas("1000/s")).unwrap();
    let call = || {
        let (backend, policy) = (Arc::clone(&backend), policy.clone());
        tokio::spawn(async move {
            let key = Key::from("k");
            backend
                .acquire(Subject::new(&policy, &key), Cost::ONE)
                .await
        })
    };
    // More rounds than trips may go on by themselves.
    for _ in 0..200 {
        // The others have time left when the first gives up, so that their trip hangs too.
        let mut callers = vec![call()];
        tokio::time::sleep(limit / 2).await;
        callers.extend((0..5).map(|_| call()));
        for caller in callers {
            let error = caller.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
    }
    assert!(
        store.calls() >= 400,
        "each round: the first, and the others together"
    );
    store.set(Mode::Works);
    let callers: Vec<_> = (0..5).map(|_| call()).collect();
    for caller in callers {
        assert!(caller.await.unwrap().unwrap().allowed());
    }
    assert_eq!(backend.inner().waiting(), 0);
}

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

#[tokio::test]
async fn different_keys_share_a_trip_once_a_few_are_under_way() {
    let lab = Lab::over(Scripted::new(Mode::Held).merging(), "10/s");
    let mut callers = Vec::new();
    for (i, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
        callers.push(lab.spawn(key, Cost::ONE));
        eventually(|| lab.store.calls() == i as u64 + 1).await;
    }
    for (key, n) in [
        ("e", 1),
        ("!f", 2),
        ("e", 3),
        ("a", 4),
        ("!f", 5),
        ("g", 11),
    ] {
        callers.push(lab.queue(key, cost(n)).await);
    }
    lab.release().await;
    lab.store.set(Mode::Works);
    for _ in 0..3 {
        lab.release().await;
    }
    let mut left = Vec::new();
    for caller in callers {
        left.push(caller.await.unwrap().unwrap().remaining().unwrap());
    }
    assert_eq!(left, [9, 9, 9, 9, 9, 8, 6, 5, 3, 10]);
    let log = lab.store.log();
    assert_eq!(log[4], "e 1 3 | !f 2 5 | g 11 | a 4");
    assert_eq!(log[5], "!f 2 5", "the one that was not decided in company");
    assert_eq!(log.len(), 6);
}

#[tokio::test]
async fn a_failed_trip_fails_all_its_keys_and_frees_its_place() {
    let lab = Lab::over(Scripted::new(Mode::Held).merging(), "10/s");
    for round in 0..10 {
        let mut first = Vec::new();
        let before = lab.store.calls();
        for key in ["a", "b", "c", "d"] {
            first.push(lab.spawn(key, Cost::ONE));
        }
        eventually(|| lab.store.calls() == before + 4).await;
        let waiting = [
            lab.queue("e", Cost::ONE).await,
            lab.queue("f", Cost::ONE).await,
        ];
        for _ in 0..4 {
            lab.release().await;
        }
        let trip = lab.store.held().await;
        if round % 2 == 0 {
            trip.send(Err(ErrorKind::Unavailable)).unwrap();
            for caller in waiting {
                let error = caller.await.unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
        } else {
            waiting.iter().for_each(JoinHandle::abort);
            for caller in waiting {
                let _ = caller.await;
            }
            // It goes on, and gives back what it took.
            trip.send(Ok(())).unwrap();
            lab.release().await;
            lab.release().await;
        }
        for caller in first {
            caller.await.unwrap().unwrap();
        }
    }
}

/// Callers come, go and fail at random. What is used in the end is what those were granted who got
/// an answer, and each answer is that of some order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancelled_callers_neither_lose_nor_leak_quota() {
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
            assert!(
                lab.store
                    .log()
                    .iter()
                    .any(|line| line.starts_with("refund"))
            );
        }
    }
}

#[test]
fn without_a_runtime_every_charge_goes_by_itself() {
    let lab = Lab::over(Scripted::new(Mode::Works), "10/s");
    let key = Key::from("k");
    let lead = Lab::new("10/s");
    let mut first = pin!(lead.acquire(&key, Cost::ONE));
    let mut second = pin!(lead.acquire(&key, Cost::ONE));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    assert_eq!(lead.store.log(), ["k 1", "k 1"]);
    assert!(poll(pin!(lab.acquire(&key, Cost::ONE))).is_ready());
}

#[test]
fn when_its_runtime_ends_those_in_another_are_told_or_begin_anew() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (one, two) = (runtime(), runtime());
    let lab = Lab::new("10/s");
    // In the first: who asks, and who came to wait first.
    let first = one.block_on(async {
        let first = lab.spawn("k", Cost::ONE);
        eventually(|| lab.store.calls() == 1).await;
        [first, lab.queue("k", Cost::ONE).await]
    });
    let [told, anew] = two.block_on(async {
        let told = lab.queue("k", Cost::ONE).await;
        lab.release().await;
        eventually(|| lab.store.calls() == 2).await;
        [told, lab.queue("k", Cost::ONE).await]
    });
    drop(first);
    one.shutdown_timeout(Duration::from_secs(10));
    two.block_on(async {
        let error = told.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        eventually(|| lab.store.calls() == 3).await;
        lab.store.held().await;
        lab.release().await;
        assert!(anew.await.unwrap().unwrap().allowed());
    });
    assert_eq!(lab.store.log(), ["k 1", "k 1 1", "k 1"]);
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

#[tokio::test]
async fn a_limiter_coalesces_where_the_store_prefers_it_or_somebody_says_so() {
    let name = |store: &Scripted, say: Option<bool>| {
        let mut builder = Limiter::builder(store.clone());
        if let Some(on) = say {
            builder = builder.coalesce(on);
        }
        builder.build().to_string()
    };
    let (cheap, dear) = (Scripted::default(), Scripted::default().preferring());
    for (store, say, on) in [
        (&cheap, None, false),
        (&cheap, Some(true), true),
        (&dear, None, true),
        (&dear, Some(false), false),
    ] {
        let name = name(store, say);
        assert_eq!(
            name.contains("Timeout(Coalesced(scripted), 50ms)"),
            on,
            "{name}"
        );
        assert_eq!(name.contains("Timeout(scripted, 50ms)"), !on, "{name}");
    }
}

#[test]
fn its_trips_are_measured() {
    let recorded = Recorded::default();
    metrics::with_local_recorder(&recorded, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = Scripted::new(Mode::Yields(3));
            let limiter = Limiter::builder(store).name("api").coalesce(true).build();
            let limit = limiter.policy("p", quotas("100/s")).unwrap();
            let calls: Vec<_> = (0..8)
                .map(|_| {
                    let limit = limit.clone();
                    tokio::spawn(async move { limit.acquire("k").await.unwrap() })
                })
                .collect();
            for call in calls {
                call.await.unwrap();
            }
        });
    });
    let trips = recorded.count("tollgate_coalesced_charges{limiter=api}");
    assert_eq!(trips, Some(1), "seven charges waited and left together");
    let waiting = recorded.gauge("tollgate_coalesced_waiting{limiter=api}");
    assert_eq!(waiting, Some(0.0));
}
