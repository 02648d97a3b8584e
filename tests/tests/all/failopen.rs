//! A store that hangs, dies, or is not there yet (`failopen` in docs/faults.md).

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{PATIENT, Stopwatch, connect, fresh, ms, seconds};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollgate::{
    Breaker, BreakerState, ConnectError, ErrorKind, FailurePolicy, Limiter, Origin, Quota,
    RateLimit,
};
use tollgate_testkit::{FaultProxy, MemcachedServer, RedisServer, wait_until, within};

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
    let watch = Stopwatch::start();
    let decision = limit.acquire("k").await.unwrap();
    let took = watch.elapsed();
    assert!(decision.allowed() || decision.origin() == Origin::Shared);
    (took, decision.origin())
}

/// One check, let through within `bound`; whether it waited for the store.
async fn waits(limit: &RateLimit, bound: Duration) -> bool {
    let (took, origin) = timed(limit).await;
    assert_eq!(origin, Origin::FailOpen);
    assert!(took < bound, "{took:?}");
    took > TIMEOUT / 2
}

/// 50 checks at once, each let through within `bound`; how many waited for the store.
async fn wait_at_once(limit: &RateLimit, bound: Duration) -> usize {
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let limit = limit.clone();
            tokio::spawn(async move { waits(&limit, bound).await })
        })
        .collect();
    let mut waited = 0;
    for task in tasks {
        waited += usize::from(task.await.unwrap());
    }
    waited
}

/// Accepts whoever comes, and never says a word.
struct Silent(JoinHandle<()>);

impl Silent {
    async fn listen(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        Self(tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
            }
        }))
    }

    /// Leaves the port, and everybody.
    async fn end(self) {
        self.0.abort();
        assert!(self.0.await.unwrap_err().is_cancelled());
    }
}

/// Checks every 2 ms until `end`, or until the store has decided; when that was.
async fn until_served(limit: &RateLimit, end: Instant) -> Option<Instant> {
    while Instant::now() < end {
        if timed(limit).await.1 == Origin::Shared {
            return Some(Instant::now());
        }
        tokio::time::sleep(ms(2)).await;
    }
    None
}

/// A server that the case may take off its port, and put back.
trait Server: Send + Sync {
    fn address(&self) -> SocketAddr;
    fn url(&self) -> String;
    fn kill(&mut self);
    fn restart(&mut self) -> impl Future<Output = ()> + Send;
}

macro_rules! server {
    ($type:ty) => {
        impl Server for $type {
            fn address(&self) -> SocketAddr {
                self.address()
            }

            fn url(&self) -> String {
                self.url()
            }

            fn kill(&mut self) {
                self.kill();
            }

            async fn restart(&mut self) {
                self.restart().await;
            }
        }
    };
}

server!(RedisServer);
server!(MemcachedServer);

// On one thread, of which is known how long the machine kept it waiting.
#[tokio::test]
async fn b65_a_listener_that_never_answers_holds_nobody_up() {
    holds_nobody_up(RedisServer::start().await).await;
}

#[tokio::test]
async fn b65_a_listener_instead_of_memcached_holds_nobody_up() {
    holds_nobody_up(MemcachedServer::start().await).await;
}

async fn holds_nobody_up(mut server: impl Server) {
    // Its port, which it takes again later.
    server.kill();
    let mut silent = Silent::listen(server.address()).await;
    let start = async |breaker: Breaker| {
        let watch = Stopwatch::start();
        let backend = within("starting", seconds(5), tollgate::connect(&server.url())).await;
        // The connect timeout is 1 s.
        let took = watch.elapsed();
        assert!(took < ms(1_050), "started in {took:?}");
        let limiter = Limiter::builder(backend.unwrap())
            .timeout(TIMEOUT)
            .breaker(breaker)
            .build();
        let quota = "1000000/s".parse().unwrap();
        (limiter.clone(), limiter.policy("b65", [quota]).unwrap())
    };

    // All by the timeout: this breaker never opens.
    let (limiter, limit) = start(Breaker {
        failures: u32::MAX,
        ratio: None,
        ..Breaker::default()
    })
    .await;
    // (Between two attempts to connect there is nothing to wait for, and those do not count.)
    let mut waited = 0;
    while waited < 50 {
        waited += usize::from(waits(&limit, ms(150)).await);
        tokio::time::sleep(ms(2)).await;
    }
    let mut at_once = 0;
    while at_once < 50 {
        at_once += wait_at_once(&limit, ms(150)).await;
        tokio::time::sleep(ms(2)).await;
    }
    let health = limiter.health();
    assert_eq!(health.breaker, BreakerState::Closed);
    assert!(health.unenforced >= 100 && !health.enforcing);

    // Behind an open breaker at once. (All is over before its cooldown is.)
    let (limiter, limit) = start(Breaker::default()).await;
    while limiter.health().breaker == BreakerState::Closed {
        waits(&limit, ms(150)).await;
    }
    let before = limiter.health().unenforced;
    for _ in 0..50 {
        waits(&limit, ms(5)).await;
    }
    wait_at_once(&limit, ms(5)).await;
    assert_eq!(limiter.health().unenforced, before + 100);
    assert_eq!(limiter.health().breaker, BreakerState::Open);

    // The real server is used when it is there, wherever the probes and the attempts to connect
    // were just then.
    let (_, limit) = start(Breaker {
        cooldown: COOLDOWN,
        ..Breaker::default()
    })
    .await;
    for lasts in [600, 1_700, 2_250] {
        let end = Instant::now() + ms(lasts);
        assert_eq!(until_served(&limit, end).await, None);
        let patience = Instant::now() + seconds(10);
        let load = limit.clone();
        let served = tokio::spawn(async move { until_served(&load, patience).await });
        silent.end().await;
        server.restart().await;
        let up = Instant::now();
        let served = served.await.unwrap().expect("it is served at last");
        let took = served.saturating_duration_since(up);
        assert!(took < COOLDOWN + ms(250), "only after {took:?}");
        server.kill();
        silent = Silent::listen(server.address()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b67_a_killed_connection_costs_at_most_the_calls_in_flight() {
    const IN_FLIGHT: u64 = 20;
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    // Nothing here ends by a timeout.
    let limiter = Limiter::builder(connect(&proxy.url()).await)
        .timeout(PATIENT)
        .build();
    let limit = limiter
        .policy("b67", ["1000000/s".parse().unwrap()])
        .unwrap();
    assert_eq!(timed(&limit).await.1, Origin::Shared);
    for round in 1..=3 {
        proxy.hold_replies();
        let asked = proxy.commands_named("EVALSHA");
        let calls: Vec<_> = (0..IN_FLIGHT)
            .map(|_| {
                let limit = limit.clone();
                tokio::spawn(async move { timed(&limit).await })
            })
            .collect();
        proxy.wait_for("EVALSHA", asked + IN_FLIGHT).await;
        let killed = server
            .command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .await;
        assert!(killed.integer().unwrap() >= 1);
        for call in calls {
            let (took, origin) = within("a lost call", seconds(2), call).await.unwrap();
            assert_eq!(origin, Origin::FailOpen, "{took:?}");
        }
        proxy.restore().await;
        // All that come later are counted, from the first on: one break is no outage.
        for _ in 0..50 {
            assert_eq!(timed(&limit).await.1, Origin::Shared);
        }
        let health = limiter.health();
        assert_eq!(
            (health.breaker, health.unenforced),
            (BreakerState::Closed, round * IN_FLIGHT)
        );
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
