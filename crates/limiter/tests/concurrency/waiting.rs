//! Who finds all taken, and waits.

use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tollgate::FailurePolicy;
use tollgate_testkit::wait_until;

use crate::support::{PATIENCE, is_full, limiter, ms, slots, store};

#[tokio::test]
async fn s104_s106_who_waits_is_served_and_who_waits_in_vain_is_refused_in_time() {
    let limit = slots(&store(), 1);
    let permit = limit.acquire("k").await.unwrap();
    let began = Instant::now();
    assert!(is_full(&limit.acquire_within("k", ms(200)).await));
    assert!(
        began.elapsed() >= ms(200) && began.elapsed() < ms(700),
        "{:?}",
        began.elapsed()
    );
    // One that is freed wakes a waiter before its pause is over.
    let waiter = {
        let limit = limit.clone();
        tokio::spawn(async move {
            let permit = limit.acquire_within("k", PATIENCE).await.unwrap();
            (permit, Instant::now())
        })
    };
    tokio::time::sleep(ms(1_500)).await;
    drop(permit);
    let freed = Instant::now();
    let (_permit, served) = waiter.await.unwrap();
    assert!(served - freed < ms(200), "{:?}", served - freed);
}

#[tokio::test]
async fn s104_the_builder_says_how_long_to_wait_and_how_many_may() {
    let store = store();
    let limiter = limiter(&store, FailurePolicy::Closed);
    let limit = limiter
        .concurrency("ocr", 1)
        .wait(PATIENCE)
        .max_waiters(2)
        .build()
        .unwrap();
    let permit = limit.acquire("k").await.unwrap();
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let limit = limit.clone();
            tokio::spawn(async move { limit.acquire("k").await.map(drop) })
        })
        .collect();
    wait_until("two to wait", PATIENCE, async || {
        store.acquires.load(Ordering::SeqCst) >= 5
    })
    .await;
    // The third is refused at once, while two wait.
    let third = async || {
        let began = Instant::now();
        is_full(&limit.acquire_within("k", ms(5_000)).await) && began.elapsed() < ms(1_000)
    };
    wait_until("the third to be refused", PATIENCE, third).await;
    drop(permit);
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
}
