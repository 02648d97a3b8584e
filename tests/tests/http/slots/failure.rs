//! The store does not answer, cannot hold slots, or is asked too often.

use tollgate::http::ConcurrencyLayer;
use tollgate::{ConcurrencyError, FailurePolicy, Limiter};
use tollgate_testkit::{FaultProxy, RedisServer, shared_memcached};

use super::{begin, serve};
use crate::support::PATIENT;

async fn down(policy: FailurePolicy) -> Limiter {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    drop(listener);
    let backend = tollgate::connect(&url).await.unwrap();
    Limiter::builder(backend).on_failure(policy).build()
}

#[tokio::test]
async fn s111_open_and_local_count_in_this_process() {
    for policy in [FailurePolicy::Open, FailurePolicy::Local] {
        let limiter = down(policy).await;
        let ocr = limiter.concurrency("ocr", 2).build().unwrap();
        let (server, gate) = serve(ConcurrencyLayer::new(&ocr)).await;
        let mut running = Vec::new();
        for n in 1..=2 {
            running.push(begin(server.client(n), "/work"));
            let counted = async || limiter.health().unenforced >= u64::from(n);
            tollgate_testkit::wait_until("one more", super::PATIENCE, counted).await;
        }
        let refused = server.get("/work").await;
        assert_eq!(refused.status, 503);
        assert_eq!(refused.json()["detail"], "All 2 slot(s) are in use.");
        gate.open(2);
        for running in running {
            assert_eq!(running.await.unwrap().status, 200);
        }
        gate.open(1);
        assert_eq!(server.get("/work").await.status, 200);
        assert!(!limiter.health().enforcing);
    }
}

#[tokio::test]
async fn s111_closed_refuses_with_503_and_says_nothing_of_the_store() {
    let limiter = down(FailurePolicy::Closed).await;
    let (server, _) = serve(limiter.in_flight(2).layer().unwrap()).await;
    let refused = server.get("/work").await;
    assert_eq!(refused.status, 503);
    assert!(refused.field("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(refused.field("cache-control"), "no-store");
    let document = refused.json();
    assert_eq!(document["detail"], "Slots cannot be taken at the moment");
    assert!(document.get("limit").is_none() && document.get("remaining").is_none());
    assert!(!document.to_string().contains("127.0.0.1"), "{document}");
}

#[tokio::test]
async fn s112_a_layer_over_memcached_is_refused_when_it_is_built() {
    let backend = tollgate::connect(shared_memcached().await.url())
        .await
        .unwrap();
    let limiter = Limiter::builder(backend).build();
    let error = limiter.in_flight(4).layer().unwrap_err();
    assert!(matches!(error, ConcurrencyError::Unsupported { .. }));
    let text = error.to_string();
    assert!(
        text.contains("memcached") && text.contains("redis://"),
        "{text}"
    );
}

#[tokio::test]
async fn s113_a_request_costs_one_trip_for_its_slot_however_full_and_one_to_give_it_back() {
    let redis = RedisServer::start().await;
    let proxy = FaultProxy::start(redis.address()).await;
    let backend = tollgate::connect(&proxy.url()).await.unwrap();
    let limiter = Limiter::builder(backend).timeout(PATIENT).build();
    let ocr = limiter.concurrency("ocr", 40).build().unwrap();
    // The script is known from here on.
    ocr.acquire("warm").await.unwrap().release().await.unwrap();
    let (server, gate) = serve(ConcurrencyLayer::new(&ocr)).await;
    let before = proxy.commands();
    let mut permits = Vec::new();
    for _ in 0..39 {
        permits.push(ocr.acquire(ConcurrencyLayer::KEY).await.unwrap());
    }
    assert_eq!(proxy.commands() - before, 39, "while there is room");
    let running = begin(server.client(1), "/work");
    proxy.wait_for_commands(before + 40).await;
    for n in 1..=10 {
        assert_eq!(server.get("/work").await.status, 503);
        assert_eq!(proxy.commands() - before, 40 + n, "full");
    }
    gate.open(1);
    assert_eq!(running.await.unwrap().status, 200);
    proxy.wait_for_commands(before + 51).await;
    assert!(ocr.in_use(ConcurrencyLayer::KEY).await.unwrap() == 39);
    assert_eq!(proxy.commands() - before, 52);
    assert_eq!(
        proxy.commands_named("EVALSHA"),
        proxy.commands_named("EVALSHA").max(52)
    );
}
