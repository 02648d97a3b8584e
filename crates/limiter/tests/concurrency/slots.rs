//! How many there are, who shares them, and what cannot be built.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tollgate::{CasBackend, ConcurrencyError, FailurePolicy, Limiter, NoSlot, Origin};
use tollgate_testkit::MapStore;

use crate::support::{MOST, PATIENCE, in_use, is_full, limiter, ms, slots, store};

#[tokio::test]
async fn s100_s101_no_more_than_the_slots_and_any_number_of_them() {
    for size in [1, 4, 300] {
        let limit = slots(&store(), size);
        let mut permits = Vec::new();
        let mut fence = 0;
        for _ in 0..size {
            let permit = limit.acquire("k").await.unwrap();
            assert_eq!(permit.origin(), Origin::Shared);
            assert!(permit.fence() > fence && !permit.is_lost());
            fence = permit.fence();
            permits.push(permit);
        }
        match limit.acquire("k").await {
            Err(NoSlot::Full {
                in_use,
                slots,
                retry_after,
                per_client,
            }) => {
                assert_eq!((in_use, slots, per_client), (size, size, false));
                assert_eq!(retry_after, Duration::from_secs(1));
            }
            other => panic!("{other:?}"),
        }
        // Another key has slots of its own.
        drop(limit.acquire("l").await.unwrap());
        drop(permits.pop());
        in_use(&limit, size - 1).await;
        permits.push(limit.acquire("k").await.unwrap());
        drop(permits);
        in_use(&limit, 0).await;
    }
}

#[tokio::test]
async fn s108_the_same_name_and_slots_share_and_other_slots_are_refused() {
    let (store, other) = (store(), store());
    let one = limiter(&store, FailurePolicy::Closed);
    let first = one.concurrency("ocr", 1).build().unwrap();
    let second = one.concurrency("ocr", 1).build().unwrap();
    let third = limiter(&store, FailurePolicy::Closed)
        .concurrency("ocr", 1)
        .build()
        .unwrap();
    let permit = first.acquire("k").await.unwrap();
    assert!(is_full(&second.acquire("k").await) && is_full(&third.acquire("k").await));
    drop(permit);
    let error = one.concurrency("ocr", 2).build().unwrap_err();
    assert!(
        matches!(
            error,
            ConcurrencyError::Taken {
                known: 1,
                slots: 2,
                ..
            }
        ),
        "{error}"
    );
    assert!(one.concurrency("pdf", 2).build().is_ok());
    let stranger = slots(&other, 1);
    drop(stranger.acquire("k").await.unwrap());
}

#[tokio::test]
async fn s112_a_store_without_leases_is_refused_when_the_limit_is_built() {
    let limiter = Limiter::builder(CasBackend::new(MapStore::default())).build();
    let error = limiter.concurrency("ocr", 4).build().unwrap_err();
    assert!(matches!(error, ConcurrencyError::Unsupported { .. }));
    let text = error.to_string();
    assert!(
        text.contains("\"ocr\"") && text.contains("map") && text.contains("redis://"),
        "{text}"
    );
}

#[tokio::test]
async fn wrong_settings_are_refused_by_name_and_with_the_fix() {
    let limiter = limiter(&store(), FailurePolicy::Open);
    let error = limiter.concurrency("ocr", 0).build().unwrap_err();
    assert!(error.to_string().contains("slots is 0"), "{error}");
    let error = limiter
        .concurrency("ocr", 1)
        .ttl(ms(99))
        .build()
        .unwrap_err();
    assert!(
        error.to_string().contains("99ms") && error.to_string().contains("100 ms"),
        "{error}"
    );
    let year = Duration::from_secs(365 * 86_400);
    for ttl in [year + ms(1), Duration::MAX] {
        let error = limiter.concurrency("ocr", 1).ttl(ttl).build().unwrap_err();
        assert!(error.to_string().contains("365 days"), "{error}");
    }
    let limit = limiter.concurrency("year", 1).ttl(year).build().unwrap();
    drop(limit.acquire("k").await.unwrap());
    let error = limiter.concurrency("ocr", MOST + 1).build().unwrap_err();
    assert!(
        matches!(error, ConcurrencyError::TooMany { .. })
            && error.to_string().contains("\"ocr\"")
            && error.to_string().contains("use fewer"),
        "{error}"
    );
    for name in ["", "a\nb", "é", &"x".repeat(1_000)] {
        let error = limiter.concurrency(name, 1).build().unwrap_err();
        assert!(matches!(error, ConcurrencyError::Name(_)), "{error}");
    }
}

#[tokio::test]
async fn s105_per_client_says_so() {
    let limiter = limiter(&store(), FailurePolicy::Closed);
    let limit = limiter
        .concurrency("exports", 1)
        .per_client()
        .retry_after(Duration::from_secs(7))
        .build()
        .unwrap();
    let _alice = limit.acquire("alice").await.unwrap();
    let _bob = limit.acquire("bob").await.unwrap();
    match limit.acquire("alice").await {
        Err(NoSlot::Full {
            per_client: true,
            retry_after,
            ..
        }) => assert_eq!(retry_after, Duration::from_secs(7)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_are_never_more_than_the_slots() {
    let store = store();
    let limiters = [
        limiter(&store, FailurePolicy::Closed),
        limiter(&store, FailurePolicy::Closed),
    ];
    let (inside, most, runs) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let limiter = &limiters[task % 2];
            let limit = limiter
                .concurrency("ocr", 5)
                .wait(PATIENCE)
                .build()
                .unwrap();
            let (inside, most, runs) = (Arc::clone(&inside), Arc::clone(&most), Arc::clone(&runs));
            tokio::spawn(async move {
                for turn in 0..5 {
                    let work = async {
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        tokio::time::sleep(ms(1)).await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        runs.fetch_add(1, Ordering::SeqCst);
                    };
                    if turn % 2 == 0 {
                        limit.run("k", work).await.unwrap();
                    } else {
                        let permit = limit.acquire("k").await.unwrap();
                        work.await;
                        permit.release().await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(runs.load(Ordering::SeqCst), 320);
    assert_eq!(most.load(Ordering::SeqCst), 5);
}
