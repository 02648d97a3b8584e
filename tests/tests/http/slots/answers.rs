//! What is answered when no slot is free.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tollgate::http::{BodyStyle, ConcurrencyLayer, Identity, ProblemType};

use super::{PATIENCE, begin, in_use, limit, serve};
use crate::answers::is_one_problem;
use crate::support::{FromHeader, stores};

#[tokio::test]
async fn s100_s104_who_finds_all_slots_taken_is_told_503_and_when_to_come_back() {
    for store in stores().await {
        let ocr = store
            .limiter
            .concurrency("ocr", 2)
            .retry_after(Duration::from_millis(6_001))
            .build()
            .unwrap();
        let (server, gate) = serve(ConcurrencyLayer::new(&ocr)).await;
        let running = [
            begin(server.client(1), "/work"),
            begin(server.client(2), "/work"),
        ];
        in_use(&ocr, 2).await;
        let refused = server.get("/work").await;
        assert_eq!(refused.status, 503, "{}", store.name);
        assert_eq!(refused.field("retry-after"), "7");
        assert_eq!(refused.field("cache-control"), "no-store");
        assert_eq!(refused.field("content-type"), "application/problem+json");
        let mut document = refused.json();
        document.as_object_mut().unwrap().remove("request_id");
        let expected = json!({
            "type": "about:blank", "title": "Service Unavailable", "status": 503,
            "detail": "All 2 slot(s) are in use.", "instance": "/work",
            "limit": 2, "remaining": 0, "retry_after": 7, "retry_after_ms": 6001,
        });
        assert_eq!(document, expected);
        // HEAD: the same, but for the body.
        let head = server.client(1).send(Method::HEAD, "/work", &[]).await;
        assert_eq!((head.status.as_u16(), head.body.len()), (503, 0));
        assert_eq!(head.field("retry-after"), "7");
        assert!(head.field("content-length").parse::<u64>().unwrap() > 100);
        gate.open(2);
        for running in running {
            assert_eq!(running.await.unwrap().status, 200);
        }
        gate.open(1);
        assert_eq!(server.get("/work").await.status, 200);
        in_use(&ocr, 0).await;
    }
}

#[tokio::test]
async fn s105_a_client_with_too_many_is_told_429_and_others_are_served() {
    for store in stores().await {
        let exports = store
            .limiter
            .concurrency("exports", 1)
            .per_client()
            .build()
            .unwrap();
        let ocr = limit(&store, 1);
        let layers = [
            ConcurrencyLayer::new(&exports),
            ConcurrencyLayer::new(&ocr).identity(FromHeader("x-user")),
        ];
        for (layer, who) in layers.into_iter().zip(["address", "header"]) {
            let (server, gate) = serve(layer).await;
            let ask = |n: u8| {
                let client = server.client(n);
                let user = [("x-user", &[b"alice" as &[u8], b"bob"][usize::from(n) - 1])];
                let user = user.map(|(name, value)| (name, *value));
                tokio::spawn(async move { client.send(Method::GET, "/work", &user).await })
            };
            // One of the three of each client runs.
            let running: Vec<_> = [1, 1, 1, 2, 2, 2].map(ask).into();
            let mut refused = 0;
            let mut waiting = running;
            while waiting.len() > 2 {
                let (answer, _, rest) = futures_util::future::select_all(waiting).await;
                let answer = answer.unwrap();
                assert_eq!(answer.status, 429, "{who} {answer:?}");
                assert_eq!(answer.field("retry-after"), "1");
                assert_eq!(
                    answer.json()["detail"],
                    "This client has all of its 1 slot(s) in use."
                );
                refused += 1;
                waiting = rest;
            }
            assert_eq!(refused, 4);
            gate.open(2);
            for answer in waiting {
                assert_eq!(answer.await.unwrap().status, 200);
            }
        }
        // Nobody who says who it is.
        let (server, _) = serve(ConcurrencyLayer::new(&ocr).identity(FromHeader("x-user"))).await;
        let answer = server.get("/work").await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.field("www-authenticate"), "Bearer");
    }
}

#[tokio::test]
async fn b55_no_slot_is_one_problem_whatever_is_accepted() {
    let [store, _] = stores().await;
    let ocr = limit(&store, 1);
    let _held = ocr.acquire(ConcurrencyLayer::KEY).await.unwrap();
    let (server, _) = serve(ConcurrencyLayer::new(&ocr)).await;
    is_one_problem(&server, "/work", &[], 503).await;
    let mine = store
        .limiter
        .concurrency("mine", 1)
        .per_client()
        .build()
        .unwrap();
    let alice = Identity::new("header:x-user", "alice");
    let _held = mine.acquire(alice.key()).await.unwrap();
    let layer = ConcurrencyLayer::new(&mine).identity(FromHeader("x-user"));
    let (server, _) = serve(layer).await;
    is_one_problem(&server, "/work", &[("x-user", b"alice")], 429).await;
    is_one_problem(&server, "/work", &[], 401).await;
}

#[tokio::test]
async fn documents_are_those_of_the_draft_by_setting_or_plain() {
    let [store, _] = stores().await;
    let ocr = limit(&store, 1);
    let layer = ConcurrencyLayer::new(&ocr).problem_type(ProblemType::QuotaExceeded);
    let _held = ocr.acquire(ConcurrencyLayer::KEY).await.unwrap();
    let (server, _) = serve(layer.clone()).await;
    let document = server.get("/work").await.json();
    let registry = "https://iana.org/assignments/http-problem-types#";
    assert_eq!(
        document["type"],
        format!("{registry}temporary-reduced-capacity")
    );
    assert_eq!(document["status"], 503);
    assert_eq!(document["violated-policies"], json!(["ocr"]));
    let (server, _) = serve(layer.body(BodyStyle::Plain)).await;
    let plain = server.get("/work").await;
    assert_eq!(plain.field("content-type"), "application/json");
    assert_eq!(plain.json()["detail"], "All 1 slot(s) are in use.");
    // Capacity is not reduced where it is this client who has too many.
    let mine = store
        .limiter
        .concurrency("mine", 1)
        .per_client()
        .build()
        .unwrap();
    let layer = ConcurrencyLayer::new(&mine)
        .identity(FromHeader("x-user"))
        .problem_type(ProblemType::QuotaExceeded);
    let (server, gate) = serve(layer).await;
    let ask = || {
        let client = server.client(1);
        tokio::spawn(async move { client.send(Method::GET, "/work", &[("x-user", b"a")]).await })
    };
    let (refused, _, running) = futures_util::future::select_all([ask(), ask()]).await;
    let document = refused.unwrap().json();
    assert_eq!(document["type"], format!("{registry}quota-exceeded"));
    assert_eq!(document["status"], 429);
    gate.open(1);
    for running in running {
        assert_eq!(running.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn s104_s106_who_may_wait_is_served_when_a_slot_is_free() {
    for store in stores().await {
        let layer = store.limiter.concurrency("ocr", 1).wait(PATIENCE);
        let ocr = limit(&store, 1);
        let (server, gate) = serve(layer.layer().unwrap()).await;
        let running: Vec<_> = (1..=4).map(|n| begin(server.client(n), "/work")).collect();
        in_use(&ocr, 1).await;
        gate.open(4);
        for running in running {
            assert_eq!(running.await.unwrap().status, 200, "{}", store.name);
        }
        in_use(&ocr, 0).await;
    }
}
