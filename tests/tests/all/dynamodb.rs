//! The limiter over a DynamoDB that throttles, stays silent, is slow, dies, and comes back.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{Breaker, BreakerState, FailurePolicy, Limiter, Origin, RateLimit, SharedBackend};
use tollgate_dynamodb::{Capacity, DynamoBackend, create_table};
use tollgate_testkit::{
    DynamoFlavor, DynamoProxy, DynamoServer, LocalDynamo, Mischief, wait_until,
};

use crate::support::{fresh, ms, seconds};

const TIMEOUT: Duration = Duration::from_millis(100);
const COOLDOWN: Duration = Duration::from_millis(400);

fn url(endpoint: &str) -> String {
    format!("dynamodb://limits?endpoint={endpoint}")
}

async fn table(endpoint: &str) {
    create_table(&url(endpoint), Capacity::OnDemand, seconds(20))
        .await
        .unwrap();
}

async fn limiter(endpoint: &str) -> Limiter {
    let builder = DynamoBackend::builder(url(endpoint)).connect_timeout(seconds(2));
    let backend = builder.connect_or_degrade().await.unwrap();
    Limiter::builder(SharedBackend::new(backend))
        .timeout(TIMEOUT)
        .breaker(Breaker {
            cooldown: COOLDOWN,
            ..Breaker::default()
        })
        .build()
}

fn plenty(limiter: &Limiter) -> RateLimit {
    limiter
        .policy(&fresh("dynamodb"), ["1000000/s".parse().unwrap()])
        .unwrap()
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

/// So many checks at once, which all must be let through unenforced and in time. Beside each is a
/// timer alone: by how much the latest of these is late is the machine's doing.
async fn all_pass_in_time(limit: &RateLimit, checks: usize) {
    let tasks: Vec<_> = (0..checks)
        .map(|_| {
            let limit = limit.clone();
            let check = tokio::spawn(async move {
                let start = Instant::now();
                let decision = limit.acquire("k").await.unwrap();
                (start.elapsed(), decision.allowed(), decision.origin())
            });
            let timer = tokio::spawn(async move {
                let start = Instant::now();
                tokio::time::sleep(TIMEOUT).await;
                start.elapsed().saturating_sub(TIMEOUT)
            });
            (check, timer)
        })
        .collect();
    let (mut longest, mut late) = (Duration::ZERO, Duration::ZERO);
    for (check, timer) in tasks {
        let (took, allowed, origin) = check.await.unwrap();
        assert!(allowed && origin == Origin::FailOpen, "{origin:?}");
        longest = longest.max(took);
        late = late.max(timer.await.unwrap());
    }
    assert!(
        longest <= TIMEOUT + ms(50) + late,
        "{longest:?}, timers late by {late:?}"
    );
}

/// Counts again, within the cooldown and a second.
async fn recovers(limit: &RateLimit) {
    let start = Instant::now();
    let shared = async || limit.acquire("k").await.unwrap().origin() == Origin::Shared;
    wait_until("the recovered store", seconds(20), shared).await;
    let took = start.elapsed();
    assert!(took <= COOLDOWN + seconds(1), "counts only after {took:?}");
}

#[test]
fn b65_b80_a_store_that_throttles_hangs_or_breaks_holds_nobody_up() {
    timed(mischief());
}

async fn mischief() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let proxy = DynamoProxy::start(server.address()).await;
    for mischief in [
        Mischief::exception("ProvisionedThroughputExceededException"),
        Mischief::exception("ThrottlingException"),
        Mischief::Answer(500, "InternalServerError".into()),
        Mischief::Silence,
        Mischief::Delay(seconds(5)),
        Mischief::Cut,
        Mischief::LoseAnswer,
    ] {
        let limiter = limiter(&proxy.endpoint()).await;
        let limit = plenty(&limiter);
        assert_eq!(limit.acquire("k").await.unwrap().origin(), Origin::Shared);
        proxy.always(mischief.clone());
        let before = proxy.all_calls();
        all_pass_in_time(&limit, 100).await;
        assert!(proxy.all_calls() - before <= 300, "{mischief:?}");
        let health = limiter.health();
        assert_eq!(
            (health.enforcing, health.unenforced),
            (false, 100),
            "{mischief:?}"
        );
        // Calls that are cut off together are one failure, so those take some rounds.
        for _ in 0..5 {
            if limiter.health().breaker == BreakerState::Closed {
                all_pass_in_time(&limit, 1).await;
            }
        }
        assert_eq!(limiter.health().breaker, BreakerState::Open, "{mischief:?}");
        // Nobody is asked any more, but for a probe now and then.
        let asked = proxy.all_calls();
        all_pass_in_time(&limit, 50).await;
        assert!(proxy.all_calls() - asked <= 2, "{mischief:?}");
        proxy.well();
        recovers(&limit).await;
        assert!(limiter.health().enforcing, "{mischief:?}");
    }
}

#[test]
fn b67_a_server_that_freezes_or_dies_is_used_again() {
    timed(dies());
}

async fn dies() {
    let mut server = DynamoServer::start(DynamoFlavor::Dynoxide).await;
    table(&server.endpoint()).await;
    let limiter = limiter(&server.endpoint()).await;
    let limit = plenty(&limiter);
    for frozen in [true, false] {
        recovers(&limit).await;
        if frozen {
            server.pause();
        } else {
            server.kill();
        }
        all_pass_in_time(&limit, 50).await;
        if frozen {
            server.resume();
        } else {
            server.restart().await;
        }
        recovers(&limit).await;
    }
}

#[tokio::test]
async fn b68_every_policy_answers_in_its_own_way() {
    // Nobody listens there.
    let limiter = limiter("http://127.0.0.1:1").await;
    let mut outcomes = Vec::new();
    for policy in [
        FailurePolicy::Open,
        FailurePolicy::Closed,
        FailurePolicy::Local,
    ] {
        let quotas = ["3/60s".parse().unwrap()];
        let limit = limiter.policy_with(&fresh("b68"), quotas, policy).unwrap();
        let mut admitted = 0;
        for _ in 0..100 {
            let decision = limit.acquire("k").await.unwrap();
            assert!(!decision.origin().is_enforced());
            admitted += u32::from(decision.allowed());
        }
        outcomes.push(admitted);
    }
    assert_eq!(outcomes, [100, 0, 3]);
    assert_eq!(limiter.health().unenforced, 300);
}

#[tokio::test]
async fn b74_refusals_never_open_the_breaker() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let backend = DynamoBackend::builder(url(&server.endpoint()))
        .connect()
        .await
        .unwrap();
    // No memory of refusals, so that each of them is one of the store's.
    let limiter = Limiter::builder(SharedBackend::new(backend))
        .timeout(seconds(20))
        .forget_refusals()
        .build();
    let limit = limiter
        .policy(&fresh("b74"), ["1/60s".parse().unwrap()])
        .unwrap();
    let mut refused = 0;
    for _ in 0..200 {
        let decision = limit.acquire("k").await.unwrap();
        assert_eq!(decision.origin(), Origin::Shared);
        refused += u32::from(!decision.allowed());
    }
    assert_eq!(refused, 199);
    let health = limiter.health();
    assert_eq!(
        (health.breaker, health.unenforced),
        (BreakerState::Closed, 0)
    );
}
