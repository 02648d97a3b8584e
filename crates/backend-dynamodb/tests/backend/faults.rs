//! Answers that are lost, refused or late, and servers that die.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::algorithm::{Operation, apply};
use tollgate_core::{
    BackendError, Cost, CounterBackend, Decision, ErrorKind, Key, Policy, Refund, Subject,
};
use tollgate_dynamodb::DynamoBackend;
use tollgate_testkit::{
    DynamoFlavor, DynamoProxy, DynamoServer, LocalDynamo, Mischief, wait_until,
};

use super::{PATIENCE, T0, backend, policy, table, url};

const ALGORITHMS: [&str; 4] = [
    "token_bucket",
    "sliding_window",
    "fixed_window",
    "sliding_log",
];

async fn try_charge(backend: &DynamoBackend, policy: &Policy) -> Result<Decision, BackendError> {
    let key = Key::from("k");
    let subject = Subject::new(policy, &key).at(T0);
    CounterBackend::acquire(backend, subject, Cost::ONE).await
}

async fn remaining(backend: &DynamoBackend, policy: &Policy) -> u64 {
    let key = Key::from("k");
    let subject = Subject::new(policy, &key).at(T0);
    backend
        .peek(subject, Cost::ONE)
        .await
        .unwrap()
        .remaining()
        .unwrap()
}

async fn with_timeout(endpoint: &str, timeout: Duration) -> DynamoBackend {
    let builder = DynamoBackend::builder(url(endpoint)).timeout(timeout);
    builder.connect().await.unwrap()
}

/// Runs a test of how long callers wait. Timers are looked at every few polls, for those of a debug
/// build take milliseconds.
fn timed(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .event_interval(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(test);
}

/// Calls at once that must fail, each within the timeout and 50 ms. Beside each is a timer alone: by
/// how much the latest of these is late is the machine's doing, not the backend's.
async fn all_fail_in_time(
    backend: &Arc<DynamoBackend>,
    policy: &Policy,
    calls: usize,
    timeout: Duration,
) -> Vec<ErrorKind> {
    let tasks: Vec<_> = (0..calls)
        .map(|_| {
            let (backend, policy) = (Arc::clone(backend), policy.clone());
            let call = tokio::spawn(async move {
                let start = Instant::now();
                let error = try_charge(&backend, &policy).await.unwrap_err();
                (start.elapsed(), error.kind())
            });
            let timer = tokio::spawn(async move {
                let start = Instant::now();
                tokio::time::sleep(timeout).await;
                start.elapsed().saturating_sub(timeout)
            });
            (call, timer)
        })
        .collect();
    let (mut calls, mut late) = (Vec::new(), Duration::ZERO);
    for (call, timer) in tasks {
        calls.push(call.await.unwrap());
        late = late.max(timer.await.unwrap());
    }
    let longest = calls.iter().map(|(took, _)| *took).max().unwrap();
    println!(
        "{} calls, the longest {longest:?}, timers late by {late:?}",
        calls.len()
    );
    assert!(
        longest <= timeout + Duration::from_millis(50) + late,
        "{longest:?}, late {late:?}"
    );
    calls.into_iter().map(|(_, kind)| kind).collect()
}

#[tokio::test]
async fn b15_a_lost_answer_is_not_charged_twice() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let proxy = DynamoProxy::start(server.address()).await;
    let direct = backend(&server.endpoint()).await;
    let lossy = with_timeout(&proxy.endpoint(), PATIENCE).await;
    for algorithm in ALGORITHMS {
        let policy = policy(&format!("10/h {algorithm}"));
        // On a fresh key, then on one in use.
        for left in [9, 7] {
            proxy.once("UpdateItem", Mischief::LoseAnswer);
            let sent = proxy.calls("UpdateItem");
            let error = try_charge(&lossy, &policy).await.unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Unavailable,
                "{algorithm}: {error:?}"
            );
            assert!(error.may_have_charged());
            assert_eq!(proxy.calls("UpdateItem"), sent + 1, "{algorithm}");
            assert_eq!(remaining(&direct, &policy).await, left, "{algorithm}");
            // What it remembers is behind, and it finds out.
            let next = try_charge(&lossy, &policy).await.unwrap();
            assert_eq!(next.remaining(), Some(left - 1), "{algorithm}");
        }
    }
    // An error of the service may have been written; it is not tried again either.
    let policy = policy("10/h");
    proxy.once(
        "UpdateItem",
        Mischief::Answer(500, "InternalServerError".into()),
    );
    let sent = proxy.calls("UpdateItem");
    let error = try_charge(&lossy, &policy).await.unwrap_err();
    assert!(error.may_have_charged(), "{error:?}");
    assert_eq!(proxy.calls("UpdateItem"), sent + 1);
}

#[test]
fn b80_throttled_calls_end_at_once_and_are_not_repeated() {
    timed(throttled());
}

async fn throttled() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let proxy = DynamoProxy::start(server.address()).await;
    let backend = Arc::new(with_timeout(&proxy.endpoint(), Duration::from_millis(100)).await);
    let policy = policy("1000000/h");
    // With connections at hand, as a service in use has them: making a hundred takes a debug build
    // longer than the timeout.
    let warm: Vec<_> = (0..100)
        .map(|_| {
            let (backend, policy) = (Arc::clone(&backend), policy.clone());
            tokio::spawn(async move { drop(try_charge(&backend, &policy).await) })
        })
        .collect();
    for call in warm {
        call.await.unwrap();
    }
    for exception in [
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
    ] {
        proxy.always(Mischief::exception(exception));
        let before = proxy.all_calls();
        let timeout = Duration::from_millis(100);
        let kinds = all_fail_in_time(&backend, &policy, 100, timeout).await;
        // A busy machine may need longer than the timeout for a hundred of them.
        let expected = [ErrorKind::Throttled, ErrorKind::Timeout];
        assert!(
            kinds.iter().all(|kind| expected.contains(kind)),
            "{kinds:?}"
        );
        let throttled = kinds
            .iter()
            .filter(|kind| **kind == ErrorKind::Throttled)
            .count();
        assert!(throttled > 0, "{exception}");
        assert!(proxy.all_calls() - before <= 100, "{exception}: repeated");
    }
    proxy.well();
    wait_until("it counts", PATIENCE, async || {
        try_charge(&backend, &policy).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn b80_a_conflict_is_tried_again_and_charged_once() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let proxy = DynamoProxy::start(server.address()).await;
    let backend = backend(&proxy.endpoint()).await;
    for algorithm in ALGORITHMS {
        let policy = policy(&format!("10/h {algorithm}"));
        for (exception, left) in [
            ("TransactionConflictException", 9),
            ("ReplicatedWriteConflictException", 8),
        ] {
            for _ in 0..3 {
                proxy.once("UpdateItem", Mischief::exception(exception));
            }
            let decision = try_charge(&backend, &policy).await.unwrap();
            assert_eq!(decision.remaining(), Some(left), "{algorithm}");
        }
        // For ever is too long.
        proxy.always(Mischief::exception("TransactionConflictException"));
        let error = try_charge(&backend, &policy).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended, "{error:?}");
        assert!(!error.may_have_charged());
        proxy.well();
        assert_eq!(remaining(&backend, &policy).await, 8, "{algorithm}");
    }
}

#[tokio::test]
async fn what_is_answered_is_told_by_its_kind() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let proxy = DynamoProxy::start(server.address()).await;
    let backend = backend(&proxy.endpoint()).await;
    let policy = policy("10/h");
    for (exception, kind) in [
        ("AccessDeniedException", ErrorKind::Auth),
        ("ResourceNotFoundException", ErrorKind::Config),
        ("ValidationException", ErrorKind::Other),
        ("SomethingNewException", ErrorKind::Other),
    ] {
        proxy.always(Mischief::exception(exception));
        let error = try_charge(&backend, &policy).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert_eq!(backend.ping().await.unwrap_err().kind(), kind);
    }
    proxy.well();
    backend.ping().await.unwrap();
    assert_eq!(
        try_charge(&backend, &policy).await.unwrap().remaining(),
        Some(9)
    );
}

#[tokio::test]
async fn a_store_that_hides_the_old_item_is_not_supported() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let proxy = DynamoProxy::start(server.address()).await;
    let backend = backend(&proxy.endpoint()).await;
    // A failed condition without the item, on a key that is new.
    proxy.once(
        "UpdateItem",
        Mischief::exception("ConditionalCheckFailedException"),
    );
    let error = try_charge(&backend, &policy("10/h")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn a_late_refund_and_a_stale_memory_agree_with_the_store() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let (one, other) = (
        backend(&server.endpoint()).await,
        backend(&server.endpoint()).await,
    );
    for algorithm in ALGORITHMS {
        let policy = policy(&format!("10/h {algorithm}"));
        let key = Key::from("k");
        let subject = Subject::new(&policy, &key).at(T0);
        let mine = try_charge(&one, &policy).await.unwrap();
        // The key is forgotten, and used again, behind this one's back.
        other.reset(subject).await.unwrap();
        for _ in 0..4 {
            try_charge(&other, &policy).await.unwrap();
        }
        let refund = Refund {
            cost: 2,
            charged_at: mine.charged_at(),
        };
        let back = one.refund(subject, refund).await.unwrap();
        assert_eq!(back.remaining(), Some(8), "{algorithm}");
        other.reset(subject).await.unwrap();
        let nothing = one.refund(subject, refund).await.unwrap();
        assert_eq!(nothing.remaining(), Some(10), "{algorithm}");
        assert_eq!(remaining(&other, &policy).await, 10, "{algorithm}");
    }
}

#[test]
fn b67_a_server_that_freezes_dies_and_comes_back_is_used_again() {
    timed(dies());
}

async fn dies() {
    let mut server = DynamoServer::start(DynamoFlavor::Dynoxide).await;
    table(&server.endpoint()).await;
    let timeout = Duration::from_millis(200);
    let backend = Arc::new(with_timeout(&server.endpoint(), timeout).await);
    let policy = policy("1000000/h");
    try_charge(&backend, &policy).await.unwrap();
    for frozen in [true, false] {
        if frozen {
            server.pause();
        } else {
            server.kill();
        }
        let kinds = all_fail_in_time(&backend, &policy, 50, timeout).await;
        let expected = [ErrorKind::Unavailable, ErrorKind::Timeout];
        assert!(
            kinds.iter().all(|kind| expected.contains(kind)),
            "{kinds:?}"
        );
        if frozen {
            server.resume();
        } else {
            server.restart().await;
        }
        wait_until("it counts", PATIENCE, async || {
            try_charge(&backend, &policy).await.is_ok()
        })
        .await;
    }
    // What was counted before it died still is.
    let left = remaining(&backend, &policy).await;
    assert!(left < 1_000_000 - 2, "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b11_two_processes_admit_exactly_the_limit_of_each_algorithm() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let backends = [
        Arc::new(backend(&server.endpoint()).await),
        Arc::new(backend(&server.endpoint()).await),
    ];
    for algorithm in ALGORITHMS {
        let policy = policy(&format!("100/60s {algorithm}"));
        let tasks: Vec<_> = (0..400)
            .map(|task| {
                let (backend, policy) = (Arc::clone(&backends[task % 2]), policy.clone());
                tokio::spawn(async move { try_charge(&backend, &policy).await.unwrap().allowed() })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += u32::from(task.await.unwrap());
        }
        assert_eq!(admitted, 100, "{algorithm}");
        // And what is stored is what a hundred, one after the other, leave: nothing was charged
        // that was not admitted.
        let (mut record, quotas) = (Vec::new(), policy.quotas());
        for _ in 0..100 {
            apply(quotas, &mut record, T0, Operation::Acquire(Cost::ONE));
        }
        let right = apply(quotas, &mut record, T0, Operation::Peek(Cost::ONE));
        let key = Key::from("k");
        let subject = Subject::new(&policy, &key).at(T0);
        let peeked = backends[0].peek(subject, Cost::ONE).await.unwrap();
        assert_eq!(peeked.quotas(), right.decision.quotas(), "{algorithm}");
    }
}
