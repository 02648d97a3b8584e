//! The circuit breaker and the timeout. Time is the runtime's, paused: it moves when all wait.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{Mode, Scripted, quotas};
use tokio::time::{Instant, advance};
use tollgate::{
    BackendError, Breaker, BreakerState, CircuitBreaker, Cost, CounterBackend, Decision, ErrorKind,
    FailurePolicy, Fallback, Key, Policy, Subject, Timeout,
};

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_millis(50);

fn settings() -> Breaker {
    Breaker {
        failures: 5,
        ratio: None,
        cooldown: SECOND,
        ..Breaker::default()
    }
}

async fn ask(backend: &impl CounterBackend) -> Result<Decision, BackendError> {
    let policy = Policy::new("p", quotas("1000000/s")).unwrap();
    let key = Key::from("k");
    backend
        .acquire(Subject::new(&policy, &key), Cost::ONE)
        .await
}

async fn kind(backend: &impl CounterBackend) -> ErrorKind {
    ask(backend).await.unwrap_err().kind()
}

/// Makes it fail until it opens.
async fn open(breaker: &CircuitBreaker<Scripted>) {
    for _ in 0..5 {
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert_eq!(kind(breaker).await, ErrorKind::Unavailable);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_the_timeout_and_not_later() {
    let store = Scripted::new(Mode::Hangs);
    let start = Instant::now();
    assert_eq!(
        kind(&Timeout::new(store.clone(), LIMIT)).await,
        ErrorKind::Timeout
    );
    assert!(start.elapsed() >= LIMIT && start.elapsed() <= LIMIT + Duration::from_millis(2));

    store.set(Mode::Slow(LIMIT / 2));
    assert!(ask(&Timeout::new(store, LIMIT)).await.unwrap().allowed());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_without_end_does_not_overflow() {
    let backend = Timeout::new(Scripted::new(Mode::Slow(SECOND)), Duration::MAX);
    assert!(ask(&backend).await.unwrap().allowed());
    let endless = Breaker {
        cooldown: Duration::MAX,
        ..settings()
    };
    let breaker = CircuitBreaker::new(Scripted::new(Mode::Fails(ErrorKind::Unavailable)), endless);
    open(&breaker).await;
}

/// Nobody enables a timer here, so a timer would panic.
#[test]
fn a_backend_that_answers_at_once_needs_no_timer() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let answer = runtime.block_on(async { ask(&Timeout::new(Scripted::default(), LIMIT)).await });
    assert!(answer.unwrap().allowed());
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_open_it_and_the_store_is_spared() {
    let store = Scripted::new(Mode::Fails(ErrorKind::Unavailable));
    let breaker = CircuitBreaker::new(store.clone(), settings());
    open(&breaker).await;
    for _ in 0..100 {
        assert_eq!(kind(&breaker).await, ErrorKind::CircuitOpen);
    }
    assert_eq!(store.calls(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_success_ends_the_row() {
    let store = Scripted::default();
    let breaker = CircuitBreaker::new(store.clone(), settings());
    for _ in 0..20 {
        store.set(Mode::Fails(ErrorKind::Unavailable));
        for _ in 0..4 {
            assert_eq!(kind(&breaker).await, ErrorKind::Unavailable);
        }
        store.set(Mode::Works);
        assert!(ask(&breaker).await.is_ok());
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_ratio_of_failures_opens_it_once_there_are_enough_calls() {
    let store = Scripted::default();
    let by_ratio = Breaker {
        failures: 1_000,
        ratio: Some(0.5),
        min_calls: 20,
        ..settings()
    };
    let breaker = CircuitBreaker::new(store.clone(), by_ratio);
    let mut asked = 0;
    while breaker.state() == BreakerState::Closed {
        store.set(if asked % 2 == 0 {
            Mode::Fails(ErrorKind::Timeout)
        } else {
            Mode::Works
        });
        let _ = ask(&breaker).await;
        asked += 1;
        assert!(asked < 100, "half of the calls fail, and it stays closed");
    }
    assert_eq!(asked, 21, "the first failure of at least 20 calls");
}

#[tokio::test(start_paused = true)]
async fn a_few_failures_among_many_calls_do_not_open_it() {
    let store = Scripted::default();
    let by_ratio = Breaker {
        failures: 1_000,
        ratio: Some(0.5),
        min_calls: 20,
        ..settings()
    };
    let breaker = CircuitBreaker::new(store.clone(), by_ratio);
    for asked in 0..1_000 {
        store.set(if asked % 3 == 0 {
            Mode::Fails(ErrorKind::Timeout)
        } else {
            Mode::Works
        });
        let _ = ask(&breaker).await;
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn failures_of_an_earlier_window_do_not_count_for_the_ratio() {
    let store = Scripted::new(Mode::Fails(ErrorKind::Timeout));
    let by_ratio = Breaker {
        failures: 1_000,
        ratio: Some(0.5),
        min_calls: 20,
        ..settings()
    };
    let breaker = CircuitBreaker::new(store.clone(), by_ratio);
    for _ in 0..10 {
        for _ in 0..19 {
            let _ = ask(&breaker).await;
        }
        advance(Duration::from_secs(11)).await;
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn b72_half_open_lets_one_of_100_through() {
    let store = Scripted::new(Mode::Hangs);
    let breaker = CircuitBreaker::new(Timeout::new(store.clone(), LIMIT), settings());
    for _ in 0..5 {
        assert_eq!(kind(&breaker).await, ErrorKind::Timeout);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
    let breaker = std::sync::Arc::new(Fallback::new(breaker, FailurePolicy::Open));

    advance(SECOND).await;
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let backend = std::sync::Arc::clone(&breaker);
            tokio::spawn(async move {
                let start = Instant::now();
                let decision = ask(&*backend).await.unwrap();
                assert!(decision.allowed());
                start.elapsed()
            })
        })
        .collect();
    let mut waited = Vec::new();
    for task in tasks {
        waited.push(task.await.unwrap());
    }
    let at_once = waited
        .iter()
        .filter(|wait| **wait < Duration::from_millis(5))
        .count();
    assert_eq!(at_once, 99);
    assert_eq!(store.calls(), 6, "exactly one probe");

    // The probe timed out, so it is open for another whole second.
    let probed = Instant::now();
    assert_eq!(breaker.inner().state(), BreakerState::Open);
    advance(Duration::from_millis(990)).await;
    ask(&*breaker).await.unwrap();
    assert_eq!(store.calls(), 6);
    advance(SECOND - probed.elapsed()).await;
    ask(&*breaker).await.unwrap();
    assert_eq!(store.calls(), 7);
}

#[tokio::test(start_paused = true)]
async fn b74_a_refusal_is_a_success() {
    let store = Scripted::default();
    let breaker = CircuitBreaker::new(store.clone(), settings());
    let policy = Policy::new("p", quotas("1/h")).unwrap();
    let key = Key::from("k");
    let subject = Subject::new(&policy, &key);
    let mut refused = 0;
    for _ in 0..200 {
        refused += u32::from(!breaker.acquire(subject, Cost::ONE).await.unwrap().allowed());
    }
    assert_eq!((refused, breaker.state()), (199, BreakerState::Closed));

    // And as the answer to a probe it closes the breaker.
    store.set(Mode::Fails(ErrorKind::Unavailable));
    open(&breaker).await;
    store.set(Mode::Works);
    advance(SECOND).await;
    assert!(!breaker.acquire(subject, Cost::ONE).await.unwrap().allowed());
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn b74_a_refusal_between_failures_ends_the_row() {
    let store = Scripted::default();
    let breaker = CircuitBreaker::new(store.clone(), settings());
    let policy = Policy::new("p", quotas("1/h")).unwrap();
    let key = Key::from("k");
    let subject = Subject::new(&policy, &key);
    assert!(breaker.acquire(subject, Cost::ONE).await.unwrap().allowed());
    for _ in 0..3 {
        store.set(Mode::Fails(ErrorKind::Timeout));
        for _ in 0..4 {
            assert_eq!(kind(&breaker).await, ErrorKind::Timeout);
        }
        store.set(Mode::Works);
        assert!(!breaker.acquire(subject, Cost::ONE).await.unwrap().allowed());
        assert_eq!(breaker.state(), BreakerState::Closed);
    }
    // None of the twelve is left: it takes five again.
    store.set(Mode::Fails(ErrorKind::Timeout));
    for _ in 0..5 {
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert_eq!(kind(&breaker).await, ErrorKind::Timeout);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
}

/// Begins 50 calls that wait in the store, and ends them all with this error.
async fn fail_together(breaker: &std::sync::Arc<CircuitBreaker<Scripted>>, error: ErrorKind) {
    let mut calls = Vec::new();
    breaker.inner().set(Mode::Held);
    for _ in 0..50 {
        let breaker = std::sync::Arc::clone(breaker);
        calls.push(tokio::spawn(async move { ask(&*breaker).await.is_err() }));
    }
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(breaker.inner().held().await);
    }
    for release in held {
        release.send(Err(error)).unwrap();
    }
    for call in calls {
        assert!(call.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn b67_calls_that_one_broken_connection_took_along_are_one_failure() {
    for ratio in [None, Some(0.5)] {
        let settings = Breaker {
            ratio,
            ..settings()
        };
        let breaker = CircuitBreaker::new(Scripted::default(), settings);
        let breaker = std::sync::Arc::new(breaker);
        for breaks in 1..=4 {
            fail_together(&breaker, ErrorKind::Unavailable).await;
            assert_eq!(breaker.state(), BreakerState::Closed, "after {breaks}");
        }
        fail_together(&breaker, ErrorKind::Unavailable).await;
        assert_eq!(
            breaker.state(),
            BreakerState::Open,
            "a store that goes on breaking"
        );

        // Calls that all time out are 50 signs of a store that hangs.
        let breaker = CircuitBreaker::new(Scripted::default(), settings);
        let breaker = std::sync::Arc::new(breaker);
        fail_together(&breaker, ErrorKind::Timeout).await;
        assert_eq!(breaker.state(), BreakerState::Open);
    }
}

#[tokio::test(start_paused = true)]
async fn errors_by_which_the_store_shows_that_it_works_do_not_open_it() {
    for working in [ErrorKind::Contended, ErrorKind::Config] {
        let store = Scripted::new(Mode::Fails(working));
        let breaker = CircuitBreaker::new(store.clone(), settings());
        for _ in 0..100 {
            assert_eq!(kind(&breaker).await, working);
        }
        assert_eq!(
            (breaker.state(), store.calls()),
            (BreakerState::Closed, 100)
        );
    }
    for broken in [
        ErrorKind::Auth,
        ErrorKind::OutOfMemory,
        ErrorKind::ReadOnly,
        ErrorKind::NotReady,
    ] {
        let breaker = CircuitBreaker::new(Scripted::new(Mode::Fails(broken)), settings());
        for _ in 0..5 {
            assert_eq!(kind(&breaker).await, broken);
        }
        assert_eq!(breaker.state(), BreakerState::Open, "{broken}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_probe_leaves_its_place_to_the_next_call() {
    let store = Scripted::new(Mode::Fails(ErrorKind::Unavailable));
    let breaker = CircuitBreaker::new(store.clone(), settings());
    open(&breaker).await;
    advance(SECOND).await;
    store.set(Mode::Hangs);
    for lost in 1..=3 {
        // The caller gives up on the probe.
        let probe = tokio::time::timeout(LIMIT, ask(&breaker)).await;
        assert!(probe.is_err());
        assert_eq!(store.calls(), 5 + lost, "each call in turn is the probe");
    }
    store.set(Mode::Works);
    assert!(ask(&breaker).await.is_ok());
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_end_is_given_up() {
    let store = Scripted::new(Mode::Fails(ErrorKind::Unavailable));
    let breaker = std::sync::Arc::new(CircuitBreaker::new(store.clone(), settings()));
    open(&breaker).await;
    advance(SECOND).await;
    store.set(Mode::Held);
    let stuck = std::sync::Arc::clone(&breaker);
    let stuck = tokio::spawn(async move { ask(&*stuck).await });
    let release = store.held().await;
    assert_eq!(kind(&*breaker).await, ErrorKind::CircuitOpen);

    advance(Duration::from_secs(30)).await;
    store.set(Mode::Works);
    assert!(ask(&*breaker).await.is_ok());
    assert_eq!(breaker.state(), BreakerState::Closed);
    // What it says at last is no news.
    release.send(Err(ErrorKind::Unavailable)).unwrap();
    assert!(stuck.await.unwrap().is_err());
    assert_eq!(breaker.state(), BreakerState::Closed);
}

/// Calls that began before it opened end while it is open, half-open and closed again.
#[tokio::test(start_paused = true)]
async fn late_results_count_for_nothing() {
    let store = Scripted::new(Mode::Held);
    let once = Breaker {
        failures: 1,
        ..settings()
    };
    let breaker = std::sync::Arc::new(CircuitBreaker::new(store.clone(), once));
    let call = || {
        let breaker = std::sync::Arc::clone(&breaker);
        tokio::spawn(async move { ask(&*breaker).await.is_ok() })
    };
    let mut early = Vec::new();
    for _ in 0..5 {
        let task = call();
        early.push((task, store.held().await));
    }
    let mut next = || early.pop().unwrap();

    let (task, release) = next();
    release.send(Err(ErrorKind::Timeout)).unwrap();
    assert!(!task.await.unwrap());
    assert_eq!(breaker.state(), BreakerState::Open);

    // A late success does not close it, a late failure does not prolong it.
    let (task, release) = next();
    release.send(Ok(())).unwrap();
    assert!(task.await.unwrap());
    assert_eq!(breaker.state(), BreakerState::Open);
    advance(SECOND / 2).await;
    let (task, release) = next();
    release.send(Err(ErrorKind::Timeout)).unwrap();
    assert!(!task.await.unwrap());
    advance(SECOND / 2).await;

    // Half-open: only the probe speaks.
    let probe = call();
    let probe_release = store.held().await;
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    let (task, release) = next();
    release.send(Ok(())).unwrap();
    assert!(task.await.unwrap());
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    probe_release.send(Ok(())).unwrap();
    assert!(probe.await.unwrap());
    assert_eq!(breaker.state(), BreakerState::Closed);

    // Closed again: a failure from before does not open it.
    let (task, release) = next();
    release.send(Err(ErrorKind::Timeout)).unwrap();
    assert!(!task.await.unwrap());
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn it_prints_the_stack_and_passes_warnings_on() {
    let stack = Fallback::new(
        CircuitBreaker::new(Timeout::new(Scripted::default(), LIMIT), settings()),
        FailurePolicy::Closed,
    );
    assert_eq!(
        stack.to_string(),
        "Fallback(CircuitBreaker(Timeout(scripted, 50ms)), closed)"
    );
    assert_eq!(stack.warnings(), ["it does as it is told"]);
    let store = stack.into_inner().into_inner().into_inner();
    assert_eq!(store.calls(), 0);
}
