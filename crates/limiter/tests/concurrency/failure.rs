//! The store does not answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::{ErrorKind, FailurePolicy, Limiter, NoSlot, Origin};
use tollgate_testkit::wait_until;

use crate::support::{PATIENCE, Shared, in_use, is_full, limiter, ms, store};

#[tokio::test]
async fn s111_open_counts_in_this_process_and_closed_refuses() {
    let store = store();
    for policy in [FailurePolicy::Open, FailurePolicy::Local] {
        let one = limiter(&store, policy);
        let other = limiter(&store, policy);
        store.fails.store(true, Ordering::SeqCst);
        let (here, there) = (
            one.concurrency("ocr", 2).build().unwrap(),
            other.concurrency("ocr", 2).build().unwrap(),
        );
        let mut permits = Vec::new();
        for limit in [&here, &there] {
            for _ in 0..2 {
                let permit = limit.acquire("k").await.unwrap();
                assert_eq!(permit.origin(), Origin::LocalFallback);
                permits.push(permit);
            }
            // At most as many as the limit, in each process.
            assert!(is_full(&limit.acquire("k").await));
        }
        let health = one.health();
        assert!(!health.enforcing && health.unenforced >= 3);
        // The store is back, and knows nothing of these. This process has as many as it may, though.
        store.fails.store(false, Ordering::SeqCst);
        assert!(is_full(&here.acquire("k").await));
        drop(permits.remove(0));
        let permit = here.acquire("k").await.unwrap();
        assert_eq!(permit.origin(), Origin::Shared);
        assert!(one.health().enforcing);
        drop(permit);
        drop(permits);
        store.fails.store(true, Ordering::SeqCst);
        let freed = async || here.acquire("k").await.is_ok();
        wait_until("the slots here to be free", PATIENCE, freed).await;
    }
    let one = limiter(&store, FailurePolicy::Closed);
    let limit = one.concurrency("ocr", 2).build().unwrap();
    match limit.acquire("k").await {
        Err(NoSlot::Unavailable {
            retry_after,
            source,
        }) => {
            assert!(retry_after >= Duration::from_secs(1));
            assert_eq!(source.kind(), ErrorKind::Unavailable);
        }
        other => panic!("{other:?}"),
    }
    // A limit may fail in another way than its limiter.
    let limit = one
        .concurrency("pdf", 2)
        .on_failure(FailurePolicy::Open)
        .build()
        .unwrap();
    assert_eq!(
        limit.acquire("k").await.unwrap().origin(),
        Origin::LocalFallback
    );
}

#[tokio::test]
async fn under_open_an_outage_longer_than_the_ttl_takes_nobodys_slot() {
    let store = store();
    let one = limiter(&store, FailurePolicy::Open);
    let limit = one.concurrency("ocr", 2).ttl(ms(300)).build().unwrap();
    let permits = [
        limit.acquire("k").await.unwrap(),
        limit.acquire("k").await.unwrap(),
    ];
    store.fails.store(true, Ordering::SeqCst);
    let began = Instant::now();
    wait_until("four lives are over", PATIENCE, async || {
        assert!(permits.iter().all(|permit| !permit.is_lost()));
        began.elapsed() >= ms(1_200)
    })
    .await;
    // Both are counted here by now.
    assert!(is_full(&limit.acquire("k").await));
}

#[tokio::test(start_paused = true)]
async fn under_open_a_store_that_hangs_for_longer_than_the_ttl_takes_nobodys_slot() {
    let store = store();
    let one = Limiter::builder(Shared(Arc::clone(&store)))
        .timeout(Duration::from_secs(3_600))
        .build();
    let ttl = Duration::from_secs(60);
    let limit = one.concurrency("ocr", 1).ttl(ttl).build().unwrap();
    let permit = limit.acquire("k").await.unwrap();
    store.hangs.store(true, Ordering::SeqCst);
    tokio::time::sleep(4 * ttl).await;
    assert!(!permit.is_lost() && !one.health().enforcing);
}

#[tokio::test]
async fn under_open_a_process_has_no_more_than_the_limit_wherever_they_are_counted() {
    let store = store();
    let one = limiter(&store, FailurePolicy::Open);
    let limit = one.concurrency("ocr", 3).build().unwrap();
    let mut permits = vec![
        limit.acquire("k").await.unwrap(),
        limit.acquire("k").await.unwrap(),
    ];
    // Two are in the store, so there is room for one here.
    store.fails.store(true, Ordering::SeqCst);
    permits.push(limit.acquire("k").await.unwrap());
    assert_eq!(permits[2].origin(), Origin::LocalFallback);
    assert!(permits[2].fence() > permits[1].fence());
    assert!(is_full(&limit.acquire("k").await));
    // Another key has slots of its own.
    drop(limit.acquire("l").await.unwrap());
    // The store has one left, and this process may not have it until it gives one back.
    store.fails.store(false, Ordering::SeqCst);
    assert!(is_full(&limit.acquire("k").await));
    in_use(&limit, 2).await;
    let local = permits.pop().unwrap();
    assert!(local.release().await.unwrap());
    let permit = limit.acquire("k").await.unwrap();
    assert_eq!(permit.origin(), Origin::Shared);
    assert!(permit.fence() > permits[1].fence());
}
