//! Concurrency limits: permits, waiting, renewal, loss, failure, shutdown.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tollgate::memory::MemoryBackend;
use tollgate::{
    BackendError, Breaker, CasBackend, Concurrency, ConcurrencyError, Cost, CounterBackend,
    Decision, ErrorKind, FailurePolicy, LeaseAnswer, LeaseBackend, LeaseSubject, Limiter, NoSlot,
    Origin, Refund, RunError, SharedLeases, Subject,
};
use tollgate_testkit::{MapStore, wait_until};

const PATIENCE: Duration = Duration::from_secs(10);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Memory that can be told to fail, hang or forget, and counts.
#[derive(Debug, Default)]
struct Store {
    inner: MemoryBackend,
    fails: AtomicBool,
    hangs: AtomicBool,
    /// Does what it is asked, and does not answer.
    loses_answers: AtomicBool,
    acquires: AtomicU32,
    renewals: AtomicU32,
    releases: AtomicU32,
    asked: Notify,
}

impl Store {
    async fn before(&self, count: &AtomicU32) -> Result<(), BackendError> {
        count.fetch_add(1, Ordering::SeqCst);
        self.asked.notify_waiters();
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err(BackendError::new(ErrorKind::Unavailable, "switched off"));
        }
        Ok(())
    }

    async fn after<T>(&self, answer: T) -> T {
        if self.loses_answers.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        answer
    }
}

impl LeaseBackend for Store {
    async fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.before(&self.acquires).await?;
        let answer = self.inner.try_hold(subject, holder, slots, ttl);
        self.after(answer).await
    }

    async fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.before(&self.renewals).await?;
        Ok(self.inner.try_renew(subject, holder, ttl))
    }

    async fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError> {
        self.before(&self.releases).await?;
        Ok(self.inner.try_release(subject, holder))
    }

    async fn in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError> {
        LeaseBackend::in_use(&self.inner, subject).await
    }
}

/// One store for two limiters, as two processes have.
#[derive(Clone, Debug)]
struct Shared(Arc<Store>);

impl std::fmt::Display for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("shared")
    }
}

impl CounterBackend for Shared {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        CounterBackend::acquire(&self.0.inner, subject, cost).await
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        self.0.inner.acquire_batch(subject, costs).await
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.0.inner.peek(subject, cost).await
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        self.0.inner.refund(subject, refund).await
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.0.inner.reset(subject).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.0.inner.ping().await
    }

    fn leases(self: Arc<Self>) -> Option<SharedLeases> {
        Some(SharedLeases::of(Arc::clone(&self.0)))
    }
}

fn store() -> Arc<Store> {
    Arc::default()
}

fn limiter(store: &Arc<Store>, on_failure: FailurePolicy) -> Limiter {
    Limiter::builder(Shared(Arc::clone(store)))
        .timeout(ms(50))
        .on_failure(on_failure)
        .breaker(Breaker {
            failures: u32::MAX,
            ratio: None,
            ..Breaker::default()
        })
        .build()
}

fn slots(store: &Arc<Store>, slots: u32) -> Concurrency {
    let limiter = limiter(store, FailurePolicy::Closed);
    limiter.concurrency("ocr", slots).build().unwrap()
}

fn is_full(answer: &Result<tollgate::Permit, NoSlot>) -> bool {
    matches!(answer, Err(NoSlot::Full { .. }))
}

async fn in_use(limit: &Concurrency, expected: u32) {
    let there = async || limit.in_use("k").await.unwrap() == expected;
    wait_until(&format!("{expected} in use"), PATIENCE, there).await;
}

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
    for name in ["", "a\nb", "é", &"x".repeat(1_000)] {
        let error = limiter.concurrency(name, 1).build().unwrap_err();
        assert!(matches!(error, ConcurrencyError::Name(_)), "{error}");
    }
}

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
    while held.elapsed() < ms(1_200) {
        assert!(is_full(&limit.acquire("k").await) && !permit.is_lost());
        tokio::time::sleep(ms(20)).await;
    }
    assert!(permit.release().await.unwrap());
    drop(limit.acquire("k").await.unwrap());
}

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
    let second = theirs.acquire("k").await.unwrap();
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
        // The store is back, and has slots for all.
        store.fails.store(false, Ordering::SeqCst);
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
    while began.elapsed() < ms(1_200) {
        assert!(permits.iter().all(|permit| !permit.is_lost()));
        tokio::time::sleep(ms(20)).await;
    }
    // Both are counted here by now.
    assert!(is_full(&limit.acquire("k").await));
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
