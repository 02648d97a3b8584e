//! Which requests need a slot, and which share.

use axum::Router;
use axum::routing::get;
use http::Method;
use tollgate::http::ConcurrencyLayer;
use tollgate::{Connect, Limiter};
use tollgate_testkit::{RedisServer, shared_redis};

use super::{Gate, begin, in_use, limit, serve, work};
use crate::support::{Server, Store, statuses, stores};

fn app(layer: ConcurrencyLayer, gate: &Gate) -> Router {
    Router::new()
        .route("/items/{id}", get(work).post(work))
        .route("/pages", get(work))
        .layer(layer)
        .with_state(gate.clone())
}

#[tokio::test]
async fn s108_each_route_has_slots_of_its_own_unless_they_have_a_name() {
    for store in stores().await {
        let gate = Gate::new();
        let layer = store.limiter.in_flight(1).layer().unwrap();
        let server = Server::start(app(layer, &gate)).await;
        let first = begin(server.client(1), "/items/1");
        // The same template.
        let client = server.client(2);
        let taken = async || {
            let head = client.send(Method::HEAD, "/items/2", &[]).await.status;
            head == 503
        };
        tollgate_testkit::wait_until("a slot that is taken", super::PATIENCE, taken).await;
        gate.open(2);
        assert_eq!(first.await.unwrap().status, 200);
        while gate
            .0
            .try_acquire()
            .map(tokio::sync::SemaphorePermit::forget)
            .is_ok()
        {}

        // Another template and another method are free while it runs.
        let first = begin(server.client(1), "/items/1");
        let second = begin(server.client(1), "/pages");
        let client = server.client(1);
        let third = tokio::spawn(async move { client.send(Method::POST, "/items/1", &[]).await });
        // Three of three wait at the gate.
        let waiting = async || {
            let statuses = statuses(&server.client(2), &["/items/9", "/pages"]).await;
            statuses == [503, 503] && client_post(&server).await == 503
        };
        tollgate_testkit::wait_until("three slots that are taken", super::PATIENCE, waiting).await;
        gate.open(3);
        for running in [first, second, third] {
            assert_eq!(running.await.unwrap().status, 200, "{}", store.name);
        }
    }
}

/// Adds a request that only ends if there is no slot for it.
async fn client_post(server: &Server) -> u16 {
    let client = server.client(2);
    let asked = client.send(Method::POST, "/items/9", &[]);
    match tokio::time::timeout(std::time::Duration::from_millis(200), asked).await {
        Ok(answer) => answer.status.as_u16(),
        Err(_) => 0,
    }
}

async fn redis_limiter() -> Store {
    let connect = Connect::new(shared_redis().await.url()).prefix("slots-shared");
    Store::over("redis", String::new(), connect.connect().await.unwrap())
}

#[tokio::test]
async fn s100_s108_routes_jobs_and_processes_share_slots_of_the_same_name() {
    // Two limiters with connections of their own, as two processes have.
    let (one, other) = (redis_limiter().await, redis_limiter().await);
    let gate = Gate::new();
    let ocr = limit(&one, 2);
    let server = Server::start(app(ConcurrencyLayer::new(&ocr), &gate)).await;
    let elsewhere = Server::start(app(ConcurrencyLayer::new(&limit(&other, 2)), &gate)).await;
    let running = [
        begin(server.client(1), "/items/1"),
        begin(elsewhere.client(1), "/pages"),
    ];
    in_use(&ocr, 2).await;
    assert_eq!(server.get("/pages").await.status, 503);
    assert_eq!(elsewhere.get("/items/1").await.status, 503);
    assert!(
        limit(&other, 2)
            .acquire(ConcurrencyLayer::KEY)
            .await
            .is_err()
    );
    gate.open(2);
    for running in running {
        assert_eq!(running.await.unwrap().status, 200);
    }
    in_use(&ocr, 0).await;
    // A job takes one, and routes have one less.
    let _job = limit(&other, 2)
        .acquire(ConcurrencyLayer::KEY)
        .await
        .unwrap();
    let running = begin(server.client(1), "/items/1");
    in_use(&ocr, 2).await;
    assert_eq!(server.get("/pages").await.status, 503);
    gate.open(1);
    running.await.unwrap();
}

#[tokio::test]
async fn probes_preflights_and_what_matches_no_route_need_no_slot() {
    let [store, _] = stores().await;
    let ocr = limit(&store, 1);
    let _held = ocr.acquire(ConcurrencyLayer::KEY).await.unwrap();
    let ok = || get(async || "ok");
    let app = |layer| {
        Router::new()
            .route("/health", ok())
            .route("/ready", ok())
            .route("/metrics", ok())
            .route("/free", ok())
            .route("/work", ok().options(async || "ok"))
            .layer(layer)
    };
    let layer = ConcurrencyLayer::new(&ocr)
        .exempt("/free")
        .exempt_if(|request| request.headers.contains_key("x-free"));
    let server = Server::start(app(layer.clone())).await;
    let paths = [
        "/health", "/ready", "/metrics", "/free", "/work", "/nowhere",
    ];
    assert_eq!(
        statuses(&server.client(1), &paths).await,
        [200, 200, 200, 200, 503, 404]
    );
    let preflight: [(&str, &[u8]); 2] = [
        ("origin", b"https://a.example"),
        ("access-control-request-method", b"GET"),
    ];
    let client = server.client(1);
    let answer = client.send(Method::OPTIONS, "/work", &preflight).await;
    assert_eq!(answer.status, 200);
    let answer = client.send(Method::GET, "/work", &[("x-free", b"1")]).await;
    assert_eq!(answer.status, 200);
    let layer = layer
        .exempt_nothing()
        .unmatched()
        .exempt_method(Method::OPTIONS);
    let server = Server::start(app(layer)).await;
    assert_eq!(statuses(&server.client(1), &paths).await, [503; 6]);
    let answer = server.client(1).send(Method::OPTIONS, "/work", &[]).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_service_without_a_router_has_one_set_of_slots_whatever_the_path() {
    let [store, _] = stores().await;
    let gate = Gate::new();
    let ocr = store.limiter.concurrency("1 in flight", 1).build().unwrap();
    // Around a router that has not seen the request yet.
    let service = tower::ServiceBuilder::new()
        .layer(store.limiter.in_flight(1).layer().unwrap())
        .service(Router::new().fallback(get(work)).with_state(gate.clone()));
    use tower::ServiceExt as _;
    let ask = |path: &'static str| {
        let request = http::Request::get(path)
            .body(axum::body::Body::empty())
            .unwrap();
        tokio::spawn(service.clone().oneshot(request))
    };
    let running = ask("/a");
    in_use(&ocr, 1).await;
    assert_eq!(ask("/b").await.unwrap().unwrap().status(), 503);
    gate.open(1);
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn s103_no_identity_is_in_clear_in_the_store() {
    let redis = RedisServer::start().await;
    let backend = Connect::new(&redis.url()).connect().await.unwrap();
    let limiter = Limiter::builder(backend).build();
    let secret = "alice-of-wonderland";
    let ocr = limiter.concurrency("ocr", 1).build().unwrap();
    let layer = ConcurrencyLayer::new(&ocr).identity(crate::support::FromHeader("x-user"));
    let (server, gate) = serve(layer).await;
    let client = server.client(1);
    let running = tokio::spawn(async move {
        client
            .send(Method::GET, "/work", &[("x-user", secret.as_bytes())])
            .await
    });
    let there = async || !redis.keys("*").await.is_empty();
    tollgate_testkit::wait_until("a lease", super::PATIENCE, there).await;
    let keys = redis.keys("*").await;
    assert!(keys[0].starts_with("tollgate:lease:v1:ocr:"), "{keys:?}");
    let members = redis.command(&["ZRANGE", &keys[0], "0", "-1"]).await;
    assert!(
        !format!("{keys:?} {members:?} {ocr:?}").contains("alice"),
        "{keys:?}"
    );
    gate.open(1);
    assert_eq!(running.await.unwrap().status, 200);
}
