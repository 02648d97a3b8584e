//! What becomes of those who wait when a trip fails, panics or hangs.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Mode, Scripted, quotas};
use crate::lab::{Lab, eventually};
use tollgate::{Coalesced, Cost, CounterBackend, ErrorKind, Key, Policy, Subject, Timeout};

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
