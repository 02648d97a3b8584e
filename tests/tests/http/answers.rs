//! What a refused client is told, and that waiting as told helps.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Method, Response};
use tollgate::http::{
    BodyStyle, HeaderStyle, Identity, ProblemType, RateLimitLayer, Refused, Rule,
};
use tollgate::testing::{admit_all, refuse_all};
use tollgate::{FailurePolicy, Limiter, Quota};
use tollgate_testkit::Rng;

use crate::support::{FromHeader, Server, Store, statuses, stores};

fn app(layer: RateLimitLayer) -> Router {
    Router::new()
        .route("/a", get(|| async { "a" }))
        .layer(layer)
}

#[tokio::test]
async fn s23_s24_s25_the_triple_and_the_members_of_a_refusal() {
    for store in stores().await {
        let api = store.limit("api", "100/60s burst=2");
        let layer = RateLimitLayer::new(&api).headers(HeaderStyle::TRIPLE);
        let server = Server::start(app(layer)).await;
        let client = server.client(1);
        let ok = client.get("/a").await;
        let triple = |answer: &crate::support::Answer| {
            ["limit", "remaining", "reset"].map(|it| answer.field(&format!("ratelimit-{it}")))
        };
        assert_eq!(triple(&ok), ["2", "1", "1"]);
        assert!(!ok.headers.contains_key("retry-after"));
        client.get("/a").await;
        let id: &[u8] = b"req-7";
        let refused = client
            .send(Method::GET, "/a?q=1", &[("x-request-id", id)])
            .await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.field("content-type"), "application/problem+json");
        assert_eq!(refused.field("cache-control"), "no-store");
        assert_eq!(refused.field("retry-after"), "1");
        assert_eq!(triple(&refused), ["2", "0", "2"]);
        let expected = serde_json::json!({
            "type": "about:blank", "title": "Too Many Requests", "status": 429,
            "detail": "Rate limit of 100 request(s) per 60s exceeded.", "instance": "/a",
            "request_id": "req-7", "limit": 2, "remaining": 0, "retry_after": 1,
            "retry_after_ms": 600,
        });
        assert_eq!(refused.json(), expected, "{}", store.name);
    }
}

#[tokio::test]
async fn b48_a_wait_below_a_second_is_one_second_and_its_milliseconds() {
    for store in stores().await {
        let layer = RateLimitLayer::new(&store.limit("api", "5/s burst=5"));
        let server = Server::start(app(layer)).await;
        let client = server.client(1);
        assert_eq!(statuses(&client, &["/a"; 5]).await, [200; 5]);
        let refused = client.get("/a").await;
        assert_eq!(
            (refused.status.as_u16(), &*refused.field("retry-after")),
            (429, "1")
        );
        let body = refused.json();
        assert_eq!(
            (&body["status"], &body["retry_after_ms"]),
            (&429.into(), &200.into())
        );
    }
}

#[tokio::test]
async fn b52_of_several_limits_the_one_that_refuses_speaks_and_the_others_are_not_charged() {
    for store in stores().await {
        let req = store.limit("req", "60/60s fixed_window");
        let spend = store.limit("spend", "10/3600s fixed_window");
        let style = HeaderStyle::IETF | HeaderStyle::X_RATELIMIT;
        let layer = RateLimitLayer::new(Rule::new(&req).and(&spend)).headers(style);
        let server = Server::start(app(layer)).await;
        let client = server.client(1);
        assert_eq!(statuses(&client, &["/a"; 10]).await, [200; 10]);
        store.clock.advance(Duration::from_secs(600));
        let refused = client.get("/a").await;
        assert_eq!(
            (refused.status.as_u16(), &*refused.field("retry-after")),
            (429, "3000")
        );
        assert_eq!(refused.field("x-ratelimit-limit"), "10");
        assert_eq!(refused.field("x-ratelimit-remaining"), "0");
        assert_eq!(
            refused.field("ratelimit"),
            r#""req";r=60, "spend";r=0;t=3000"#
        );
        assert_eq!(refused.json()["retry_after"], 3000);
        let key = Identity::new("ip", "127.0.0.1");
        assert_eq!(
            req.peek(key.key()).await.unwrap().remaining(),
            Some(60),
            "{}",
            store.name
        );
    }
}

#[tokio::test]
async fn b52_if_several_refuse_the_longest_wait_is_told() {
    for store in stores().await {
        let short = store.limit("short", "1/10s");
        let long = store.limit("long", "1/60s");
        let layer = RateLimitLayer::new(Rule::new(&short).and(&long));
        let server = Server::start(app(layer)).await;
        server.get("/a").await;
        let refused = server.get("/a").await;
        assert_eq!(refused.field("retry-after"), "60");
        assert_eq!(
            refused.field("ratelimit"),
            r#""short";r=0;t=10, "long";r=0;t=60"#
        );
        store.clock.advance(Duration::from_secs(60));
        assert_eq!(server.get("/a").await.status, 200);
    }
}

/// A limiter over a store that nobody answers.
pub(crate) async fn down(on_failure: FailurePolicy) -> Limiter {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    drop(listener);
    let backend = tollgate::connect(&url).await.unwrap();
    Limiter::builder(backend).on_failure(on_failure).build()
}

/// Whatever a client accepts, it is answered with the same problem, and HEAD with its fields.
pub(crate) async fn is_one_problem(
    server: &Server,
    path: &str,
    more: &[(&str, &[u8])],
    status: u16,
) {
    let client = server.client(1);
    for accept in [
        None,
        Some("*/*"),
        Some("text/html"),
        Some("application/problem+json"),
    ] {
        let accept = accept.map(|it| ("accept", it.as_bytes()));
        let headers: Vec<_> = more.iter().copied().chain(accept).collect();
        let answer = client.send(Method::GET, path, &headers).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.field("content-type"), "application/problem+json");
        let body = answer.json();
        assert_eq!(body["status"], status);
        assert_eq!(body["type"], "about:blank");
        assert!(body["title"].is_string() && body["request_id"].as_str().unwrap().len() == 26);
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(
            !text.contains("redis") && !text.contains("127.0.0.1"),
            "{text}"
        );
        if matches!(status, 429 | 503) {
            assert_eq!(body["retry_after"].to_string(), answer.field("retry-after"));
            assert_eq!(answer.field("cache-control"), "no-store");
        }
        let head = client.send(Method::HEAD, path, &headers).await;
        assert_eq!((head.status.as_u16(), head.body.len()), (status, 0));
        for name in answer.headers.keys().filter(|name| *name != "date") {
            assert_eq!(head.field(name.as_str()), answer.field(name.as_str()));
        }
    }
}

#[tokio::test]
async fn b55_a_problem_is_one_in_type_status_and_wait_whatever_is_accepted() {
    let [memory, _] = stores().await;
    let api = memory.limit("api", "1/60s");
    let closed = down(FailurePolicy::Closed).await;
    let closed = closed
        .policy("api", Quota::parse_list("1/60s").unwrap())
        .unwrap();
    let limited = Server::start(app(RateLimitLayer::new(&api))).await;
    limited.get("/a").await;
    let missing = Server::blind(app(RateLimitLayer::new(&api))).await;
    let unidentified = RateLimitLayer::new(&api).identity(FromHeader("x-user"));
    let unidentified = Server::start(app(unidentified)).await;
    let closed = Server::start(app(RateLimitLayer::new(&closed))).await;
    for (server, status) in [
        (&limited, 429),
        (&closed, 503),
        (&missing, 500),
        (&unidentified, 401),
    ] {
        is_one_problem(server, "/a", &[], status).await;
    }
    assert_eq!(
        unidentified.get("/a").await.field("www-authenticate"),
        "Bearer"
    );
}

#[tokio::test]
async fn s95_a_store_that_is_down_admits_or_by_setting_is_503_and_neither_tells_numbers() {
    for (policy, status) in [(FailurePolicy::Open, 200), (FailurePolicy::Closed, 503)] {
        let limiter = down(policy).await;
        let api = limiter
            .policy("api", Quota::parse_list("2/60s").unwrap())
            .unwrap();
        let style = HeaderStyle::IETF | HeaderStyle::TRIPLE | HeaderStyle::X_RATELIMIT;
        let server = Server::start(app(RateLimitLayer::new(&api).headers(style))).await;
        for _ in 0..4 {
            let answer = server.get("/a").await;
            assert_eq!(answer.status, status);
            assert_eq!(answer.field("ratelimit-policy"), r#""api";q=2;w=60"#);
            let numbers = ["ratelimit", "ratelimit-remaining", "x-ratelimit-reset"];
            assert!(
                numbers.iter().all(|it| !answer.headers.contains_key(*it)),
                "{answer:?}"
            );
            assert!(!answer.headers.contains_key("ratelimit-unenforced"));
            assert_eq!(answer.headers.contains_key("retry-after"), status == 503);
        }
        let layer = RateLimitLayer::new(&api).tell_unenforced();
        let server = Server::start(app(layer)).await;
        let told = server.get("/a").await.field("ratelimit-unenforced");
        assert_eq!(
            told,
            if status == 200 {
                "fail_open"
            } else {
                "fail_closed"
            }
        );
    }
}

#[tokio::test]
async fn a_quota_that_is_exceeded_can_be_a_problem_of_its_own_type_and_plain() {
    let [memory, _] = stores().await;
    let api = memory.limit("api", "1/60s");
    let layer = RateLimitLayer::new(&api).problem_type(ProblemType::QuotaExceeded);
    let server = Server::start(app(layer.clone())).await;
    server.get("/a").await;
    let body = server.get("/a").await.json();
    let kind = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    assert_eq!(
        (&body["type"], &body["violated-policies"][0]),
        (&kind.into(), &"api".into())
    );
    let server = Server::start(app(layer.body(BodyStyle::Plain))).await;
    let plain = server.get("/a").await;
    assert_eq!(plain.field("content-type"), "application/json");
    assert!(plain.json()["type"].is_null() && plain.json()["limit"] == 1);
}

#[tokio::test]
async fn every_quota_that_refuses_is_named_and_not_only_the_one_that_speaks() {
    for store in stores().await {
        let (account, address) = (
            store.limit("account", "1/60s, 9/h"),
            store.limit("address", "1/h"),
        );
        let rule = Rule::new(&account).and(&address);
        let layer = RateLimitLayer::new(rule).problem_type(ProblemType::QuotaExceeded);
        let server = Server::start(app(layer)).await;
        assert_eq!(server.get("/a").await.status, 200);
        let refused = server.get("/a").await;
        assert_eq!(refused.status, 429, "{}", store.name);
        let body = refused.json();
        let names = serde_json::json!(["account.1m", "address"]);
        assert_eq!(body["violated-policies"], names, "{}", store.name);
        // The longest wait speaks.
        assert_eq!(
            (&body["limit"], &body["retry_after"]),
            (&1.into(), &3600.into())
        );
        let fields = refused.field("ratelimit-policy");
        assert_eq!(
            fields,
            r#""account.1m";q=1;w=60, "account.1h";q=9;w=3600, "address";q=1;w=3600"#
        );
        store.clock.advance(Duration::from_secs(60));
        let names = serde_json::json!(["address"]);
        assert_eq!(server.get("/a").await.json()["violated-policies"], names);
    }
}

#[tokio::test]
async fn s96_a_callback_decides_what_a_refusal_looks_like_or_lets_it_pass() {
    for store in stores().await {
        let layer = RateLimitLayer::new(&store.limit("api", "1/60s"));
        let layer = layer.on_refused(|request, limited| {
            assert_eq!(limited.retry_after_seconds(), Some(60));
            assert_eq!(limited.policy().name(), "api");
            match request.uri.query() {
                Some("vip") => Refused::Continue,
                Some("own") => {
                    let mut response = Response::new(Bytes::from("slow down"));
                    *response.status_mut() = http::StatusCode::PAYMENT_REQUIRED;
                    Refused::Respond(response)
                }
                _ => Refused::Answer,
            }
        });
        let server = Server::start(app(layer)).await;
        let client = server.client(1);
        assert_eq!(
            statuses(&client, &["/a", "/a", "/a?vip"]).await,
            [200, 429, 200]
        );
        let vip = client.get("/a?vip").await;
        assert_eq!(
            (&vip.body[..], &*vip.field("ratelimit")),
            (&b"a"[..], r#""api";r=0;t=60"#)
        );
        assert!(
            !vip.headers.contains_key("retry-after"),
            "it was not refused"
        );
        let own = client.get("/a?own").await;
        assert_eq!(
            (own.status.as_u16(), &own.body[..]),
            (402, &b"slow down"[..])
        );
        assert_eq!(own.field("retry-after"), "60");
        assert_eq!(own.field("ratelimit-policy"), r#""api";q=1;w=60"#);
    }
}

#[tokio::test]
async fn what_costs_more_than_the_capacity_is_refused_without_a_wait_and_0_is_free() {
    for store in stores().await {
        let api = store.limit("api", "5/60s");
        let cost = |request: &http::request::Parts| request.uri.query().unwrap().parse().unwrap();
        let server = Server::start(app(RateLimitLayer::new(Rule::new(&api).cost_of(cost)))).await;
        let client = server.client(1);
        let never = client.get("/a?6").await;
        assert_eq!(never.status, 429, "{}", store.name);
        assert!(!never.headers.contains_key("retry-after"));
        assert_eq!(
            client.get("/a?5").await.field("ratelimit"),
            r#""api";r=0;t=12"#
        );
        assert_eq!(client.get("/a?1").await.status, 429);
        let free = client.get("/a?0").await;
        assert_eq!(
            (free.status.as_u16(), &*free.field("ratelimit")),
            (200, r#""api";r=0;t=12"#)
        );
    }
}

#[tokio::test]
async fn wait_exactly_retry_after_and_the_same_request_is_admitted() {
    for store in stores().await {
        let mut rng = Rng::new(0x5eed_a0b1);
        let mut waited = 0;
        for round in 0..60 {
            waited += retry_once(&store, &mut rng, round).await;
        }
        assert!(waited > 30, "only {waited} rounds were refused");
    }
}

/// Uses random limits up, waits as told, and asks again.
async fn retry_once(store: &Store, rng: &mut Rng, round: usize) -> usize {
    let mut limits = Vec::new();
    let parts = 1 + round % 2;
    let mut capacity = u64::MAX;
    for part in 0..parts {
        let algorithm = tollgate::Algorithm::ALL[(round + part) % tollgate::Algorithm::ALL.len()];
        let quota = rng.quota(algorithm);
        let limit = store
            .limiter
            .policy(&format!("r{round}.{part}"), [quota])
            .unwrap();
        capacity = capacity.min(limit.policy().capacity());
        limits.push(limit);
    }
    let cost = rng.cost(capacity).min().min(capacity);
    let rules = limits.iter().map(|limit| Rule::new(limit).cost(cost));
    let rule = rules.reduce(Rule::and).unwrap();
    let server = Server::start(app(RateLimitLayer::new(rule))).await;
    let client = server.client(1);
    for _ in 0..40 {
        let answer = client.get("/a").await;
        if answer.status == 200 {
            continue;
        }
        let wait: u64 = answer.field("retry-after").parse().unwrap();
        assert!(wait >= 1);
        store.clock.advance(Duration::from_secs(wait));
        let again = client.get("/a").await;
        assert_eq!(
            again.status, 200,
            "{} round {round}: waited {wait}: {answer:?}",
            store.name
        );
        return 1;
    }
    0
}

#[tokio::test]
async fn a_service_is_tested_with_stores_that_always_say_the_same() {
    let quotas = || Quota::parse_list("5/60s").unwrap();
    let open = Limiter::builder(admit_all()).build();
    let server = app(RateLimitLayer::new(&open.policy("api", quotas()).unwrap()));
    let server = Server::start(server).await;
    assert_eq!(statuses(&server.client(1), &["/a"; 9]).await, [200; 9]);
    let shut = Limiter::builder(refuse_all(Duration::from_secs(7))).build();
    let server = app(RateLimitLayer::new(&shut.policy("api", quotas()).unwrap()));
    let refused = Server::start(server).await.get("/a").await;
    assert_eq!(
        (refused.status.as_u16(), &*refused.field("retry-after")),
        (429, "7")
    );
}
