//! A store that hangs, dies, or is not there yet (`failopen` in docs/faults.md).

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{fresh, ms, seconds};
use tokio::time::Instant;
use tollgate::{
    Breaker, BreakerState, ConnectError, ErrorKind, FailurePolicy, Limiter, Origin, Quota,
    RateLimit,
};
use tollgate_testkit::{FaultProxy, RedisServer, wait_until, within};

const TIMEOUT: Duration = Duration::from_millis(100);
const COOLDOWN: Duration = Duration::from_millis(400);

fn three() -> Quota {
    "3/60s".parse().unwrap()
}

async fn limiter(url: &str) -> Limiter {
    let started = Instant::now();
    let backend = within("connecting", seconds(5), tollgate::connect(url))
        .await
        .unwrap();
    assert!(started.elapsed() < seconds(3), "{:?}", started.elapsed());
    Limiter::builder(backend)
        .timeout(TIMEOUT)
        .breaker(Breaker {
            cooldown: COOLDOWN,
            ..Breaker::default()
        })
        .build()
}

/// How long one check took, and who decided.
async fn timed(limit: &RateLimit) -> (Duration, Origin) {
    let started = Instant::now();
    let decision = limit.acquire("k").await.unwrap();
    assert!(decision.allowed() || decision.origin() == Origin::Shared);
    (started.elapsed(), decision.origin())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b65_a_store_that_accepts_and_never_answers_holds_nobody_up() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    proxy.stay_silent();
    // Start-up against it is bounded too.
    let limiter = limiter(&proxy.url()).await;
    let limit = limiter
        .policy("b65", ["1000000/s".parse().unwrap()])
        .unwrap();
    let mut slow = 0;
    for _ in 0..50 {
        let open = limiter.health().breaker == BreakerState::Open;
        let (took, origin) = timed(&limit).await;
        assert_eq!(origin, Origin::FailOpen);
        assert!(took < ms(150), "{took:?}");
        slow += usize::from(open && took > ms(5));
    }
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let limit = limit.clone();
            tokio::spawn(async move { timed(&limit).await })
        })
        .collect();
    for task in tasks {
        let (took, origin) = task.await.unwrap();
        assert!(
            origin == Origin::FailOpen && took < ms(150),
            "{origin:?} {took:?}"
        );
    }
    // Once it is open only probes wait.
    assert!(slow <= 3, "{slow} checks waited behind an open breaker");
    assert_eq!(limiter.health().unenforced, 100);

    proxy.kill_connections();
    proxy.restore().await;
    let restored = Instant::now();
    let shared = async || timed(&limit).await.1 == Origin::Shared;
    wait_until("the recovered store", seconds(5), shared).await;
    let took = restored.elapsed();
    assert!(
        took < COOLDOWN + ms(250) + TIMEOUT,
        "recovered only after {took:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b67_a_connection_that_died_is_replaced() {
    let mut server = RedisServer::start().await;
    let limiter = limiter(&server.url()).await;
    let limit = limiter
        .policy("b67", ["1000000/s".parse().unwrap()])
        .unwrap();
    assert_eq!(timed(&limit).await.1, Origin::Shared);

    // CLIENT KILL alone costs at most the calls in flight.
    let killed = server
        .command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await;
    assert!(killed.integer().unwrap() >= 1);
    let lost = limiter.health().unenforced;
    let shared = async || timed(&limit).await.1 == Origin::Shared;
    wait_until("another connection", seconds(1), shared).await;
    assert!(
        limiter.health().unenforced <= lost + 2,
        "{:?}",
        limiter.health()
    );

    for _ in 0..2 {
        server.kill();
        let degraded = async || timed(&limit).await.1 == Origin::FailOpen;
        wait_until("the kill to be noticed", seconds(1), degraded).await;
        server.restart().await;
        let restarted = Instant::now();
        wait_until("the restarted store", seconds(5), shared).await;
        let took = restarted.elapsed();
        assert!(took < seconds(1) + COOLDOWN, "only after {took:?}");
    }
}

#[tokio::test]
async fn b68_every_policy_answers_in_its_own_way_and_is_counted() {
    let limiter = limiter("redis://127.0.0.1:1").await;
    let count = async |policy: FailurePolicy| {
        let limit = limiter
            .policy_with(&fresh("b68"), [three()], policy)
            .unwrap();
        let mut outcomes = (0, 0);
        for _ in 0..100 {
            let decision = limit.acquire("k").await.unwrap();
            assert!(!decision.origin().is_enforced());
            if decision.allowed() {
                outcomes.0 += 1;
            } else {
                outcomes.1 += 1;
            }
        }
        outcomes
    };
    assert_eq!(count(FailurePolicy::Open).await, (100, 0));
    assert_eq!(count(FailurePolicy::Closed).await, (0, 100));
    assert_eq!(count(FailurePolicy::Local).await, (3, 97));
    let health = limiter.health();
    assert_eq!((health.enforcing, health.unenforced), (false, 300));
}

#[tokio::test]
async fn b70_a_store_that_comes_later_is_used_then() {
    let mut server = RedisServer::start().await;
    let (address, url) = (server.address(), server.url());
    server.kill();
    let limiter = limiter(&url).await;
    let limit = limiter.policy("b70", [three()]).unwrap();
    for _ in 0..5 {
        assert_eq!(limit.acquire("k").await.unwrap().origin(), Origin::FailOpen);
    }
    assert!(!limiter.health().enforcing);
    let error = tollgate::Connect::new(&url)
        .require(true)
        .connect()
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::Backend(e) if e.kind() == ErrorKind::Unavailable));
    server.restart().await;
    assert_eq!(server.address(), address);
    let counted = async || limit.acquire("k").await.unwrap().origin() == Origin::Shared;
    wait_until("the store", seconds(5), counted).await;
    assert!(limiter.health().enforcing);
}

#[tokio::test]
async fn b70_a_wrong_password_refuses_to_start() {
    let server = RedisServer::builder().password("right").start().await;
    for user in ["", "nobody"] {
        let url = server.url().replace(":right@", &format!("{user}:s3cr3t@"));
        let error = tollgate::connect(&url).await.unwrap_err();
        assert!(
            matches!(&error, ConnectError::Backend(e) if e.kind() == ErrorKind::Auth),
            "{error:?}"
        );
        assert!(!format!("{error} {error:?}").contains("s3cr3t"));
    }
    assert!(tollgate::connect(&server.url()).await.is_ok());
}

#[tokio::test]
async fn b71_a_password_is_in_nothing_that_can_be_printed() {
    let refused: SocketAddr = ([127, 0, 0, 1], 1).into();
    let url = format!("redis://svc:s3cr3t@{refused}/0");
    let limiter = limiter(&url).await;
    let limit = limiter.policy("b71", [three()]).unwrap();
    let decision = limit.acquire("k").await.unwrap();
    let ping = limiter.ping().await.unwrap_err();
    let required = tollgate::Connect::new(&url)
        .require(true)
        .connect()
        .await
        .unwrap_err();
    let shown = format!(
        "{limiter:?} {limit:?} {decision:?} {ping} {ping:?} {required} {required:?} {} {:?} {:?}",
        limiter.backend(),
        limiter.backend(),
        limiter.health(),
    );
    assert!(!shown.contains("s3cr3t"), "{shown}");
    // Bad URLs too.
    for url in [
        "redis://svc:s3cr3t@",
        "redis://svc:s3cr3t@host:port",
        "etcd://svc:s3cr3t@host",
    ] {
        let error = tollgate::connect(url).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
    }
}
