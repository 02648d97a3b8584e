//! What is answered when the store does not answer, and that it is never silent.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::log::Log;
use common::recorder::Recorded;
use common::{Mode, Scripted, quotas};
use tokio::time::{Instant, advance};
use tollgate::{
    Breaker, BreakerState, Decision, Error, ErrorKind, FailurePolicy, Limiter, Origin, RateLimit,
};
use tracing::Level;

const SECOND: Duration = Duration::from_secs(1);

fn down() -> Scripted {
    Scripted::new(Mode::Fails(ErrorKind::Unavailable))
}

fn limiter(store: &Scripted, policy: FailurePolicy) -> Limiter {
    Limiter::builder(store.clone()).on_failure(policy).build()
}

async fn ask(limit: &RateLimit, times: usize) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for _ in 0..times {
        decisions.push(limit.acquire("alice").await.unwrap());
    }
    decisions
}

#[tokio::test(start_paused = true)]
async fn b68_open_admits_and_counts_what_it_admits() {
    let log = Log::new(Level::DEBUG);
    let limiter = limiter(&down(), FailurePolicy::Open);
    let limit = limiter.policy("p", quotas("3/60s")).unwrap();
    for decision in ask(&limit, 100).await {
        assert!(decision.allowed());
        assert_eq!(decision.granted(), 1);
        assert_eq!(decision.origin(), Origin::FailOpen);
        assert_eq!((decision.remaining(), decision.retry_after()), (None, None));
    }
    let health = limiter.health();
    assert_eq!((health.enforcing, health.unenforced), (false, 100));
    assert_eq!(health.reason, Some(ErrorKind::Unavailable));
    assert_eq!(health.breaker, BreakerState::Open);
    assert!(
        health
            .detail()
            .starts_with("failing open: rate limit backend unreachable")
    );
    assert_eq!(log.count("WARN"), 1, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn b68_closed_refuses_as_unavailable() {
    let limiter = limiter(&down(), FailurePolicy::Closed);
    let limit = limiter.policy("p", quotas("3/60s")).unwrap();
    for decision in ask(&limit, 100).await {
        assert!(!decision.allowed() && !decision.is_never());
        assert_eq!(decision.granted(), 0);
        assert_eq!(decision.origin(), Origin::FailClosed);
        assert!(decision.retry_after().unwrap() >= SECOND);
    }
    assert_eq!(limiter.health().unenforced, 100);
    assert!(limiter.health().detail().starts_with("failing closed"));
}

#[tokio::test(start_paused = true)]
async fn b68_local_counts_here_until_the_store_is_back() {
    let store = down();
    let limiter = limiter(&store, FailurePolicy::Local);
    let limit = limiter.policy("p", quotas("3/60s")).unwrap();
    let decisions = ask(&limit, 100).await;
    assert_eq!(decisions.iter().filter(|d| d.allowed()).count(), 3);
    assert!(
        decisions
            .iter()
            .all(|d| d.origin() == Origin::LocalFallback)
    );
    assert_eq!(decisions[0].remaining(), Some(2));
    assert!(decisions[99].retry_after().is_some());
    assert!(limiter.health().detail().starts_with("limiting locally"));

    // Back: the store decides, and knows nothing of what was counted here.
    store.set(Mode::Works);
    advance(SECOND).await;
    let decision = limit.acquire("alice").await.unwrap();
    assert_eq!(
        (decision.origin(), decision.remaining()),
        (Origin::Shared, Some(2))
    );
}

#[tokio::test(start_paused = true)]
async fn b68_each_policy_fails_its_own_way() {
    let limiter = limiter(&down(), FailurePolicy::Open);
    let search = limiter.policy("search", quotas("3/60s")).unwrap();
    let login = limiter
        .policy_with("login", quotas("3/60s"), FailurePolicy::Closed)
        .unwrap();
    let pay = limiter
        .policy_with("pay", quotas("3/60s"), FailurePolicy::Local)
        .unwrap();
    assert_eq!(ask(&search, 1).await[0].origin(), Origin::FailOpen);
    assert_eq!(ask(&login, 1).await[0].origin(), Origin::FailClosed);
    assert_eq!(ask(&pay, 1).await[0].origin(), Origin::LocalFallback);
    assert_eq!(login.failure_policy(), FailurePolicy::Closed);

    // Whoever registers the same policy shares the rule.
    let same = limiter.policy("login", quotas("3/60s")).unwrap();
    assert_eq!(ask(&same, 1).await[0].origin(), Origin::FailClosed);
}

#[tokio::test(start_paused = true)]
async fn s27_s95_a_store_that_is_down_lets_requests_through_and_is_reported() {
    let log = Log::new(Level::WARN);
    let store = Scripted::default();
    let limiter = limiter(&store, FailurePolicy::default());
    let limit = limiter.policy("p", quotas("1/h")).unwrap();
    assert!(ask(&limit, 1).await[0].allowed());
    assert!(!ask(&limit, 1).await[0].allowed());
    assert!(limiter.health().enforcing);
    limiter.forget();

    // By the timeout, then by the breaker.
    store.set(Mode::Hangs);
    let start = Instant::now();
    assert!(ask(&limit, 1).await[0].allowed());
    assert!(
        start.elapsed() < Duration::from_millis(100),
        "{:?}",
        start.elapsed()
    );
    assert!(!limiter.health().enforcing);
    ask(&limit, 4).await;
    let start = Instant::now();
    assert!(ask(&limit, 1).await[0].allowed());
    assert!(
        start.elapsed() < Duration::from_millis(5),
        "the breaker is open"
    );
    assert!(
        log.text().contains("no limit is being enforced"),
        "{}",
        log.text()
    );
}

#[tokio::test(start_paused = true)]
async fn s28_health_says_what_ready_needs() {
    let store = Scripted::default();
    let limiter = limiter(&store, FailurePolicy::Open);
    limiter.ping().await.unwrap();
    assert!(limiter.health().enforcing);
    assert_eq!(limiter.health().detail(), "enforcing");
    assert_eq!(limiter.health().warnings, ["it does as it is told"]);

    // Nobody need be refused or admitted to find out.
    store.set(Mode::Fails(ErrorKind::OutOfMemory));
    assert_eq!(
        limiter.ping().await.unwrap_err().kind(),
        ErrorKind::OutOfMemory
    );
    let health = limiter.health();
    assert_eq!((health.enforcing, health.unenforced), (false, 0));
    assert_eq!(
        health.detail(),
        "failing open: rate limit backend unreachable, no limit is being enforced"
    );
    store.set(Mode::Works);
    limiter.ping().await.unwrap();
    assert!(limiter.health().enforcing);
    assert_eq!(limiter.health().reason, None);
}

#[tokio::test(start_paused = true)]
async fn the_reason_is_what_opened_the_breaker() {
    let limiter = limiter(
        &Scripted::new(Mode::Fails(ErrorKind::ReadOnly)),
        FailurePolicy::Open,
    );
    let limit = limiter.policy("p", quotas("3/60s")).unwrap();
    ask(&limit, 50).await;
    assert_eq!(limiter.health().reason, Some(ErrorKind::ReadOnly));
}

#[tokio::test(start_paused = true)]
async fn a_lasting_outage_is_logged_now_and_then_and_its_end_once() {
    let log = Log::new(Level::DEBUG);
    let store = down();
    let limiter = limiter(&store, FailurePolicy::Open);
    let limit = limiter.policy("p", quotas("3/60s")).unwrap();
    for _ in 0..35 {
        ask(&limit, 20).await;
        advance(SECOND).await;
    }
    assert_eq!(log.count("WARN"), 4, "{}", log.text());
    assert_eq!(log.count("INFO"), 0);
    store.set(Mode::Works);
    ask(&limit, 20).await;
    assert_eq!(log.count("INFO"), 1, "{}", log.text());
    assert_eq!(log.count("WARN"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_and_goes_does_not_flood_the_log() {
    let log = Log::new(Level::DEBUG);
    let store = Scripted::default();
    let limiter = Limiter::builder(store.clone())
        .breaker(Breaker {
            failures: u32::MAX,
            ratio: None,
            ..Breaker::default()
        })
        .build();
    let limit = limiter.policy("p", quotas("1000000/s")).unwrap();
    for turn in 0..2_000 {
        store.set(if turn % 2 == 0 {
            Mode::Fails(ErrorKind::Timeout)
        } else {
            Mode::Works
        });
        ask(&limit, 1).await;
        advance(Duration::from_millis(5)).await;
    }
    // 10 s of it.
    assert!(
        (2..=11).contains(&log.count("WARN")),
        "{}",
        log.count("WARN")
    );
    assert!(log.count("INFO") <= log.count("WARN"));
    assert_eq!(limiter.health().unenforced, 1_000);
}

#[tokio::test(start_paused = true)]
async fn who_watches_hears_of_each_change() {
    let store = Scripted::default();
    let limiter = limiter(&store, FailurePolicy::Open);
    let limit = limiter.policy("p", quotas("1000000/s")).unwrap();
    let mut watch = limiter.watch();
    ask(&limit, 10).await;
    let quiet = tokio::time::timeout(SECOND, watch.changed()).await;
    assert!(quiet.is_err(), "nothing has changed");

    store.set(Mode::Fails(ErrorKind::Unavailable));
    ask(&limit, 1).await;
    let health = watch.changed().await;
    assert!(!health.enforcing && health.reason == Some(ErrorKind::Unavailable));
    assert_eq!(health.breaker, BreakerState::Closed);
    ask(&limit, 4).await;
    assert_eq!(watch.changed().await.breaker, BreakerState::Open);

    store.set(Mode::Works);
    advance(SECOND).await;
    ask(&limit, 1).await;
    let health = watch.changed().await;
    assert!(health.enforcing && health.reason.is_none());
    assert_eq!(health.breaker, BreakerState::Closed);
    assert_eq!(health, watch.health());
}

#[tokio::test(start_paused = true)]
async fn a_refund_or_reset_that_failed_is_not_claimed() {
    let store = Scripted::default();
    for policy in [
        FailurePolicy::Open,
        FailurePolicy::Closed,
        FailurePolicy::Local,
    ] {
        store.set(Mode::Works);
        let limiter = limiter(&store, policy);
        let limit = limiter.policy(policy.as_str(), quotas("3/60s")).unwrap();
        let charged = limit.acquire("alice").await.unwrap();
        store.set(Mode::Fails(ErrorKind::Unavailable));
        let refund = limit.refund("alice", &charged).await;
        assert!(
            matches!(refund, Err(Error::Backend(_))),
            "{policy}: {refund:?}"
        );
        let reset = limit.reset("alice").await;
        assert!(
            matches!(reset, Err(Error::Backend(_))),
            "{policy}: {reset:?}"
        );
        assert_eq!(limiter.health().unenforced, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_local_charge_is_refunded_locally_and_reset_with_the_rest() {
    let store = down();
    let limiter = limiter(&store, FailurePolicy::Local);
    let limit = limiter.policy("p", quotas("3/60s fixed_window")).unwrap();
    let charged = limit.acquire("alice").cost(3).await.unwrap();
    assert!(!limit.acquire("alice").await.unwrap().allowed());
    let asked = store.calls();
    let back = limit.refund("alice", &charged).await.unwrap();
    assert_eq!(
        (back.origin(), back.remaining()),
        (Origin::LocalFallback, Some(3))
    );
    assert_eq!(store.calls(), asked);

    assert!(limit.acquire("alice").cost(3).await.unwrap().allowed());
    assert!(
        limit.reset("alice").await.is_err(),
        "the store may still count"
    );
    assert!(limit.acquire("alice").cost(3).await.unwrap().allowed());
}

#[tokio::test(start_paused = true)]
async fn what_was_not_charged_is_not_refunded() {
    let store = down();
    let limiter = limiter(&store, FailurePolicy::Open);
    let limit = limiter.policy("p", quotas("3/60s")).unwrap();
    let waved = limit.acquire("alice").await.unwrap();
    let asked = store.calls();
    let back = limit.refund("alice", &waved).await.unwrap();
    assert_eq!((back.origin(), back.granted()), (Origin::FailOpen, 0));
    assert_eq!(store.calls(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_peek_is_answered_by_the_failure_policy_too() {
    for (policy, allowed, origin) in [
        (FailurePolicy::Open, true, Origin::FailOpen),
        (FailurePolicy::Closed, false, Origin::FailClosed),
        (FailurePolicy::Local, true, Origin::LocalFallback),
    ] {
        let limiter = limiter(&down(), policy);
        let limit = limiter.policy("p", quotas("3/60s")).unwrap();
        let peek = limit.peek("alice").await.unwrap();
        assert_eq!(
            (peek.allowed(), peek.origin(), peek.granted()),
            (allowed, origin, 0)
        );
        assert_eq!(limiter.health().unenforced, 0, "a peek decides nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_answered_by_the_failure_policy_too() {
    use tollgate::{Cost, CounterBackend, Fallback, Key, Policy, Subject};
    let policy = Policy::new("p", quotas("3/60s")).unwrap();
    let key = Key::from("k");
    let costs = [Cost::ONE, Cost::range(1, 9).unwrap(), Cost::ONE];
    for (rule, granted) in [
        (FailurePolicy::Open, vec![1, 3, 1]),
        (FailurePolicy::Closed, vec![0, 0, 0]),
        (FailurePolicy::Local, vec![1, 2, 0]),
    ] {
        let backend = Fallback::new(down(), rule);
        let answers = backend
            .acquire_batch(Subject::new(&policy, &key), &costs)
            .await;
        let answers = answers.unwrap();
        let got: Vec<_> = answers.iter().map(Decision::granted).collect();
        assert_eq!(got, granted, "{rule}");
        assert_eq!(backend.unenforced(), 3);
    }
}

/// Runs a test with a paused clock, under a recorder of metrics.
fn recorded(test: impl AsyncFnOnce(&Recorded)) -> Arc<Recorded> {
    let recorded = Arc::new(Recorded::default());
    metrics::with_local_recorder(&*recorded, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(test(&recorded));
    });
    recorded
}

#[test]
fn b89_metrics_are_labelled_by_configuration_only() {
    let recorded = recorded(async |recorded| {
        let store = Scripted::default();
        let limiter = Limiter::builder(store.clone()).name("main").build();
        let limit = limiter.policy("p", quotas("3/60s")).unwrap();
        let value = |name: &str| recorded.gauge(&format!("{name}{{limiter=main}}"));
        assert_eq!(value("tollgate_enforcing"), Some(1.0));
        ask(&limit, 5).await;

        store.set(Mode::Slow(Duration::from_millis(10)));
        limit.acquire("bob").await.unwrap();
        let waited = "tollgate_backend_seconds{limiter=main}";
        assert_eq!(recorded.count(waited), Some(1), "only what had to wait");

        store.set(Mode::Fails(ErrorKind::OutOfMemory));
        for i in 0..5 {
            limit.acquire(format!("someone {i}")).await.unwrap();
        }
        assert_eq!(value("tollgate_enforcing"), Some(0.0));
        assert_eq!(value("tollgate_breaker_state"), Some(2.0));
        let before = recorded.series();
        for i in 0..10_000 {
            limit.acquire(format!("someone else {i}")).await.unwrap();
        }
        let after = recorded.series();
        // One for the first use of "the breaker is open".
        assert_eq!(after.len(), before.len() + 1, "{after:?}");
        assert!(after.iter().all(|series| !series.contains("someone")));
    });
    let decisions = |outcome: &str, origin: &str| {
        recorded.count(&format!(
            "tollgate_decisions_total{{limiter=main,policy=p,outcome={outcome},origin={origin}}}"
        ))
    };
    assert_eq!(decisions("admitted", "shared"), Some(4));
    assert_eq!(decisions("refused", "shared"), Some(1));
    assert_eq!(decisions("refused", "remembered_refusal"), Some(1));
    assert_eq!(decisions("admitted", "fail_open"), Some(10_005));
    let unenforced = |reason: &str| {
        recorded.count(&format!(
            "tollgate_unenforced_decisions_total{{limiter=main,policy=p,reason={reason}}}"
        ))
    };
    assert_eq!(unenforced("out_of_memory"), Some(5));
    assert_eq!(unenforced("circuit_open"), Some(10_000));
}

#[test]
fn b60_each_answer_of_the_policy_is_counted_under_its_reason() {
    let never = Breaker {
        failures: u32::MAX,
        ratio: None,
        ..Breaker::default()
    };
    for kind in [
        ErrorKind::OutOfMemory,
        ErrorKind::ReadOnly,
        ErrorKind::NotReady,
    ] {
        for (policy, outcome, origin) in [
            (FailurePolicy::Open, "admitted", "fail_open"),
            (FailurePolicy::Closed, "refused", "fail_closed"),
        ] {
            let log = Log::new(Level::WARN);
            let recorded = recorded(async |_| {
                let limiter = Limiter::builder(Scripted::new(Mode::Fails(kind)))
                    .on_failure(policy)
                    .breaker(never)
                    .build();
                let limit = limiter.policy("p", quotas("3/60s")).unwrap();
                ask(&limit, 20).await;
            });
            let count = |name: &str, labels: &str| {
                recorded.count(&format!("{name}{{limiter=default,policy=p,{labels}}}"))
            };
            let reason = format!("reason={kind}");
            assert_eq!(
                count("tollgate_unenforced_decisions_total", &reason),
                Some(20),
                "{kind}, {policy}"
            );
            let labels = format!("outcome={outcome},origin={origin}");
            assert_eq!(count("tollgate_decisions_total", &labels), Some(20));
            assert_eq!(log.count("WARN"), 1);
            assert!(log.text().contains(&format!("{kind}: ")), "{}", log.text());
        }
    }
}

/// A store that answers without waiting goes another way through the stack; all must hold there too.
#[tokio::test(start_paused = true)]
async fn a_store_that_answers_at_once_is_guarded_all_the_same() {
    let store = Scripted::default().immediate();
    let limiter = limiter(&store, FailurePolicy::Closed);
    let limit = limiter.policy("p", quotas("3/60s")).unwrap();
    let decisions = ask(&limit, 6).await;
    let allowed: Vec<_> = decisions.iter().map(Decision::allowed).collect();
    assert_eq!(allowed, [true, true, true, false, false, false]);
    assert_eq!(decisions[5].origin(), Origin::RememberedRefusal);
    assert_eq!(store.calls(), 4);

    limiter.forget();
    store.set(Mode::Fails(ErrorKind::OutOfMemory));
    for decision in ask(&limit, 20).await {
        assert_eq!(decision.origin(), Origin::FailClosed);
    }
    assert_eq!(store.calls(), 9, "the breaker opened");
    let health = limiter.health();
    assert_eq!(
        (health.unenforced, health.breaker),
        (20, BreakerState::Open)
    );

    store.set(Mode::Works);
    advance(SECOND).await;
    assert_eq!(ask(&limit, 1).await[0].origin(), Origin::Shared);
    assert!(limiter.health().enforcing);
    assert_eq!(limiter.health().breaker, BreakerState::Closed);
}
