//! Held while it is used, and not for longer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::{FailurePolicy, Limiter, NoSlot, RunError};
use tollgate_testkit::wait_until;

use crate::support::{PATIENCE, Shared, is_full, limiter, ms, store};

#[tokio::test(start_paused = true)]
async fn s102_a_permit_is_renewed_every_third_of_its_time_by_one_task() {
    let store = store();
    let limiter = Limiter::builder(Shared(Arc::clone(&store))).build();
    let limit = limiter
        .concurrency("ocr", 100)
        .ttl(Duration::from_secs(60))
        .build()
        .unwrap();
    let mut permits = Vec::new();
    for _ in 0..100 {
        permits.push(limit.acquire("k").await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(19_900)).await;
    assert_eq!(store.renewals.load(Ordering::SeqCst), 0);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(store.renewals.load(Ordering::SeqCst), 100);
    tokio::time::sleep(Duration::from_secs(20 * 9)).await;
    assert_eq!(store.renewals.load(Ordering::SeqCst), 1_000);
    assert!(permits.iter().all(|permit| !permit.is_lost()));
    // Who has gone is renewed no more.
    drop(permits);
    limiter.drain().await;
    assert_eq!(store.releases.load(Ordering::SeqCst), 100);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(store.renewals.load(Ordering::SeqCst), 1_000);
}

#[tokio::test]
async fn s102_a_slot_that_is_renewed_outlives_its_ttl_and_that_of_a_dead_process_does_not() {
    let store = store();
    let build = |limiter: &Limiter| limiter.concurrency("ocr", 1).ttl(ms(300)).build().unwrap();
    let (dying, living) = (
        limiter(&store, FailurePolicy::Closed),
        limiter(&store, FailurePolicy::Closed),
    );
    let (dead, limit) = (build(&dying), build(&living));
    // A process that dies takes its runtime along.
    let began = Instant::now();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let permit = runtime.block_on(dead.acquire("k")).unwrap();
        drop(runtime);
        std::mem::forget(permit);
    })
    .join()
    .unwrap();
    assert!(is_full(&limit.acquire("k").await));
    let permit = limit.acquire_within("k", PATIENCE).await.unwrap();
    assert!(began.elapsed() >= ms(290), "{:?}", began.elapsed());
    // This one stays for several of its lives.
    let held = Instant::now();
    wait_until("four lives are over", PATIENCE, async || {
        assert!(is_full(&limit.acquire("k").await) && !permit.is_lost());
        held.elapsed() >= ms(1_200)
    })
    .await;
    assert!(permit.release().await.unwrap());
    drop(limit.acquire("k").await.unwrap());
}

#[tokio::test]
async fn b116_b118_who_lost_its_slot_is_told_and_disturbs_nobody() {
    let store = store();
    let one = limiter(&store, FailurePolicy::Closed);
    let limit = one.concurrency("ocr", 1).ttl(ms(300)).build().unwrap();
    let permit = limit.acquire("k").await.unwrap();
    let fence = permit.fence();
    // Its renewals do not come through.
    store.hangs.store(true, Ordering::SeqCst);
    let began = Instant::now();
    tokio::time::timeout(PATIENCE, permit.lost()).await.unwrap();
    assert!(
        permit.is_lost() && began.elapsed() < ms(600),
        "{:?}",
        began.elapsed()
    );
    store.hangs.store(false, Ordering::SeqCst);
    let other = limiter(&store, FailurePolicy::Closed);
    let theirs = other.concurrency("ocr", 1).build().unwrap();
    // It is told a little before the slot is free.
    let second = theirs.acquire_within("k", PATIENCE).await.unwrap();
    assert!(second.fence() > fence);
    assert!(!permit.release().await.unwrap());
    assert!(is_full(&theirs.acquire("k").await) && !second.is_lost());
}

#[tokio::test]
async fn work_whose_slot_is_lost_is_stopped() {
    let store = store();
    let one = limiter(&store, FailurePolicy::Closed);
    let limit = one.concurrency("ocr", 1).ttl(ms(300)).build().unwrap();
    assert_eq!(limit.run("k", async { 7 }).await.unwrap(), 7);
    let work = async {
        store.fails.store(true, Ordering::SeqCst);
        std::future::pending::<()>().await;
    };
    let error = tokio::time::timeout(PATIENCE, limit.run("k", work))
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, RunError::Lost), "{error}");
    let error = limit.run("k", async {}).await.unwrap_err();
    assert!(
        matches!(error, RunError::NoSlot(NoSlot::Unavailable { .. })),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn b118_a_process_that_was_frozen_has_lost_its_slot_whatever_the_policy() {
    for policy in [FailurePolicy::Open, FailurePolicy::Closed] {
        let store = store();
        let one = limiter(&store, policy);
        let ttl = Duration::from_secs(60);
        let limit = one.concurrency("ocr", 1).ttl(ttl).build().unwrap();
        let permit = limit.acquire("k").await.unwrap();
        // The clock goes on, and no task runs.
        tokio::time::advance(ttl).await;
        tokio::time::timeout(PATIENCE, permit.lost()).await.unwrap();
        // Nor does it come back, though the store is well.
        tokio::time::sleep(3 * ttl).await;
        assert!(permit.is_lost() && one.health().enforcing);
        assert_eq!(store.renewals.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_frozen_for_less_than_its_time_renews_at_once() {
    let store = store();
    let one = limiter(&store, FailurePolicy::Open);
    let ttl = Duration::from_secs(60);
    let limit = one.concurrency("ocr", 1).ttl(ttl).build().unwrap();
    let permit = limit.acquire("k").await.unwrap();
    for _ in 0..3 {
        tokio::time::advance(ttl - ms(500)).await;
        wait_until("it is renewed", PATIENCE, async || {
            store.renewals.swap(0, Ordering::SeqCst) > 0
        })
        .await;
        assert!(!permit.is_lost());
    }
}
