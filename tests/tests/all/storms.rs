//! Redis killed, frozen, restarted, flushed, made read-only and filled up, and memcached killed, frozen,
//! slow, silent and restarted, each under 200 checks a second: nobody waits, nobody gets an error, everything is reported, and counting resumes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use crate::support::{ms, seconds};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tollgate::{Breaker, BreakerState, ErrorKind, Limiter, Origin, RateLimit, SharedBackend};
use tollgate_testkit::{FaultProxy, MemcachedServer, RedisServer, wait_until};

const TIMEOUT: Duration = Duration::from_millis(50);
const COOLDOWN: Duration = Duration::from_millis(500);

/// One check.
struct Check {
    began: Instant,
    took: Duration,
    origin: Origin,
    /// Whether the breaker was open when it began, and when it ended.
    open: bool,
}

/// 200 checks a second until it is told to stop.
struct Storm {
    limiter: Limiter,
    stop: Arc<AtomicBool>,
    load: JoinHandle<Vec<JoinHandle<Check>>>,
    started: Instant,
    /// How many panics there had been before.
    panics: u64,
}

/// How many panics there were in this process since it was first asked, in whatever task.
fn panics() -> u64 {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    static COUNTING: Once = Once::new();
    COUNTING.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            report(info);
        }));
    });
    PANICS.load(Ordering::SeqCst)
}

async fn check(limit: RateLimit, number: u64) -> Check {
    let is_open = || limit.limiter().health().breaker == BreakerState::Open;
    let before = is_open();
    let started = Instant::now();
    let decision = limit.acquire(format!("k{}", number % 50)).await;
    let took = started.elapsed();
    let decision = decision.expect("no caller gets an error");
    assert!(decision.allowed(), "fail-open admits: {decision:?}");
    Check {
        began: started,
        took,
        origin: decision.origin(),
        open: before && is_open(),
    }
}

impl Storm {
    async fn start(server: &RedisServer) -> Self {
        Self::over(tollgate::connect(&server.url()).await.unwrap()).await
    }

    async fn over(backend: SharedBackend) -> Self {
        let panics = panics();
        let limiter = Limiter::builder(backend)
            .timeout(TIMEOUT)
            .breaker(Breaker {
                cooldown: COOLDOWN,
                ..Breaker::default()
            })
            .build();
        let limit = limiter
            .policy("storm", ["1000000/s".parse().unwrap()])
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let load = tokio::spawn(async move {
            let mut ticks = interval(ms(5));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut checks = Vec::new();
            while !ended.load(Ordering::SeqCst) {
                ticks.tick().await;
                checks.push(tokio::spawn(check(limit.clone(), checks.len() as u64)));
            }
            checks
        });
        let storm = Self {
            limiter,
            stop,
            load,
            started: Instant::now(),
            panics,
        };
        // It counts before anything happens.
        storm.resumed(seconds(5)).await;
        storm
    }

    /// Returns when the limiter says that nothing is enforced, and why.
    async fn noticed(&self) -> ErrorKind {
        let degraded = async || !self.limiter.health().enforcing;
        wait_until("the fault to be reported", seconds(5), degraded).await;
        self.limiter.health().reason.expect("a reason")
    }

    /// Returns when the limiter says that limits are enforced.
    async fn resumed(&self, limit: Duration) {
        let watch = async || {
            let health = self.limiter.health();
            health.enforcing && health.breaker == BreakerState::Closed
        };
        wait_until("counting to resume", limit, watch).await;
    }

    /// Lets the fault last.
    async fn rage(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    /// Stops, and judges every check.
    async fn end(self) -> Vec<Check> {
        self.stop.store(true, Ordering::SeqCst);
        let lasted = self.started.elapsed();
        let mut checks = Vec::new();
        for check in self.load.await.unwrap() {
            checks.push(check.await.expect("no check panics"));
        }
        assert_eq!(panics(), self.panics, "something panicked");
        let offered = lasted.as_millis() / 5;
        assert!(
            checks.len() as u128 > offered / 2,
            "{} of {offered} were offered",
            checks.len()
        );
        let slowest = checks.iter().map(|check| check.took).max().unwrap();
        assert!(slowest <= TIMEOUT + ms(50), "a caller waited {slowest:?}");
        // Behind an open breaker only the probes wait, and whom the machine keeps waiting.
        let probes = (lasted.as_millis() / COOLDOWN.as_millis()) as usize + 1;
        let behind: Vec<_> = checks.iter().filter(|check| check.open).collect();
        let slow = behind.iter().filter(|check| check.took > ms(5)).count();
        assert!(
            slow <= probes + behind.len() / 50,
            "{slow} of {} waited",
            behind.len()
        );
        // What was not counted is counted as such.
        let unenforced = checks
            .iter()
            .filter(|check| !check.origin.is_enforced())
            .count() as u64;
        assert_eq!(self.limiter.health().unenforced, unenforced);
        checks
    }
}

/// From the end of a fault to counting again.
const RESUMES: Duration = Duration::from_millis(500 + 1_000);

fn some_were_not_enforced(checks: &[Check]) {
    let open = checks
        .iter()
        .filter(|check| check.origin == Origin::FailOpen)
        .count();
    assert!(open > 20, "only {open} met the fault");
    assert!(
        checks.iter().any(|check| check.open),
        "the breaker never opened"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_b67_a_killed_redis() {
    let mut server = RedisServer::start().await;
    let storm = Storm::start(&server).await;
    server.kill();
    assert_eq!(storm.noticed().await, ErrorKind::Unavailable);
    storm.rage(seconds(3)).await;
    server.restart().await;
    storm.resumed(RESUMES).await;
    let resumed = Instant::now();
    storm.rage(ms(300)).await;
    let checks = storm.end().await;
    some_were_not_enforced(&checks);
    let mut later = checks.iter().filter(|check| check.began > resumed);
    assert!(later.clone().count() > 20);
    assert!(later.all(|check| check.origin == Origin::Shared));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_b67_killed_connections() {
    // The end of a connection takes a moment to reach us, as any packet does.
    const NEWS: Duration = Duration::from_millis(10);
    let server = RedisServer::start().await;
    let storm = Storm::start(&server).await;
    let mut kills = Vec::new();
    for _ in 0..10 {
        storm.rage(ms(100)).await;
        let began = Instant::now();
        let killed = server
            .command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .await;
        assert!(killed.integer().unwrap() >= 1);
        kills.push((began, Instant::now()));
    }
    storm.rage(ms(200)).await;
    let checks = storm.end().await;
    for check in checks {
        let in_flight = kills.iter().any(|(began, ended)| {
            check.began <= *ended + NEWS && check.began + check.took >= *began
        });
        assert!(!check.open, "a killed connection opened the breaker");
        assert!(
            check.origin == Origin::Shared || in_flight,
            "lost without having been in flight"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_b65_a_frozen_redis() {
    let mut server = RedisServer::start().await;
    let storm = Storm::start(&server).await;
    server.pause();
    assert_eq!(storm.noticed().await, ErrorKind::Timeout);
    storm.rage(seconds(2)).await;
    server.resume();
    storm.resumed(RESUMES).await;
    some_were_not_enforced(&storm.end().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_b56_a_restarted_redis() {
    let mut server = RedisServer::start().await;
    let storm = Storm::start(&server).await;
    server.stop();
    server.restart().await;
    storm.resumed(RESUMES).await;
    storm.rage(ms(200)).await;
    let checks = storm.end().await;
    let last = checks.last().unwrap();
    assert_eq!(last.origin, Origin::Shared);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_b56_flushed_scripts() {
    let server = RedisServer::start().await;
    let storm = Storm::start(&server).await;
    for _ in 0..10 {
        server.command(&["SCRIPT", "FLUSH"]).await;
        storm.rage(ms(50)).await;
    }
    let checks = storm.end().await;
    assert!(
        checks.iter().all(|check| check.origin == Origin::Shared),
        "some were not counted"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_a_redis_that_became_a_replica() {
    let server = RedisServer::start().await;
    let storm = Storm::start(&server).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let reason = storm.noticed().await;
    assert!(
        matches!(reason, ErrorKind::ReadOnly | ErrorKind::NotReady),
        "{reason}"
    );
    storm.rage(seconds(1)).await;
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    storm.resumed(RESUMES).await;
    some_were_not_enforced(&storm.end().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_b60_a_redis_out_of_memory() {
    let server = RedisServer::start().await;
    server
        .command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])
        .await;
    let storm = Storm::start(&server).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(storm.noticed().await, ErrorKind::OutOfMemory);
    storm.rage(seconds(1)).await;
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    storm.resumed(RESUMES).await;
    some_were_not_enforced(&storm.end().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_b67_a_killed_memcached() {
    let mut server = MemcachedServer::start().await;
    let storm = Storm::over(tollgate::connect(&server.url()).await.unwrap()).await;
    server.kill();
    assert_eq!(storm.noticed().await, ErrorKind::Unavailable);
    storm.rage(seconds(2)).await;
    server.restart().await;
    storm.resumed(RESUMES).await;
    some_were_not_enforced(&storm.end().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_b65_a_frozen_memcached() {
    let mut server = MemcachedServer::start().await;
    let storm = Storm::over(tollgate::connect(&server.url()).await.unwrap()).await;
    server.pause();
    assert_eq!(storm.noticed().await, ErrorKind::Timeout);
    storm.rage(seconds(2)).await;
    server.resume();
    storm.resumed(RESUMES).await;
    some_were_not_enforced(&storm.end().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_b65_a_silent_and_a_slow_memcached() {
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    let storm = Storm::over(tollgate::connect(&proxy.url()).await.unwrap()).await;
    proxy.stay_silent();
    assert_eq!(storm.noticed().await, ErrorKind::Timeout);
    storm.rage(seconds(1)).await;
    // Its connections stay dead, as over a network that was cut.
    proxy.restore().await;
    storm.resumed(RESUMES).await;
    proxy.delay_replies(ms(80));
    assert_eq!(storm.noticed().await, ErrorKind::Timeout);
    storm.rage(seconds(1)).await;
    proxy.restore().await;
    storm.resumed(RESUMES).await;
    some_were_not_enforced(&storm.end().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_b56_a_restarted_memcached() {
    let mut server = MemcachedServer::start().await;
    let storm = Storm::over(tollgate::connect(&server.url()).await.unwrap()).await;
    server.restart().await;
    storm.resumed(RESUMES).await;
    storm.rage(ms(200)).await;
    let checks = storm.end().await;
    assert_eq!(checks.last().unwrap().origin, Origin::Shared);
}
