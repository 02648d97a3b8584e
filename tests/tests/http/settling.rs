//! What a request really cost, and the recipe for logins.

use std::time::Duration;

use axum::Extension;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use http::Method;
use tollgate::Limiter;
use tollgate::http::{ActualCost, RateLimitLayer, Rule, Settle};
use tollgate::testing::{Call, Recorder};

use crate::support::{FromHeader, Server, statuses, stores};

#[tokio::test]
async fn s99_only_failures_count_for_the_account_and_for_the_address() {
    for store in stores().await {
        let account = store.limit("account", "2/60s");
        let address = store.limit("address", "3/60s");
        let rule = Rule::new(&account)
            .identity(FromHeader("x-account"))
            .and(&address)
            .refund_when(|response| response.status.is_success());
        let login = |request: Request| async move {
            match request.headers().contains_key("x-right") {
                true => StatusCode::OK,
                false => StatusCode::UNAUTHORIZED,
            }
        };
        let app = Router::new()
            .route("/login", post(login))
            .layer(RateLimitLayer::routes().route("/login", rule));
        let server = Server::start(app).await;
        let client = server.client(1);
        let login = async |account: &'static [u8], right: bool| {
            let mut headers = vec![("x-account", account)];
            headers.extend(right.then_some(("x-right", &b"1"[..])));
            client.send(Method::POST, "/login", &headers).await
        };
        for _ in 0..5 {
            let right = login(b"alice", true).await;
            assert_eq!(right.status, 200, "{}", store.name);
            assert_eq!(right.field("ratelimit"), r#""account";r=2, "address";r=3"#);
        }
        assert_eq!(login(b"alice", false).await.status, 401);
        assert_eq!(login(b"alice", false).await.status, 401);
        assert_eq!(
            login(b"alice", true).await.status,
            429,
            "the account is used up"
        );
        // The refusal was not charged to the address.
        assert_eq!(login(b"bob", false).await.status, 401);
        assert_eq!(
            login(b"carol", true).await.status,
            429,
            "the address is used up"
        );
        assert_eq!(
            server
                .client(2)
                .send(
                    Method::POST,
                    "/login",
                    &[("x-account", b"carol"), ("x-right", b"1")]
                )
                .await
                .status,
            200
        );
    }
}

#[tokio::test]
async fn server_errors_are_given_back() {
    for store in stores().await {
        let fails = || async { StatusCode::BAD_GATEWAY };
        let app = Router::new()
            .route("/fails", get(fails))
            .route("/a", get(|| async { "a" }))
            .layer(RateLimitLayer::new(&store.limit("api", "1/60s")).refund_server_errors());
        let server = Server::start(app).await;
        let paths = ["/fails", "/fails", "/a", "/a"];
        assert_eq!(
            statuses(&server.client(1), &paths).await,
            [502, 502, 200, 429]
        );
    }
}

#[tokio::test]
async fn what_it_really_cost_is_settled_up_and_down() {
    for store in stores().await {
        let tokens = store.limit("tokens", "100/60s");
        let used = |request: Request| async move {
            let used = request.uri().query().unwrap().parse().unwrap();
            (Extension(ActualCost(used)), "text").into_response()
        };
        let layer = RateLimitLayer::new(Rule::new(&tokens).cost(20));
        let server = Server::start(Router::new().route("/used", get(used)).layer(layer)).await;
        let client = server.client(1);
        // 20 were charged each time; 5, 20, 60 were used, and then more than is left.
        for (used, left) in [(5, 95), (20, 75), (60, 15)] {
            let answer = client.get(&format!("/used?{used}")).await;
            assert!(
                answer.field("ratelimit").contains(&format!("r={left};")),
                "{used} {answer:?}"
            );
        }
        store.clock.advance(Duration::from_secs(6));
        let answer = client.get("/used?1000").await;
        assert!(
            answer.field("ratelimit").contains("r=0;"),
            "{}: {answer:?}",
            store.name
        );
        assert_eq!(client.get("/used?1").await.status, 429);
    }
}

#[tokio::test]
async fn the_first_hook_that_says_something_decides() {
    let backend = tollgate::connect("memory://").await.unwrap();
    let recorder = Recorder::new(backend);
    let limiter = Limiter::builder(recorder.clone()).build();
    let rule = Rule::new(&limiter.policy("api", ["9/60s".parse().unwrap()]).unwrap())
        .cost(4)
        .when(|response| match response.status.as_u16() {
            204 => Settle::Cost(1),
            _ => Settle::Keep,
        });
    let layer = RateLimitLayer::new(rule).when(|_| Settle::Refund);
    let app = Router::new()
        .route("/204", get(|| async { StatusCode::NO_CONTENT }))
        .route("/200", get(|| async { "all" }))
        .layer(layer);
    let server = Server::start(app).await;
    assert_eq!(
        statuses(&server.client(1), &["/204", "/200"]).await,
        [204, 200]
    );
    let refunds: Vec<_> = recorder
        .calls()
        .into_iter()
        .filter_map(|call| match call {
            Call::Refund { cost, .. } => Some(cost),
            _ => None,
        })
        .collect();
    assert_eq!(refunds, [3, 4]);
}
