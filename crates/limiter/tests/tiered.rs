//! The memory of refusals.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Mode, Scripted, at, quotas};
use tokio::time::advance;
use tollgate::{
    Algorithm, Cost, CounterBackend, Decision, ErrorKind, FailurePolicy, Fallback, Key, Limiter,
    ManualClock, Origin, Policy, Quota, Refund, Subject, Tiered, Timestamp,
};

const SECOND: Duration = Duration::from_secs(1);

struct Lab {
    store: Scripted,
    tiered: Tiered<Scripted>,
    policy: Policy,
    now: Timestamp,
}

impl Lab {
    fn new(quota: &str) -> Self {
        let store = Scripted::default();
        Self {
            tiered: Tiered::new(store.clone(), 1_000),
            store,
            policy: Policy::new("p", quotas(quota)).unwrap(),
            now: at(0),
        }
    }

    async fn acquire(&self, key: &str, cost: u64) -> Decision {
        let key = Key::from(key);
        let subject = Subject::new(&self.policy, &key).at(self.now);
        self.tiered
            .acquire(subject, Cost::new(cost).unwrap())
            .await
            .unwrap()
    }

    /// The answer, and whether the store was asked.
    async fn seen(&self, cost: u64) -> (Decision, bool) {
        let before = self.store.calls();
        let decision = self.acquire("k", cost).await;
        assert_eq!(
            decision.origin() == Origin::Shared,
            self.store.calls() > before
        );
        (decision, self.store.calls() > before)
    }

    /// Uses up the quota and is refused once.
    async fn exhaust(&self) {
        let all = self.policy.capacity();
        assert!(self.acquire("k", all).await.allowed());
        assert!(!self.acquire("k", 1).await.allowed());
    }
}

#[tokio::test]
async fn s86_a_refused_client_does_not_reach_the_store_until_something_fits() {
    for algorithm in Algorithm::ALL {
        let mut lab = Lab::new(&format!("10/10s {algorithm}"));
        lab.exhaust().await;
        let (first, _) = lab.seen(1).await;
        let wait = first.retry_after().unwrap();
        let until = lab.now + wait;
        let asked = lab.store.calls();
        for millis in 1..200 {
            lab.now = at(millis * 5);
            if lab.now >= until {
                break;
            }
            let (decision, asked) = lab.seen(1).await;
            assert!(!decision.allowed() && !asked, "{algorithm}");
            assert_eq!(decision.granted(), 0);
            assert_eq!(
                decision.retry_after(),
                Some(until.saturating_since(lab.now))
            );
        }
        lab.now = until - Duration::from_micros(1);
        assert!(!lab.acquire("k", 1).await.allowed());
        assert_eq!(lab.store.calls(), asked, "{algorithm}");
        lab.now = until;
        let (decision, asked) = lab.seen(1).await;
        assert!(decision.allowed() && asked, "{algorithm}: {decision:?}");
    }
}

#[tokio::test]
async fn a_larger_cost_is_refused_here_and_a_smaller_one_is_asked() {
    for algorithm in Algorithm::ALL {
        let lab = Lab::new(&format!("10/10s {algorithm}"));
        assert!(lab.acquire("k", 7).await.allowed());
        let (refused, _) = lab.seen(5).await;
        assert!(!refused.allowed());
        for cost in [5, 6, 10] {
            let (decision, asked) = lab.seen(cost).await;
            assert!(!decision.allowed() && !asked, "{algorithm}: {cost}");
            assert!(
                decision.retry_after() >= refused.retry_after(),
                "{algorithm}: {cost}"
            );
        }
        let (decision, asked) = lab.seen(11).await;
        assert!(decision.is_never() && !asked, "{algorithm}");
        let (decision, asked) = lab.seen(3).await;
        assert!(decision.allowed() && asked, "{algorithm}");
        // That changed what is there, so the refusal is no longer known to be right.
        let (decision, asked) = lab.seen(5).await;
        assert!(!decision.allowed() && asked, "{algorithm}");
    }
}

/// Beside the same calls on the store itself: what is answered is right, and no wait too short.
#[tokio::test]
async fn answers_beside_the_store_itself() {
    let mut rng = tollgate_testkit::Rng::new(7);
    let mut remembered = 0;
    for round in 0..200 {
        let algorithm = Algorithm::ALL[round % 4];
        let many: Vec<Quota> = (0..=round % 3).map(|_| rng.quota(algorithm)).collect();
        let mut lab = Lab::new("1/s");
        lab.policy = Policy::new("p", many.clone()).unwrap();
        let alone = Scripted::default();
        let key = Key::from("k");
        lab.now = rng.moment();
        for _ in 0..60 {
            let cost = rng.cost(lab.policy.capacity());
            let subject = Subject::new(&lab.policy, &key).at(lab.now);
            let right = alone.acquire(subject, cost).await.unwrap();
            let got = lab.tiered.acquire(subject, cost).await.unwrap();
            let what = format!(
                "{many:?} at {:?}: {cost:?}: {got:?}, not {right:?}",
                lab.now
            );
            assert_eq!(
                (got.allowed(), got.granted()),
                (right.allowed(), right.granted()),
                "{what}"
            );
            match got.origin() {
                Origin::Shared => assert_eq!(got, right, "{what}"),
                _ => {
                    remembered += 1;
                    let waits = (got.retry_after(), right.retry_after());
                    assert!(
                        waits.0.is_none() == waits.1.is_none() && waits.0 >= waits.1,
                        "{what}"
                    );
                    for (got, right) in got.quotas().iter().zip(right.quotas()) {
                        assert_eq!(got.remaining, right.remaining, "{what}");
                        assert!(got.reset_after >= right.reset_after, "{what}");
                    }
                }
            }
            lab.now = lab.now + rng.pause(lab.now, many[0].period()) / 3;
        }
    }
    assert!(
        remembered > 1_000,
        "only {remembered} answers were remembered"
    );
}

#[tokio::test]
async fn s87_forget_drops_it() {
    let lab = Lab::new("10/10s");
    lab.exhaust().await;
    assert!(!lab.seen(1).await.1);
    lab.tiered.forget();
    assert_eq!(lab.tiered.remembered(), 0);
    let (decision, asked) = lab.seen(1).await;
    assert!(!decision.allowed() && asked);
    // So does a new one.
    let fresh = Tiered::new(lab.store.clone(), 10);
    let key = Key::from("k");
    let asked = lab.store.calls();
    let subject = Subject::new(&lab.policy, &key).at(lab.now);
    assert!(!fresh.acquire(subject, Cost::ONE).await.unwrap().allowed());
    assert_eq!(lab.store.calls(), asked + 1);
}

#[tokio::test]
async fn s94_counters_are_only_in_the_shared_tier() {
    let lab = Lab::new("10/10s");
    lab.exhaust().await;
    lab.tiered.forget();
    assert!(
        !lab.acquire("k", 1).await.allowed(),
        "forgetting resets no counter"
    );
    let key = Key::from("k");
    let subject = Subject::new(&lab.policy, &key).at(lab.now);
    let state = lab.store.peek(subject, Cost::ONE).await.unwrap();
    assert_eq!(state.remaining(), Some(0));
    // Another process on the same store sees them.
    let other = Tiered::new(lab.store.clone(), 10);
    assert!(!other.acquire(subject, Cost::ONE).await.unwrap().allowed());
}

#[tokio::test]
async fn a_reset_or_a_refund_drops_it_even_if_it_fails() {
    let lab = Lab::new("10/10s");
    let key = Key::from("k");
    let subject = Subject::new(&lab.policy, &key).at(lab.now);
    let refund = Refund {
        cost: 10,
        charged_at: lab.now,
    };
    for (resets, fails) in [(true, false), (true, true), (false, false), (false, true)] {
        lab.store.set(Mode::Works);
        lab.tiered.reset(subject).await.unwrap();
        lab.exhaust().await;
        assert!(!lab.seen(1).await.1);
        if fails {
            lab.store.set(Mode::Fails(ErrorKind::Timeout));
        }
        let done = if resets {
            lab.tiered.reset(subject).await.is_ok()
        } else {
            lab.tiered.refund(subject, refund).await.is_ok()
        };
        assert_eq!(done, !fails);
        lab.store.set(Mode::Works);
        let (decision, asked) = lab.seen(1).await;
        assert_eq!((decision.allowed(), asked), (!fails, true));
    }
}

/// A refusal is under way when the key is reset: it must not be remembered after.
#[tokio::test]
async fn a_refusal_from_before_a_reset_is_not_remembered_after_it() {
    let lab = Arc::new(Lab::new("10/10s"));
    lab.exhaust().await;
    lab.tiered.forget();
    lab.store.set(Mode::Held);
    let asking = Arc::clone(&lab);
    let asking = tokio::spawn(async move { asking.acquire("k", 1).await });
    let release = lab.store.held().await;
    lab.store.set(Mode::Works);
    // The store decides after the test lets it; a refusal it stays, of another key's making.
    let key = Key::from("k");
    let subject = Subject::new(&lab.policy, &key).at(lab.now);
    lab.tiered
        .refund(
            subject,
            Refund {
                cost: 0,
                charged_at: lab.now,
            },
        )
        .await
        .unwrap();
    release.send(Ok(())).unwrap();
    assert!(!asking.await.unwrap().allowed());
    assert_eq!(lab.tiered.remembered(), 0);
}

#[tokio::test]
async fn only_what_the_store_decided_is_remembered() {
    for rule in [FailurePolicy::Closed, FailurePolicy::Local] {
        let store = Scripted::new(Mode::Fails(ErrorKind::Unavailable));
        let tiered = Tiered::new(Fallback::new(store, rule), 100);
        let policy = Policy::new("p", quotas("1/10s")).unwrap();
        let key = Key::from("k");
        let subject = Subject::new(&policy, &key).at(at(0));
        for _ in 0..5 {
            let decision = tiered.acquire(subject, Cost::ONE).await.unwrap();
            assert!(!decision.origin().is_enforced());
        }
        assert_eq!(tiered.remembered(), 0, "{rule}");
    }
}

#[tokio::test]
async fn other_quotas_of_the_same_name_do_not_know_it() {
    let mut lab = Lab::new("10/10s");
    lab.exhaust().await;
    lab.policy = Policy::new("p", quotas("20/10s")).unwrap();
    assert!(lab.seen(1).await.1);
}

#[tokio::test]
async fn a_flood_of_refused_keys_stays_within_the_bound_and_drains() {
    let mut lab = Lab::new("1/10s");
    for i in 0..5_000 {
        let key = format!("k{i}");
        assert!(lab.acquire(&key, 1).await.allowed());
        assert!(!lab.acquire(&key, 1).await.allowed());
    }
    assert!(lab.tiered.remembered() <= 1_000);
    assert!(lab.tiered.remembered() > 500, "{}", lab.tiered.remembered());
    // Once it is over, one in some calls that find nothing tidies up a set.
    lab.now = at(20_000);
    for i in 0..5_000 {
        lab.acquire(&format!("other {i}"), 1).await;
    }
    assert_eq!(lab.tiered.remembered(), 0);
}

#[tokio::test]
async fn a_clock_that_moves_back_asks_the_store() {
    let mut lab = Lab::new("10/10s");
    lab.now = at(100_000);
    lab.exhaust().await;
    assert!(!lab.seen(1).await.1);
    lab.now = at(99_000);
    assert!(lab.seen(1).await.1);
}

#[tokio::test]
async fn a_batch_that_is_all_refused_does_not_reach_the_store() {
    let lab = Lab::new("10/10s");
    let key = Key::from("k");
    let subject = Subject::new(&lab.policy, &key).at(lab.now);
    let (two, ten) = (Cost::new(2).unwrap(), Cost::new(10).unwrap());
    let answers = lab
        .tiered
        .acquire_batch(subject, &[ten, two, ten])
        .await
        .unwrap();
    assert_eq!(answers.iter().filter(|answer| answer.allowed()).count(), 1);
    let asked = lab.store.calls();
    let answers = lab
        .tiered
        .acquire_batch(subject, &[ten, two])
        .await
        .unwrap();
    assert!(
        answers
            .iter()
            .all(|a| a.origin() == Origin::RememberedRefusal)
    );
    assert_eq!(lab.store.calls(), asked);
    lab.tiered
        .acquire_batch(subject, &[ten, Cost::ONE])
        .await
        .unwrap();
    assert_eq!(lab.store.calls(), asked + 1, "a smaller one may fit");
}

/// In the time of the process: until `retry_after` has passed by it, and not longer.
#[tokio::test(start_paused = true)]
async fn it_runs_on_the_time_of_the_process_too() {
    let store = Scripted::default();
    let clock = ManualClock::new(at(0));
    let tiered = Tiered::new(store.clone(), 10);
    let policy = Policy::new("p", quotas("1/10s")).unwrap();
    let key = Key::from("k");
    // The store is asked in its own time, which is far from virtual time.
    let now = Subject::new(&policy, &key);
    assert!(tiered.acquire(now, Cost::ONE).await.unwrap().allowed());
    let wait = tiered
        .acquire(now, Cost::ONE)
        .await
        .unwrap()
        .retry_after()
        .unwrap();
    assert_eq!(store.calls(), 2);
    advance(SECOND).await;
    let left = tiered
        .acquire(now, Cost::ONE)
        .await
        .unwrap()
        .retry_after()
        .unwrap();
    assert!(left >= wait - SECOND && left <= wait - SECOND + Duration::from_millis(2));
    advance(left - Duration::from_millis(2)).await;
    assert!(!tiered.acquire(now, Cost::ONE).await.unwrap().allowed());
    assert_eq!(store.calls(), 2);
    advance(Duration::from_millis(4)).await;
    let _ = tiered.acquire(now, Cost::ONE).await.unwrap();
    assert_eq!(store.calls(), 3);
    // What is known of one time says nothing of the other.
    let virtual_time = now.at(tollgate::Clock::now(&clock) + Duration::from_secs(1_000_000_000));
    let _ = tiered.acquire(virtual_time, Cost::ONE).await.unwrap();
    assert_eq!(store.calls(), 4);
}

#[tokio::test]
async fn a_limiter_remembers_unless_told_not_to() {
    for (remembers, expected) in [(true, 2), (false, 10)] {
        let store = Scripted::default();
        let mut builder = Limiter::builder(store.clone());
        if !remembers {
            builder = builder.forget_refusals();
        }
        let limiter = builder.build();
        let limit = limiter.policy("p", quotas("1/h")).unwrap();
        for _ in 0..10 {
            limit.acquire("alice").await.unwrap();
        }
        assert_eq!(store.calls(), expected);
        limiter.forget();
        limit.acquire("alice").await.unwrap();
        assert_eq!(store.calls(), expected + 1);
        limit.reset("alice").await.unwrap();
        assert!(limit.acquire("alice").await.unwrap().allowed());
    }
}

/// Another process resets the counter: noticed once the bound has passed, and not before.
#[tokio::test]
async fn a_bound_makes_a_reset_by_another_process_noticed() {
    for algorithm in Algorithm::ALL {
        let mut lab = Lab::new(&format!("10/10s {algorithm}"));
        lab.tiered = Tiered::new(lab.store.clone(), 1_000).for_at_most(SECOND / 4);
        lab.exhaust().await;
        let key = Key::from("k");
        let elsewhere = Subject::new(&lab.policy, &key).at(lab.now);
        lab.store.reset(elsewhere).await.unwrap();
        lab.now = at(249);
        let (decision, asked) = lab.seen(1).await;
        assert!(!decision.allowed() && !asked, "{algorithm}");
        lab.now = at(250);
        let (decision, asked) = lab.seen(1).await;
        assert!(decision.allowed() && asked, "{algorithm}");
    }
    // A wait that ends sooner is not made longer.
    let mut lab = Lab::new("10/s");
    lab.tiered = Tiered::new(lab.store.clone(), 1_000).for_at_most(SECOND * 60);
    lab.exhaust().await;
    lab.now = at(100);
    assert!(lab.seen(1).await.0.allowed());
}

#[tokio::test]
async fn a_limiter_remembers_for_as_long_as_it_is_told() {
    for (limit, expected) in [(Duration::ZERO, 10), (SECOND * 5, 3)] {
        let store = Scripted::default();
        let clock = ManualClock::new(at(0));
        let limiter = Limiter::builder(store.clone())
            .clock(clock.clone())
            .remember_refusals_for(limit)
            .build();
        let policy = limiter.policy("p", quotas("1/h")).unwrap();
        for _ in 0..10 {
            policy.acquire("alice").await.unwrap();
            clock.advance(SECOND);
        }
        // One admitted, one refused at 1 s, and one more at 6 s.
        assert_eq!(store.calls(), expected);
        assert_eq!(
            limiter.to_string().ends_with(", 5s)"),
            limit > Duration::ZERO
        );
    }
}
