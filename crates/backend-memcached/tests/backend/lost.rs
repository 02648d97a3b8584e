//! Connections that break, replies that get lost, servers that restart.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Cost, CounterBackend, ErrorKind, Key, Subject};
use tollgate_memcached::MemcachedBackend;
use tollgate_testkit::{FaultProxy, MemcachedServer, Rule};

use super::{T0, backend, charge, facts, key_of, policy};

#[tokio::test]
async fn b15_a_lost_reply_is_not_charged_twice() {
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    let backend = backend(proxy.url()).await;
    let policy = policy("10/h");
    charge(&backend, &policy, Some(T0), 1).await.unwrap();
    proxy.on(Rule::command("MS").forward_then_cut());
    let error = charge(&backend, &policy, Some(T0), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.may_have_charged());
    let next = charge(&backend, &policy, Some(T0), 1).await.unwrap();
    assert_eq!(facts(&next), (true, 7));
    // One that was never sent was never charged.
    proxy.on(Rule::command("MS").cut());
    charge(&backend, &policy, Some(T0), 1).await.unwrap_err();
    let next = charge(&backend, &policy, Some(T0), 1).await.unwrap();
    assert_eq!(facts(&next), (true, 6));
}

#[tokio::test]
async fn b67_connections_that_died_while_idle_cost_nobody_an_error() {
    let mut server = MemcachedServer::start().await;
    let backend = backend(server.url()).await;
    let policy = policy("1000/h");
    for _ in 0..3 {
        charge(&backend, &policy, None, 1).await.unwrap();
        server.restart().await;
        let decision = charge(&backend, &policy, None, 1).await.unwrap();
        assert_eq!(decision.remaining(), Some(999), "a restart forgets");
    }
}

#[tokio::test]
async fn a_token_of_before_a_restart_changes_nothing_after_it() {
    let mut server = MemcachedServer::start().await;
    let first = backend(server.url()).await;
    let policy = policy("5/h");
    charge(&first, &policy, Some(T0), 1).await.unwrap();
    let key = key_of(&policy);
    let token = server.command(&format!("mg {key} c")).await;
    server.restart().await;
    // Another process does the same, and its value has the same token.
    let second = backend(server.url()).await;
    charge(&second, &policy, Some(T0), 5).await.unwrap();
    assert_eq!(server.command(&format!("mg {key} c")).await, token);
    // The first one has a connection to the new server, by a peek at something else.
    let (other, someone) = (super::policy("5/h"), Key::from("k"));
    let subject = Subject::new(&other, &someone);
    first.peek(subject, Cost::ONE).await.unwrap();
    let decision = charge(&first, &policy, Some(T0), 1).await.unwrap();
    assert_eq!(facts(&decision), (false, 0));
}

#[tokio::test]
async fn b65_one_lost_call_clears_the_pool_of_connections_that_lead_nowhere() {
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    let timeout = Duration::from_millis(200);
    let connect = MemcachedBackend::builder(proxy.url()).timeout(timeout);
    let backend = connect.connect().await.unwrap();
    // Eight at once, so that there are eight connections.
    proxy.delay_replies(Duration::from_millis(20));
    let policies: Vec<_> = (0..8).map(|_| policy("1000/h")).collect();
    let calls = policies
        .iter()
        .map(|policy| charge(&backend, policy, None, 1));
    let calls: Vec<_> = calls.map(Box::pin).collect();
    for decision in join(calls).await {
        assert!(decision.unwrap().allowed());
    }
    assert!(
        proxy.open_connections() >= 8,
        "{}",
        proxy.open_connections()
    );
    proxy.stay_silent();
    let error = charge(&backend, &policies[0], None, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    // Those connections stay dead.
    proxy.restore().await;
    let decision = charge(&backend, &policies[0], None, 1).await.unwrap();
    assert!(decision.allowed());
}

/// All of them at once.
async fn join<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    use std::task::Poll;
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(output) = std::pin::Pin::new(future).poll(context)
            {
                *done = Some(output);
            }
        }
        match done.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test]
async fn b65_a_frozen_server_holds_nobody_up_and_is_used_when_it_thaws() {
    let mut server = MemcachedServer::start().await;
    let timeout = Duration::from_millis(100);
    let connect = MemcachedBackend::builder(server.url()).timeout(timeout);
    let backend = connect.connect().await.unwrap();
    let policy = policy("1000000/s");
    charge(&backend, &policy, None, 1).await.unwrap();
    server.pause();
    for _ in 0..10 {
        let started = Instant::now();
        let error = charge(&backend, &policy, None, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let took = started.elapsed();
        assert!(took < timeout + Duration::from_millis(50), "{took:?}");
    }
    server.resume();
    charge(&backend, &policy, None, 1).await.unwrap();
}

#[tokio::test]
async fn an_answer_out_of_step_is_nobodys() {
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    let backend = backend(format!("{}?pool=1", proxy.url())).await;
    let policy = policy("1000/h");
    charge(&backend, &policy, None, 1).await.unwrap();
    // Two answers to one command: the next call finds the second where its own should be.
    proxy.on(Rule::command("MS").reply("HD c5 {opaque}\r\nHD c6 O1\r\n"));
    let decision = charge(&backend, &policy, None, 1).await.unwrap();
    assert_eq!(facts(&decision), (true, 998));
    let error = charge(&backend, &policy, None, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
    // It has cost the connection, and the charge that the other answer was for may have been made.
    let decision = charge(&backend, &policy, None, 1).await.unwrap();
    assert_eq!(facts(&decision), (true, 997));
    proxy.on(Rule::command("MG").answer("what?\r\n"));
    let other = super::policy("1000/h");
    let error = charge(&backend, &other, None, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
    let decision = charge(&backend, &other, None, 1).await.unwrap();
    assert_eq!(facts(&decision), (true, 999));
}
