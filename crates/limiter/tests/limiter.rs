//! What a user of the facade meets: costs, waiting, names, connecting, secrets.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::log::Log;
use common::{Mode, Scripted, at, quotas};
use tokio::time::{Instant, advance};
use tollgate::{
    Algorithm, Connect, ConnectError, CostError, Error, ErrorKind, Key, Limiter, ManualClock,
    Origin, PolicyError,
};
use tracing::Level;

const HOUR: Duration = Duration::from_secs(3_600);

fn over(store: &Scripted) -> (Limiter, ManualClock) {
    let clock = ManualClock::new(at(0));
    let limiter = Limiter::builder(store.clone()).clock(clock.clone()).build();
    (limiter, clock)
}

fn limiter() -> (Limiter, ManualClock) {
    over(&Scripted::default())
}

#[tokio::test]
async fn b34_a_cost_of_0_is_an_error_and_a_peek_tells_the_same() {
    let store = Scripted::default();
    let (limiter, _) = over(&store);
    let limit = limiter.policy("p", quotas("2/60s")).unwrap();
    let zero = limit.acquire("k").cost(0).await;
    assert!(
        matches!(zero, Err(Error::Cost(CostError::Zero))),
        "{zero:?}"
    );
    assert_eq!(store.calls(), 0);
    assert_eq!(limit.peek("k").await.unwrap().remaining(), Some(2));
    for _ in 0..2 {
        assert!(limit.acquire("k").await.unwrap().allowed());
    }
    let peek = limit.peek("k").await.unwrap();
    assert_eq!(
        (peek.allowed(), peek.remaining(), peek.granted()),
        (false, Some(0), 0)
    );
    assert!(limit.peek("k").cost(0).await.is_err());
    assert!(!limit.acquire("k").await.unwrap().allowed());
}

#[tokio::test]
async fn b35_a_cost_above_the_capacity_is_an_error_at_once() {
    for algorithm in Algorithm::ALL {
        let store = Scripted::default();
        let (limiter, _) = over(&store);
        let limit = limiter
            .policy("p", quotas(&format!("10/60s {algorithm}")))
            .unwrap();
        let begun = Instant::now();
        for answer in [
            limit.acquire("k").cost(11).await,
            limit.acquire_wait("k", 11, HOUR).await,
        ] {
            let Err(Error::Cost(error)) = answer else {
                panic!("{algorithm}: {answer:?}");
            };
            let right = CostError::ExceedsCapacity {
                cost: 11,
                capacity: 10,
            };
            assert_eq!(error, right);
        }
        assert!(begun.elapsed() < Duration::from_millis(10), "{algorithm}");
        assert_eq!(store.calls(), 0);
        let decision = limit.acquire("k").cost(10).await.unwrap();
        assert_eq!((decision.allowed(), decision.remaining()), (true, Some(0)));
    }
}

#[tokio::test]
async fn a_maximum_below_the_cost_is_an_error() {
    let (limiter, _) = limiter();
    let limit = limiter.policy("p", quotas("10/60s")).unwrap();
    let answer = limit.acquire("k").cost(3).up_to(2).await;
    assert!(matches!(
        answer,
        Err(Error::Cost(CostError::MaxBelowCost { cost: 3, max: 2 }))
    ));
    // A maximum above the capacity is no error: as much as there is.
    assert_eq!(limit.acquire("k").up_to(50).await.unwrap().granted(), 10);
}

/// The store runs on virtual time that follows the runtime's, so that a sleep moves both.
async fn following(clock: ManualClock) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = Instant::now();
        clock.advance(now - last);
        last = now;
    }
}

#[tokio::test(start_paused = true)]
async fn b13_waiting_callers_together_stay_within_the_quota() {
    let (limiter, clock) = limiter();
    let limit = limiter
        .policy("p", quotas("1200/minute token_bucket burst=1200"))
        .unwrap();
    let follower = tokio::spawn(following(clock));
    let admitted = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + Duration::from_secs(10);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (limit, admitted) = (limit.clone(), Arc::clone(&admitted));
            tokio::spawn(async move {
                loop {
                    let left = end.saturating_duration_since(Instant::now());
                    let decision = limit.acquire_wait("k", 10, left).await.unwrap();
                    if !decision.allowed() {
                        return;
                    }
                    admitted.fetch_add(decision.granted(), Ordering::SeqCst);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    follower.abort();
    let admitted = admitted.load(Ordering::SeqCst);
    assert!((1_390..=1_400).contains(&admitted), "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_sleeps_as_long_as_it_must_and_asks_no_more_than_it_must() {
    let store = Scripted::default();
    let (limiter, clock) = over(&store);
    let limit = limiter.policy("p", quotas("1/10s")).unwrap();
    let follower = tokio::spawn(following(clock));
    limit.acquire("k").await.unwrap();
    let start = Instant::now();
    let decision = limit.acquire_wait("k", 1, HOUR).await.unwrap();
    follower.abort();
    assert!(decision.allowed());
    let waited = start.elapsed();
    assert!(
        waited >= Duration::from_secs(9) && waited <= Duration::from_millis(10_010),
        "{waited:?}"
    );
    assert!(store.calls() <= 5, "{}", store.calls());
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_so_long_is_refused_at_once() {
    let (limiter, _) = limiter();
    let limit = limiter.policy("p", quotas("1/10s")).unwrap();
    limit.acquire("k").await.unwrap();
    let start = Instant::now();
    let decision = limit
        .acquire_wait("k", 1, Duration::from_secs(9))
        .await
        .unwrap();
    assert!(!decision.allowed() && decision.retry_after() == Some(Duration::from_secs(10)));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// Virtual time stands still, so nothing ever fits again; it ends all the same.
#[tokio::test(start_paused = true)]
async fn a_waiter_on_a_clock_that_stands_still_ends() {
    let (limiter, _) = limiter();
    let limit = limiter.policy("p", quotas("1/10s")).unwrap();
    limit.acquire("k").await.unwrap();
    let start = Instant::now();
    let decision = limit
        .acquire_wait("k", 1, Duration::from_secs(35))
        .await
        .unwrap();
    assert!(!decision.allowed());
    assert!(start.elapsed() <= Duration::from_secs(35));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_takes_nothing() {
    let (limiter, clock) = limiter();
    let limit = limiter.policy("p", quotas("10/10s")).unwrap();
    limit.acquire("k").cost(10).await.unwrap();
    let waiting = limit.acquire_wait("k", 5, HOUR);
    assert!(
        tokio::time::timeout(Duration::from_secs(1), waiting)
            .await
            .is_err()
    );
    clock.advance(Duration::from_secs(10));
    assert_eq!(limit.peek("k").await.unwrap().remaining(), Some(10));
}

/// A refusal of a smaller cost is remembered; the waiter must learn its own wait, not a longer one.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_told_the_true_wait() {
    let (limiter, _) = limiter();
    let limit = limiter.policy("p", quotas("10/10s sliding_log")).unwrap();
    limit.acquire("k").cost(10).await.unwrap();
    assert!(!limit.acquire("k").await.unwrap().allowed());
    let decision = limit.acquire_wait("k", 5, Duration::ZERO).await.unwrap();
    assert_eq!(decision.retry_after(), Some(Duration::from_secs(10)));
    assert_eq!(decision.origin(), Origin::Shared);
}

#[tokio::test]
async fn a_name_belongs_to_one_set_of_quotas() {
    let (limiter, _) = limiter();
    let first = limiter.policy("p", quotas("1/s, 10/h")).unwrap();
    let same = limiter.policy("p", quotas("1/s, 10/h")).unwrap();
    for other in ["1/s", "10/h, 1/s", "1/s, 11/h"] {
        let taken = limiter.policy("p", quotas(other));
        assert!(
            matches!(taken, Err(PolicyError::Taken(name)) if &*name == "p"),
            "{other}"
        );
    }
    assert!(matches!(
        limiter.policy("", quotas("1/s")),
        Err(PolicyError::Name(_))
    ));
    assert!(matches!(
        limiter.policy("q", []),
        Err(PolicyError::Quotas(_))
    ));
    assert!(first.acquire("k").await.unwrap().allowed());
    assert!(!same.acquire("k").await.unwrap().allowed());
}

#[tokio::test]
async fn b71_nothing_printed_holds_an_identity_or_a_password() {
    let log = Log::new(Level::TRACE);
    let store = Scripted::default();
    let (limiter, _) = over(&store);
    let limit = limiter.policy("p", quotas("1/h")).unwrap();
    let mut printed = String::new();
    for mode in [
        Mode::Works,
        Mode::Works,
        Mode::Fails(ErrorKind::Unavailable),
    ] {
        store.set(mode);
        limiter.forget();
        let decision = limit.acquire("s3cr3t").await.unwrap();
        printed += &format!("{decision:?}");
        printed += &format!("{:?}", limit.reset(Key::from("s3cr3t2")).await);
    }
    printed += &format!("{limiter:?} {limiter} {limit:?} {:?}", limiter.health());
    printed += &format!("{:?} {:?}", limit.acquire("s3cr3t"), limit.peek("s3cr3t"));
    let url = "redis://svc:s3cr3t@127.0.0.1:1/0";
    printed += &format!("{:?}", Connect::new(url));
    match tollgate::connect(url).await {
        Ok(backend) => printed += &format!("{backend:?} {backend} {:?}", backend),
        Err(error) => printed += &format!("{error:?} {error}"),
    }
    let bad = tollgate::connect("rediss+nonsense://svc:s3cr3t@127.0.0.1")
        .await
        .unwrap_err();
    printed += &format!("{bad:?} {bad}");
    assert!(!printed.contains("s3cr3t"), "{printed}");
    let log = log.text();
    assert!(log.contains("decided") && !log.contains("s3cr3t"), "{log}");
}

#[tokio::test]
async fn a_url_that_cannot_be_used_says_why() {
    let error = async |url: &str| tollgate::connect(url).await.unwrap_err().to_string();
    for url in ["", "localhost", "://x", "me mory://", "memory:/"] {
        assert!(
            error(url).await.contains("must begin with a scheme"),
            "{url}"
        );
    }
    assert!(
        error("postgres://db")
            .await
            .contains("postgres:// names no store")
    );
    for url in [
        "memory://?max_keys=0",
        "memory://?max_keys=x",
        "memory://?max_keys=-1",
    ] {
        assert!(
            error(url)
                .await
                .contains("max_keys: use a number from 1 up"),
            "{url}"
        );
    }
    assert!(error("memory://?size=1").await.contains("the only setting"));
    assert!(error("memory://host").await.contains("names no place"));
}

#[cfg(not(feature = "redis"))]
#[tokio::test]
async fn a_scheme_of_a_disabled_feature_names_it() {
    for (scheme, wanted) in [
        ("redis", "redis"),
        ("valkey", "redis"),
        ("redis+cluster", "redis"),
        ("redis+sentinel", "redis"),
        ("redis+unix", "redis"),
        ("rediss", "redis-tls"),
        ("rediss+cluster", "redis-tls"),
        ("valkeys", "redis-tls"),
    ] {
        let url = format!("{scheme}://127.0.0.1");
        let error = tollgate::connect(&url).await.unwrap_err();
        let ConnectError::Disabled { feature, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(*feature, wanted, "{scheme}");
        assert!(error.to_string().contains(&format!("feature `{wanted}`")));
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_store_that_cannot_be_reached_is_an_error_only_if_it_is_required() {
    // Nobody listens on port 1.
    let url = "redis://127.0.0.1:1";
    let error = Connect::new(url).require(true).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Backend(_)), "{error:?}");
    let log = Log::new(Level::WARN);
    let limiter = Limiter::builder(tollgate::connect(url).await.unwrap()).build();
    assert_eq!(log.count("WARN"), 1, "{}", log.text());
    let limit = limiter.policy("p", quotas("1/h")).unwrap();
    assert_eq!(limit.acquire("k").await.unwrap().origin(), Origin::FailOpen);
}

#[cfg(feature = "memory")]
#[tokio::test]
async fn memory_is_bounded_by_url_and_builder() {
    let day = quotas("1/d");
    for backend in [
        tollgate::connect("memory://?max_keys=10").await.unwrap(),
        Connect::new("memory://")
            .max_keys(10)
            .connect()
            .await
            .unwrap(),
    ] {
        let limiter = Limiter::builder(backend).build();
        let limit = limiter.policy("p", day.clone()).unwrap();
        let mut admitted = 0;
        for i in 0..1_000 {
            admitted += u32::from(limit.acquire(format!("k{i}")).await.unwrap().allowed());
        }
        // Ten records of their own, and one that all others share.
        assert!((10..=12).contains(&admitted), "{admitted}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_store_itself_can_be_asked_without_any_fallback() {
    let store = Scripted::new(Mode::Fails(ErrorKind::Unavailable));
    let (limiter, _) = over(&store);
    let limit = limiter.policy("p", quotas("1/h")).unwrap();
    for _ in 0..10 {
        assert!(limit.acquire("k").await.unwrap().allowed());
    }
    use tollgate::CounterBackend;
    assert!(limiter.backend().ping().await.is_err());
    store.set(Mode::Works);
    limiter.backend().ping().await.unwrap();
    assert!(
        !limiter.health().enforcing,
        "it was not asked through the limiter"
    );
    advance(Duration::from_secs(1)).await;
    limiter.ping().await.unwrap();
    assert!(limiter.health().enforcing);
}

#[test]
fn everything_can_be_sent_and_shared() {
    fn check<T: Send + Sync + 'static>() {}
    fn send<T: Send>(_: &T) {}
    check::<Limiter>();
    check::<tollgate::RateLimit>();
    check::<tollgate::Watch>();
    check::<tollgate::Health>();
    check::<Error>();
    check::<ConnectError>();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (limiter, _) = limiter();
        let limit = limiter.policy("p", quotas("1/h")).unwrap();
        send(&std::future::IntoFuture::into_future(limit.acquire("k")));
        send(&limit.acquire_wait("k", 1, HOUR));
        send(&limit.reset("k"));
    });
}

/// The way without a future and the one with it, on two stores of the same history.
#[cfg(feature = "memory")]
#[tokio::test]
async fn asking_now_and_asking_the_future_agree() {
    use tollgate::memory::MemoryBackend;
    use tollgate::{
        Breaker, CircuitBreaker, CounterBackend, FailurePolicy, Fallback, Policy, Subject, Tiered,
        Timeout,
    };
    let stack = || {
        let timeout = Timeout::new(MemoryBackend::new(), Duration::from_secs(1));
        let breaker = CircuitBreaker::new(timeout, Breaker::default());
        Tiered::new(Fallback::new(breaker, FailurePolicy::Closed), 100)
    };
    let (one, other) = (stack(), stack());
    let mut rng = tollgate_testkit::Rng::new(3);
    for algorithm in Algorithm::ALL {
        let quota = rng.quota(algorithm);
        let policy = Policy::new(algorithm.as_str(), [quota]).unwrap();
        let mut now = rng.moment();
        for _ in 0..200 {
            let key = Key::from("k");
            let subject = Subject::new(&policy, &key).at(now);
            let cost = rng.cost(quota.capacity());
            let at_once = one.acquire_now(subject, cost).unwrap().unwrap();
            assert_eq!(
                at_once,
                other.acquire(subject, cost).await.unwrap(),
                "{quota}"
            );
            now = now + rng.pause(now, quota.period());
        }
    }
}
