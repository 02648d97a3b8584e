//! The breaker before a real store that hangs (`breaker` in docs/faults.md).

use std::time::Duration;

use crate::support::{PATIENT, Stopwatch, connect, ms, seconds};
use tokio::time::Instant;
use tollgate::{Breaker, BreakerState, Limiter, Origin, RateLimit};
use tollgate_testkit::{FaultProxy, MemcachedServer, RedisServer, Rule, wait_until};

/// One check: when it began, how long it took.
async fn check(limit: RateLimit) -> (Instant, Duration) {
    let started = Instant::now();
    let watch = Stopwatch::start();
    let decision = limit.acquire("k").await.unwrap();
    let took = watch.elapsed();
    assert!(decision.allowed());
    assert_eq!(decision.origin(), Origin::FailOpen);
    (started, took)
}

/// 100 checks at once. All but the one that waited took less than 5 ms; when that one began.
async fn storm(limit: &RateLimit) -> Vec<Instant> {
    let tasks: Vec<_> = (0..100)
        .map(|_| tokio::spawn(check(limit.clone())))
        .collect();
    let mut probes = Vec::new();
    for task in tasks {
        let (started, took) = task.await.unwrap();
        if took > TIMEOUT / 2 {
            probes.push(started);
        } else {
            assert!(took < ms(5), "{took:?}");
        }
    }
    probes
}

/// Long enough to connect anew, which follows each lost answer, on a busy machine too: a check that
/// never got as far as the store would say nothing.
const TIMEOUT: Duration = Duration::from_millis(400);
const COOLDOWN: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b72_half_open_lets_one_call_reach_the_store() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let limiter = Limiter::builder(connect(&proxy.url()).await)
        .timeout(TIMEOUT)
        .breaker(Breaker {
            failures: 5,
            cooldown: COOLDOWN,
            ..Breaker::default()
        })
        .build();
    let limit = limiter
        .policy("b72", ["1000000/s".parse().unwrap()])
        .unwrap();
    assert_eq!(limit.acquire("k").await.unwrap().origin(), Origin::Shared);
    // One can connect, and charges arrive, so that they can be counted; only no answer comes.
    proxy.on(Rule::command("EVALSHA").always().drop_reply());
    let charged = server.calls("evalsha").await;
    for _ in 0..5 {
        assert_eq!(limiter.health().breaker, BreakerState::Closed);
        check(limit.clone()).await;
    }
    assert_eq!(limiter.health().breaker, BreakerState::Open);
    assert_eq!(server.calls("evalsha").await, charged + 5);

    let mut opened = Instant::now();
    for probe in 1..=3 {
        // While it is open nobody asks.
        assert_eq!(storm(&limit).await, []);
        assert_eq!(server.calls("evalsha").await, charged + 4 + probe);

        tokio::time::sleep_until(opened + COOLDOWN).await;
        let probes = storm(&limit).await;
        assert_eq!(probes.len(), 1, "one probe waits for the store");
        assert_eq!(
            server.calls("evalsha").await,
            charged + 5 + probe,
            "exactly one charge reached the store"
        );
        // The probe timed out: it is open again, and for a whole cooldown.
        assert_eq!(limiter.health().breaker, BreakerState::Open);
        let again = probes[0] + TIMEOUT + COOLDOWN;
        opened = Instant::now();
        while Instant::now() + ms(20) < again {
            let (_, took) = check(limit.clone()).await;
            assert!(took < ms(5), "{took:?} within the cooldown");
            tokio::time::sleep(ms(2)).await;
        }
        assert_eq!(server.calls("evalsha").await, charged + 5 + probe);
    }

    proxy.restore().await;
    let shared = async || limit.acquire("k").await.unwrap().origin() == Origin::Shared;
    wait_until("the recovered store", seconds(5), shared).await;
    assert_eq!(limiter.health().breaker, BreakerState::Closed);
}

/// A limiter with a breaker that opens after five failures in a row, over a store of one unit an
/// hour, which is used up.
async fn used_up(proxy: &FaultProxy) -> (Limiter, RateLimit) {
    let limiter = Limiter::builder(connect(&proxy.url()).await)
        .timeout(PATIENT)
        .forget_refusals()
        .breaker(Breaker {
            failures: 5,
            ratio: None,
            cooldown: COOLDOWN,
            ..Breaker::default()
        })
        .build();
    let limit = limiter.policy("b74", ["1/h".parse().unwrap()]).unwrap();
    assert!(limit.acquire("k").await.unwrap().allowed());
    (limiter, limit)
}

/// So many checks that the store answers with an error.
async fn fail(proxy: &FaultProxy, limit: &RateLimit, times: u64) {
    let loading = "-LOADING Redis is loading the dataset in memory\r\n";
    proxy.on(Rule::command("EVALSHA").times(times).answer(loading));
    let sorry = "SERVER_ERROR out of memory\r\n";
    proxy.on(Rule::command("MG").times(times).answer(sorry));
    for _ in 0..times {
        assert_eq!(limit.acquire("k").await.unwrap().origin(), Origin::FailOpen);
    }
}

async fn refusal(limit: &RateLimit) {
    let decision = limit.acquire("k").await.unwrap();
    assert_eq!(
        (decision.allowed(), decision.remaining(), decision.origin()),
        (false, Some(0), Origin::Shared)
    );
}

#[tokio::test]
async fn b74_refusals_are_answers_and_never_failures() {
    let server = RedisServer::start().await;
    refusals_are_answers(FaultProxy::start(server.address()).await).await;
    let server = MemcachedServer::start().await;
    refusals_are_answers(FaultProxy::start_memcached(server.address()).await).await;
}

async fn refusals_are_answers(proxy: FaultProxy) {
    let (limiter, limit) = used_up(&proxy).await;
    for _ in 0..199 {
        refusal(&limit).await;
    }
    let health = limiter.health();
    assert!(health.enforcing);
    assert_eq!(
        (health.breaker, health.reason, health.unenforced),
        (BreakerState::Closed, None, 0)
    );
    // None of them counts: it takes all five failures to open it.
    fail(&proxy, &limit, 4).await;
    assert_eq!(limiter.health().breaker, BreakerState::Closed);
    fail(&proxy, &limit, 1).await;
    assert_eq!(limiter.health().breaker, BreakerState::Open);
}

#[tokio::test]
async fn b74_a_refusal_between_failures_ends_the_row() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let (limiter, limit) = used_up(&proxy).await;
    for _ in 0..3 {
        fail(&proxy, &limit, 4).await;
        refusal(&limit).await;
        assert_eq!(limiter.health().breaker, BreakerState::Closed);
    }
    fail(&proxy, &limit, 5).await;
    assert_eq!(limiter.health().breaker, BreakerState::Open);
}

#[tokio::test]
async fn b74_a_refusal_that_answers_the_probe_closes_the_breaker() {
    let mut server = RedisServer::start().await;
    let limiter = Limiter::builder(tollgate::connect(&server.url()).await.unwrap())
        .timeout(ms(100))
        .forget_refusals()
        .breaker(Breaker {
            failures: 2,
            cooldown: ms(100),
            ..Breaker::default()
        })
        .build();
    let limit = limiter.policy("b74", ["1/h".parse().unwrap()]).unwrap();
    assert!(limit.acquire("k").await.unwrap().allowed());
    server.pause();
    let open = async || {
        limit.acquire("k").await.unwrap();
        limiter.health().breaker == BreakerState::Open
    };
    wait_until("the breaker to open", seconds(5), open).await;
    server.resume();
    let refused = async || {
        let decision = limit.acquire("k").await.unwrap();
        decision.origin() == Origin::Shared && !decision.allowed()
    };
    wait_until("a refusal by the store", seconds(5), refused).await;
    assert_eq!(limiter.health().breaker, BreakerState::Closed);
}

#[tokio::test]
async fn b74_a_lost_swap_is_no_failure_and_losing_for_ever_is_the_policys() {
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    let limiter = Limiter::builder(tollgate::connect(&proxy.url()).await.unwrap())
        .timeout(seconds(5))
        .breaker(Breaker {
            failures: 1,
            ..Breaker::default()
        })
        .build();
    let limit = limiter.policy("b74", ["5/h".parse().unwrap()]).unwrap();
    for answer in ["NS {opaque}\r\n", "EX {opaque}\r\n", "NF {opaque}\r\n"] {
        proxy.on(Rule::command("MS").times(3).answer(answer));
        let decision = limit.acquire("k").await.unwrap();
        assert_eq!(
            (decision.origin(), decision.allowed()),
            (Origin::Shared, true)
        );
    }
    assert!(limiter.health().enforcing);
    // Others win every time: the store is well, but nobody counted.
    proxy.on(Rule::command("MS").always().answer("EX {opaque}\r\n"));
    let asked = proxy.commands_named("MS");
    let decision = limit.acquire("k").await.unwrap();
    assert_eq!(
        (decision.origin(), decision.allowed()),
        (Origin::FailOpen, true)
    );
    assert!(proxy.commands_named("MS") > asked + 10, "it has tried");
    let health = limiter.health();
    assert_eq!(
        (health.breaker, health.unenforced),
        (BreakerState::Closed, 1)
    );
}
