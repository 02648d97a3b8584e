//! Slots in a handler: around a part of it, and for longer than it.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tollgate::http::{ConcurrencyLayer, Refusal, Slot};
use tollgate::{Concurrency, Limiter};
use tollgate_testkit::wait_until;

use super::{Gate, PATIENCE, begin, in_use, limit};
use crate::support::{Server, stores};

type Shared = (Concurrency, Gate);

/// Only a part of it needs a slot.
async fn part(State((ocr, gate)): State<Shared>) -> Result<&'static str, Refusal> {
    let pages = async {
        gate.0.acquire().await.unwrap().forget();
        "pages"
    };
    Ok(ocr.run(ConcurrencyLayer::KEY, pages).await?)
}

#[tokio::test]
async fn s109_a_part_of_a_handler_holds_a_slot_and_the_answer_to_none_is_503() {
    for store in stores().await {
        let ocr = limit(&store, 1);
        let gate = Gate::new();
        let app = Router::new()
            .route("/part", get(part))
            .with_state((ocr.clone(), gate.clone()));
        let server = Server::start(app).await;
        let running = begin(server.client(1), "/part");
        in_use(&ocr, 1).await;
        let refused = server.get("/part").await;
        assert_eq!(refused.status, 503, "{}", store.name);
        assert_eq!(refused.field("retry-after"), "1");
        assert_eq!(refused.field("cache-control"), "no-store");
        assert_eq!(refused.json()["detail"], "All 1 slot(s) are in use.");
        gate.open(1);
        assert_eq!(running.await.unwrap().body, "pages");
        in_use(&ocr, 0).await;
        // By a key: each has slots of its own.
        let alice = ocr.acquire("alice").await.unwrap();
        assert!(ocr.acquire("alice").await.is_err());
        drop((alice, ocr.acquire("bob").await.unwrap()));
    }
}

/// Answers, and goes on with its slot.
async fn job(State((_, gate)): State<Shared>, slot: Slot) -> String {
    let fence = slot.fence();
    tokio::spawn(async move {
        gate.0.acquire().await.unwrap().forget();
        drop(slot);
    });
    fence.to_string()
}

#[tokio::test]
async fn s109_a_handler_may_keep_its_slot_for_a_job() {
    for store in stores().await {
        let ocr = limit(&store, 1);
        let gate = Gate::new();
        let app = Router::new()
            .route("/job", get(job))
            .route(
                "/blind",
                get(async |slot: Option<Slot>| slot.is_some().to_string()),
            )
            .layer(ConcurrencyLayer::new(&ocr))
            .route(
                "/bare",
                get(async |slot: Option<Slot>| slot.is_some().to_string()),
            )
            .route("/wrong", get(async |slot: Slot| slot.fence().to_string()))
            .with_state((ocr.clone(), gate.clone()));
        let server = Server::start(app).await;
        let first = server.get("/job").await;
        assert_eq!(first.status, 200);
        assert_eq!(server.get("/job").await.status, 503, "the job runs");
        gate.open(1);
        in_use(&ocr, 0).await;
        let second = server.get("/job").await;
        let fence = |answer: &crate::support::Answer| -> u64 {
            std::str::from_utf8(&answer.body).unwrap().parse().unwrap()
        };
        assert!(fence(&second) > fence(&first), "{}", store.name);
        gate.open(1);
        in_use(&ocr, 0).await;
        assert_eq!(server.get("/blind").await.body, "true");
        assert_eq!(server.get("/bare").await.body, "false");
        let wrong = server.get("/wrong").await;
        assert_eq!(wrong.status, 500);
        assert!(wrong.body.starts_with(b"this route has no slots"));
    }
}

#[tokio::test]
async fn s102_s113_a_handler_is_told_when_its_slot_is_lost() {
    let limiter = Limiter::builder(tollgate::connect("memory://").await.unwrap()).build();
    let ocr = limiter
        .concurrency("ocr", 1)
        .ttl(Duration::from_millis(100))
        .build()
        .unwrap();
    let handler = async |slot: Slot| {
        // Longer than its time to live: it is renewed.
        tokio::time::sleep(Duration::from_millis(250)).await;
        let kept = !slot.is_lost();
        slot.lost().await;
        format!("kept: {kept}, lost: {}", slot.is_lost())
    };
    let app = Router::new()
        .route("/work", get(handler))
        .layer(ConcurrencyLayer::new(&ocr));
    let server = Server::start(app).await;
    let running = begin(server.client(1), "/work");
    in_use(&ocr, 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(ocr.in_use(ConcurrencyLayer::KEY).await.unwrap(), 1);
    // A shutdown takes it away.
    limiter.drain().await;
    assert_eq!(running.await.unwrap().body, "kept: true, lost: true");
    let free = async || ocr.in_use(ConcurrencyLayer::KEY).await.unwrap() == 0;
    wait_until("nothing in use", PATIENCE, free).await;
}
