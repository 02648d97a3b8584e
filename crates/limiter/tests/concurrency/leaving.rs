//! Given back whatever becomes of the holder.

use std::sync::atomic::Ordering;

use tollgate::{ErrorKind, FailurePolicy};
use tollgate_testkit::wait_until;

use crate::support::{PATIENCE, in_use, limiter, slots, store};

#[tokio::test]
async fn b114_a_caller_that_is_dropped_holds_nothing() {
    let store = store();
    let limit = slots(&store, 1);
    // While the store is asked, which gives the slot and does not say so.
    store.loses_answers.store(true, Ordering::SeqCst);
    let task = {
        let limit = limit.clone();
        tokio::spawn(async move { limit.acquire("k").await.map(drop) })
    };
    in_use(&limit, 1).await;
    task.abort();
    store.loses_answers.store(false, Ordering::SeqCst);
    in_use(&limit, 0).await;
    // While it waits.
    let permit = limit.acquire("k").await.unwrap();
    let task = {
        let limit = limit.clone();
        tokio::spawn(async move { limit.acquire_within("k", PATIENCE).await.map(drop) })
    };
    let asked = store.acquires.load(Ordering::SeqCst);
    wait_until("the waiter to ask", PATIENCE, async || {
        store.acquires.load(Ordering::SeqCst) > asked + 1
    })
    .await;
    task.abort();
    drop(permit);
    in_use(&limit, 0).await;
    // While it works; and by a panic.
    let task = {
        let limit = limit.clone();
        tokio::spawn(async move { limit.run("k", std::future::pending::<()>()).await })
    };
    in_use(&limit, 1).await;
    task.abort();
    in_use(&limit, 0).await;
    let task = {
        let limit = limit.clone();
        tokio::spawn(async move { limit.run("k", async { panic!("the work") }).await })
    };
    assert!(task.await.unwrap_err().is_panic());
    in_use(&limit, 0).await;
    // And where there is no runtime to give it back on: outside.
    let permit = limit.acquire("k").await.unwrap();
    std::thread::spawn(move || drop(permit)).join().unwrap();
    in_use(&limit, 0).await;
}

#[tokio::test]
async fn b114_a_release_that_fails_is_tried_again_and_ends_with_the_ttl() {
    let store = store();
    let limit = slots(&store, 1);
    let permit = limit.acquire("k").await.unwrap();
    store.fails.store(true, Ordering::SeqCst);
    let error = permit.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    wait_until("a second attempt", PATIENCE, async || {
        store.releases.load(Ordering::SeqCst) >= 2
    })
    .await;
    assert_eq!(limit.in_use("k").await.unwrap(), 1);
    store.fails.store(false, Ordering::SeqCst);
    in_use(&limit, 0).await;
}

#[tokio::test]
async fn drain_gives_everything_back_and_tells_the_holders() {
    let store = store();
    let one = limiter(&store, FailurePolicy::Closed);
    one.drain().await;
    let limit = one.concurrency("ocr", 200).build().unwrap();
    let mut permits = Vec::new();
    for _ in 0..200 {
        permits.push(limit.acquire("k").await.unwrap());
    }
    let kept = permits.split_off(100);
    drop(permits);
    one.drain().await;
    assert_eq!(limit.in_use("k").await.unwrap(), 0);
    for permit in &kept {
        permit.lost().await;
    }
    drop(kept);
    // It can go on.
    let permit = limit.acquire("k").await.unwrap();
    assert!(!permit.is_lost());
}

#[test]
fn a_runtime_that_ends_with_permits_in_its_tasks_ends() {
    for threads in [0, 2] {
        let store = store();
        let runtime = match threads {
            0 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime = { runtime }.enable_all().build().unwrap();
        let limit = slots(&store, 5);
        for _ in 0..5 {
            let limit = limit.clone();
            runtime.spawn(async move {
                let _permit = limit.acquire("k").await.unwrap();
                std::future::pending::<()>().await;
            });
        }
        runtime.block_on(in_use(&limit, 5));
        // The permits are the last that hold the limiter, and their store does not answer.
        store.hangs.store(true, Ordering::SeqCst);
        drop(limit);
        drop(runtime);
    }
}
