//! Answers that are lost, connections that break.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{CounterBackend, ErrorKind};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{FaultProxy, RedisServer, Rule, wait_until};

use super::{PATIENCE, charge, policy};

/// A backend through a proxy, both warm, with a short timeout.
async fn through(proxy: &FaultProxy) -> RedisBackend {
    let backend = RedisBackend::builder(proxy.url())
        .timeout(Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    for quota in ["1/s", "1/s sliding_log"] {
        charge(&backend, &policy(quota), None, 1).await.unwrap();
    }
    backend
}

async fn remaining(backend: &RedisBackend, policy: &tollgate_core::Policy) -> u64 {
    let key = tollgate_core::Key::from("k");
    let subject = tollgate_core::Subject::new(policy, &key);
    let peeked = backend
        .peek(subject, tollgate_core::Cost::ONE)
        .await
        .unwrap();
    peeked.remaining().unwrap()
}

#[tokio::test]
async fn b15_lost_reply_is_not_charged_twice() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = through(&proxy).await;
    let lost = Rule::command("EVALSHA");
    let faults = [
        (lost.clone().drop_reply(), ErrorKind::Timeout),
        (lost.clone().forward_then_cut(), ErrorKind::Unavailable),
        (lost.clone().reply("!nonsense\r\n"), ErrorKind::Malformed),
        (lost.clone().reply("$2\r\nhi\r\n"), ErrorKind::Malformed),
    ];
    for (i, (fault, kind)) in faults.into_iter().enumerate() {
        for quota in ["10/h", "10/h sliding_log"] {
            let policy = policy(quota);
            proxy.on(fault.clone());
            let sent = proxy.commands_named("EVALSHA");
            let error = charge(&backend, &policy, None, 1).await.unwrap_err();
            assert_eq!(error.kind(), kind, "fault {i}: {error}");
            assert!(error.may_have_charged());
            assert_eq!(proxy.commands_named("EVALSHA"), sent + 1, "fault {i}");
            // What was lost may still be on its way on the connection that lost it.
            let direct = super::backend(server.url()).await;
            wait_until("one charge", PATIENCE, async || {
                remaining(&direct, &policy).await == 9
            })
            .await;
            // And the connection is in step, or a new one.
            assert_eq!(remaining(&backend, &policy).await, 9, "fault {i}");
        }
    }
}

#[tokio::test]
async fn b15_a_command_that_was_never_sent_on_is_not_repeated_either() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = through(&proxy).await;
    let policy = policy("10/h");
    proxy.on(Rule::command("EVALSHA").cut());
    let error = charge(&backend, &policy, None, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(remaining(&backend, &policy).await, 10);
}

#[tokio::test]
async fn b65_a_silent_server_costs_no_more_than_the_timeout() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    proxy.stay_silent();
    let began = Instant::now();
    let builder = || {
        RedisBackend::builder(proxy.url())
            .timeout(Duration::from_millis(100))
            .connect_timeout(Duration::from_millis(300))
    };
    let error = builder().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let backend = builder().connect_or_degrade().await.unwrap();
    assert!(
        began.elapsed() < Duration::from_millis(600 + 400),
        "{:?}",
        began.elapsed()
    );

    let policy = policy("10/h");
    // Between two attempts to connect calls fail at once; those say nothing here.
    let mut rounds = 0;
    wait_until("ten rounds of calls that waited", PATIENCE, async || {
        let began = Instant::now();
        let calls = (0..50).map(|_| charge(&backend, &policy, None, 1));
        for outcome in join_all(calls).await {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable),
                "{error}"
            );
        }
        let took = began.elapsed();
        assert!(took < Duration::from_millis(250), "{took:?}");
        rounds += usize::from(took > Duration::from_millis(50));
        rounds == 10
    })
    .await;
    proxy.restore().await;
    wait_until("the server is used", PATIENCE, async || {
        charge(&backend, &policy, None, 1).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_went_without_a_word_is_given_up() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = through(&proxy).await;
    let policy = policy("1000000/s");
    let before = proxy.connections();
    proxy.stay_silent();
    wait_until("another connection", PATIENCE, async || {
        assert!(charge(&backend, &policy, None, 1).await.is_err());
        proxy.connections() > before
    })
    .await;
    proxy.restore().await;
    wait_until("it counts again", PATIENCE, async || {
        charge(&backend, &policy, None, 1).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn b67_a_killed_server_is_used_again_when_it_is_back() {
    let mut server = RedisServer::start().await;
    let backend = RedisBackend::builder(server.url())
        .timeout(Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    let policy = policy("1000000/s");
    charge(&backend, &policy, None, 1).await.unwrap();
    server.kill();
    // 200 a second for 3 s, so that the pauses between attempts are as long as they get.
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    for _ in 0..600 {
        ticks.tick().await;
        let began = Instant::now();
        let error = charge(&backend, &policy, None, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(began.elapsed() < Duration::from_millis(250));
    }
    server.restart().await;
    let back = Instant::now();
    wait_until("it counts again", PATIENCE, async || {
        charge(&backend, &policy, None, 1).await.is_ok()
    })
    .await;
    assert!(
        back.elapsed() < Duration::from_secs(1),
        "{:?}",
        back.elapsed()
    );
}

#[tokio::test]
async fn b67_a_killed_connection_costs_only_the_calls_in_flight() {
    for query in ["", "?protocol=resp3"] {
        let server = RedisServer::start().await;
        let proxy = FaultProxy::start(server.address()).await;
        let backend = super::backend(format!("{}{query}", proxy.url())).await;
        let policy = policy("1000000/s");
        charge(&backend, &policy, None, 1).await.unwrap();
        for _ in 0..5 {
            proxy.kill_connections();
            wait_until("it is gone", PATIENCE, async || {
                proxy.open_connections() == 0
            })
            .await;
            // Nothing was in flight, so nothing fails. The end of a connection takes a moment to
            // reach us, as any packet does.
            tokio::task::yield_now().await;
            wait_until("we know", PATIENCE, async || {
                format!("{backend:?}").contains("up: false")
            })
            .await;
            charge(&backend, &policy, None, 1).await.unwrap();
        }
    }
}

#[tokio::test]
async fn b67_of_a_killed_connection_the_calls_in_flight_fail_and_no_other() {
    const IN_FLIGHT: usize = 50;
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = std::sync::Arc::new(super::backend(proxy.url()).await);
    let policy = policy("1000000/h");
    charge(&*backend, &policy, None, 1).await.unwrap();
    let scripts = proxy.commands_named("EVALSHA");
    proxy.hold_replies();
    let calls: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (backend, policy) = (std::sync::Arc::clone(&backend), policy.clone());
            tokio::spawn(async move { charge(&*backend, &policy, None, 1).await })
        })
        .collect();
    proxy.wait_for("EVALSHA", scripts + IN_FLIGHT as u64).await;
    server
        .command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await;
    proxy.kill_connections();
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.may_have_charged());
    }
    // Each new connection is named once; that of the proxy itself is not.
    let named = proxy.commands_named("CLIENT");
    proxy.restore().await;
    for _ in 0..20 {
        charge(&*backend, &policy, None, 1).await.unwrap();
    }
    assert_eq!(
        proxy.commands_named("CLIENT"),
        named + 1,
        "one other connection"
    );
    // Nothing was sent again: those before and after, and those in flight once each at most.
    assert_eq!(
        proxy.commands_named("EVALSHA"),
        scripts + IN_FLIGHT as u64 + 20
    );
}

#[tokio::test]
async fn a_replica_that_is_written_to_says_so_and_its_connection_is_dropped() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = through(&proxy).await;
    let policy = policy("10/h");
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    server
        .command(&["CONFIG", "SET", "replica-serve-stale-data", "yes"])
        .await;
    let before = proxy.connections();
    let error = charge(&backend, &policy, None, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(!error.may_have_charged());
    // Asked at once again, it does not connect for every call.
    for _ in 0..10 {
        let error = charge(&backend, &policy, None, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    }
    assert!(proxy.connections() <= before + 2);
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    wait_until("it counts again", PATIENCE, async || {
        charge(&backend, &policy, None, 1).await.is_ok()
    })
    .await;
    assert!(
        proxy.connections() > before,
        "the failover was noticed by a new connection"
    );
}

#[tokio::test]
async fn b60_out_of_memory_is_said_and_leaves_nothing_half_done() {
    for flavor in [
        tollgate_testkit::Flavor::Redis62,
        tollgate_testkit::Flavor::Redis,
    ] {
        let server = RedisServer::builder().flavor(flavor).start().await;
        let backend = super::backend(server.url()).await;
        for quota in ["10/h", "7/h", "10/h sliding_window", "10/h sliding_log"] {
            let policy = policy(quota);
            charge(&backend, &super::policy(quota), None, 1)
                .await
                .unwrap();
            server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
            for _ in 0..20 {
                let error = charge(&backend, &policy, None, 1).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                assert!(!error.may_have_charged());
            }
            // Or a health report that asks would say that all is well.
            let unwell = backend.ping().await.unwrap_err();
            assert_eq!(unwell.kind(), ErrorKind::OutOfMemory, "{unwell}");
            server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
            backend.ping().await.unwrap();
            let first = charge(&backend, &policy, None, 1).await.unwrap();
            let capacity = policy.capacity();
            assert_eq!(first.remaining(), Some(capacity - 1), "{quota}");
        }
    }
}

#[tokio::test]
async fn dropped_calls_leave_the_connection_in_step() {
    let server = RedisServer::start().await;
    let backend = super::backend(server.url()).await;
    let policies: Vec<_> = (1..=20).map(|n| policy(&format!("{n}000/h"))).collect();
    for round in 0..50 {
        for policy in &policies {
            let call = charge(&backend, policy, None, 1);
            if round % 2 == 0 {
                // Polled once, then dropped.
                let _ = tokio::time::timeout(Duration::ZERO, call).await;
            } else {
                let remaining = call.await.unwrap().remaining().unwrap();
                let most = policy.capacity();
                assert!(
                    remaining < most && remaining + 51 >= most,
                    "{remaining} of {most}"
                );
            }
        }
    }
}

/// All of them at once.
pub(crate) async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut all = true;
        for (future, output) in &mut pending {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        if all {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    pending
        .into_iter()
        .filter_map(|(_, output)| output)
        .collect()
}
