//! The breaker before a real store that hangs (`breaker` in docs/faults.md).

use crate::support::{ms, seconds};
use tokio::time::Instant;
use tollgate::{Breaker, BreakerState, Limiter, Origin};
use tollgate_testkit::{FaultProxy, RedisServer, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b72_half_open_lets_one_call_reach_the_store() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let cooldown = ms(700);
    let limiter = Limiter::builder(tollgate::connect(&proxy.url()).await.unwrap())
        .timeout(ms(100))
        .breaker(Breaker {
            failures: 5,
            cooldown,
            ..Breaker::default()
        })
        .build();
    let limit = limiter
        .policy("b72", ["1000000/s".parse().unwrap()])
        .unwrap();
    assert_eq!(limit.acquire("k").await.unwrap().origin(), Origin::Shared);
    // Replies stop; commands still arrive, so that they can be counted.
    proxy.hold_replies();
    for _ in 0..5 {
        assert_eq!(limit.acquire("k").await.unwrap().origin(), Origin::FailOpen);
    }
    assert_eq!(limiter.health().breaker, BreakerState::Open);
    let opened = Instant::now();
    let asked = commands(&proxy);
    // While it is open nobody asks.
    for _ in 0..20 {
        let started = Instant::now();
        limit.acquire("k").await.unwrap();
        assert!(started.elapsed() < ms(50));
    }
    assert_eq!(commands(&proxy), asked);

    tokio::time::sleep_until(opened + cooldown).await;
    let storm = |count: usize| {
        let tasks: Vec<_> = (0..count)
            .map(|_| {
                let limit = limit.clone();
                tokio::spawn(async move {
                    let started = Instant::now();
                    let decision = limit.acquire("k").await.unwrap();
                    (started.elapsed(), decision.origin())
                })
            })
            .collect();
        async {
            let mut all = Vec::new();
            for task in tasks {
                all.push(task.await.unwrap());
            }
            all
        }
    };
    let answers = storm(100).await;
    let waited = answers.iter().filter(|(took, _)| *took >= ms(100)).count();
    assert_eq!(waited, 1, "one probe waits for the store");
    assert!(
        answers
            .iter()
            .all(|(_, origin)| *origin == Origin::FailOpen)
    );
    assert!(
        commands(&proxy) <= asked + 1,
        "{} reached the store",
        commands(&proxy) - asked
    );

    // The probe timed out: open again for the whole cooldown.
    assert_eq!(limiter.health().breaker, BreakerState::Open);
    let asked = commands(&proxy);
    let answers = storm(100).await;
    assert!(answers.iter().all(|(took, _)| *took < ms(100)));
    assert_eq!(commands(&proxy), asked);

    proxy.kill_connections();
    proxy.restore().await;
    let shared = async || limit.acquire("k").await.unwrap().origin() == Origin::Shared;
    wait_until("the recovered store", seconds(5), shared).await;
    assert_eq!(limiter.health().breaker, BreakerState::Closed);
}

fn commands(proxy: &FaultProxy) -> u64 {
    proxy.commands_named("EVALSHA") + proxy.commands_named("EVAL")
}

#[tokio::test]
async fn b74_refusals_are_answers_and_never_failures() {
    let server = RedisServer::start().await;
    let limiter = Limiter::builder(tollgate::connect(&server.url()).await.unwrap())
        .timeout(seconds(5))
        .forget_refusals()
        .breaker(Breaker {
            failures: 2,
            ..Breaker::default()
        })
        .build();
    let limit = limiter.policy("b74", ["1/h".parse().unwrap()]).unwrap();
    let mut refused = 0;
    for _ in 0..200 {
        refused += usize::from(!limit.acquire("k").await.unwrap().allowed());
    }
    let health = limiter.health();
    assert_eq!(refused, 199);
    assert_eq!(
        (health.breaker, health.unenforced),
        (BreakerState::Closed, 0)
    );
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
