//! Which limit holds on which route, and who shares a budget.

use axum::Router;
use axum::extract::Request;
use axum::middleware::Next;
use axum::routing::{get, post};
use http::Method;
use tollgate::http::{Identified, Identity, IdentitySource, RateLimitLayer, Rule, Scope};

use crate::support::{Server, redis, statuses, stores};

fn app() -> Router {
    Router::new()
        .route("/a", get(|| async { "a" }))
        .route("/b", get(|| async { "b" }).post(|| async { "posted" }))
        .route("/items/{id}", get(|| async { "item" }))
}

#[tokio::test]
async fn s4_a_request_that_matches_no_route_is_not_limited_unless_told() {
    for store in stores().await {
        let api = store.limit("api", "2/60s");
        let server = Server::start(app().layer(RateLimitLayer::new(&api))).await;
        let client = server.client(1);
        assert_eq!(
            statuses(&client, &["/no"; 5]).await,
            [404; 5],
            "{}",
            store.name
        );
        assert!(!client.get("/no").await.headers.contains_key("ratelimit"));
        assert_eq!(statuses(&client, &["/a"; 3]).await, [200, 200, 429]);

        let scan = store.limit("scan", "1/60s");
        let layer = RateLimitLayer::new(&api).unmatched(&scan);
        let server = Server::start(app().layer(layer)).await;
        assert_eq!(
            statuses(&server.client(1), &["/no", "/nor"]).await,
            [404, 429]
        );
    }
}

#[tokio::test]
async fn s4_a_service_without_a_router_limits_every_request() {
    use tower::{Layer, ServiceExt};
    let [memory, _] = stores().await;
    let layer = RateLimitLayer::new(&memory.limit("api", "1/60s")).identity(Everybody);
    let service = layer.layer(app());
    for expected in [404, 429] {
        let request = http::Request::get("/no")
            .body(axum::body::Body::empty())
            .unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), expected);
    }
}

#[derive(Debug)]
struct Everybody;

impl IdentitySource for Everybody {
    fn identify_now(&self, _: &http::request::Parts) -> Option<Identified> {
        Some(Identified::As(Identity::new("all", "")))
    }
}

/// What the service's authentication found out.
#[derive(Clone)]
struct Tenant(&'static str);

#[derive(Debug)]
struct OfTenant;

impl IdentitySource for OfTenant {
    fn identify_now(&self, request: &http::request::Parts) -> Option<Identified> {
        let tenant = request.extensions.get::<Tenant>();
        Some(tenant.map_or(Identified::Unknown, |Tenant(name)| {
            Identified::As(Identity::new("tenant", name))
        }))
    }
}

#[tokio::test]
async fn s5_it_sees_the_resolved_tenant_and_a_cost_for_each_endpoint() {
    for store in stores().await {
        let api = store.limit("api", "10/60s");
        let layer = RateLimitLayer::new(&api)
            .identity(OfTenant)
            .route("/b", Rule::new(&api).cost(4))
            .route(
                "/items/{id}",
                Rule::new(&api).cost_of(|request| request.uri.path().len() as u64 - 7),
            );
        let resolve = async |mut request: Request, next: Next| {
            let name = match request.headers().contains_key("x-globex") {
                true => "globex",
                false => "acme",
            };
            request.extensions_mut().insert(Tenant(name));
            next.run(request).await
        };
        let app = app().layer(layer).layer(axum::middleware::from_fn(resolve));
        let server = Server::start(app).await;
        let client = server.client(1);
        for (path, left) in [("/a", 9), ("/b", 5), ("/items/xyz", 2)] {
            let fields = client.get(path).await.field("ratelimit");
            assert!(fields.contains(&format!("r={left};")), "{path}: {fields}");
        }
        assert_eq!(client.get("/b").await.status, 429);
        // From another address it is the same tenant; from this one it may be another.
        assert_eq!(server.client(2).get("/b").await.status, 429);
        let other = client.send(Method::GET, "/b", &[("x-globex", b"1")]).await;
        assert!(other.field("ratelimit").contains("r=6;"));
    }
}

#[tokio::test]
async fn s18_s19_an_override_replaces_the_default_and_has_its_own_budget() {
    for store in stores().await {
        let layer = RateLimitLayer::routes()
            .default(store.limiter.rule("3/60s").unwrap())
            .route("/b", store.limiter.rule("1/60s").unwrap());
        let server = Server::start(app().layer(layer)).await;
        let client = server.client(1);
        assert_eq!(statuses(&client, &["/b", "/b"]).await, [200, 429]);
        // Not charged to the default one, which is one budget over all other routes.
        let paths = ["/a", "/items/1", "/a", "/items/2"];
        assert_eq!(statuses(&client, &paths).await, [200, 200, 200, 429]);
        assert_eq!(
            client.get("/a").await.field("ratelimit-policy"),
            r#""default";q=3;w=60"#
        );
    }
}

#[tokio::test]
async fn s20_routes_of_one_scope_share_one_budget() {
    for store in stores().await {
        let vectors = || {
            let rule = store.limiter.rule("3/60s").unwrap();
            rule.scope(Scope::Named("vectors".into()))
        };
        let layer = RateLimitLayer::routes()
            .route("/a", vectors())
            .route("GET /b", vectors().cost(2))
            .route("/items/{id}", store.limiter.rule("3/60s").unwrap());
        let server = Server::start(app().layer(layer)).await;
        let client = server.client(1);
        assert_eq!(
            statuses(&client, &["/a", "/b", "/a", "/b"]).await,
            [200, 200, 429, 429]
        );
        // The same quotas, another scope; and a method that no rule names.
        assert_eq!(
            client.get("/items/1").await.field("ratelimit"),
            r#""default";r=2;t=20"#
        );
        assert_eq!(client.send(Method::POST, "/b", &[]).await.status, 200);
    }
}

#[tokio::test]
async fn s21_an_override_with_the_defaults_quota_charges_the_defaults_budget_more() {
    for store in stores().await {
        let rule = |text| store.limiter.rule(text).unwrap();
        let layer = RateLimitLayer::routes()
            .default(rule("100/60s"))
            .route("/b", rule("100/60s").cost(25));
        let server = Server::start(app().layer(layer)).await;
        let client = server.client(1);
        for (path, left) in [("/a", 99), ("/b", 74), ("/items/1", 73), ("/b", 48)] {
            let fields = client.get(path).await.field("ratelimit");
            assert!(fields.contains(&format!("r={left};")), "{path}: {fields}");
        }
    }
}

#[tokio::test]
async fn s22_the_default_holds_for_the_routes_that_are_there_and_not_for_later_ones() {
    for store in stores().await {
        let layer = RateLimitLayer::new(&store.limit("api", "2/60s"));
        let app = app()
            .layer(layer)
            .route("/later", get(|| async { "later" }));
        let server = Server::start(app).await;
        let client = server.client(1);
        assert_eq!(
            statuses(&client, &["/a", "/b", "/items/1"]).await,
            [200, 200, 429]
        );
        assert_eq!(statuses(&client, &["/later"; 3]).await, [200; 3]);
    }
}

#[tokio::test]
async fn s73_so_many_per_period_on_a_route_then_429_with_retry_after() {
    for store in stores().await {
        let route = || RateLimitLayer::new(store.limiter.rule("10/minute").unwrap());
        let app = Router::new()
            .route("/a", get(|| async { "a" }).layer(route()))
            .route("/b", get(|| async { "b" }));
        let server = Server::start(app).await;
        let client = server.client(1);
        assert_eq!(statuses(&client, &["/a"; 10]).await, [200; 10]);
        let refused = client.get("/a").await;
        assert_eq!(
            (refused.status.as_u16(), &*refused.field("retry-after")),
            (429, "6")
        );
        assert_eq!(statuses(&client, &["/b"; 12]).await, [200; 12]);
    }
}

#[tokio::test]
async fn s74_times_units_name_identifier_cost_store_headers_failure_and_callback_are_options() {
    use tollgate::http::{HeaderStyle, Refused};
    for store in stores().await {
        let quotas = ["6/2h".parse().unwrap()];
        let limit = store
            .limiter
            .policy_with("uploads", quotas, tollgate::FailurePolicy::Closed)
            .unwrap();
        let layer = RateLimitLayer::new(Rule::new(&limit).cost(3))
            .identity(crate::support::FromHeader("x-user"))
            .headers(HeaderStyle::TRIPLE)
            .on_refused(|_, limited| match limited.retry_after_seconds() {
                Some(3_600) => Refused::Answer,
                other => panic!("{other:?}"),
            });
        let server = Server::start(app().layer(layer)).await;
        let client = server.client(1);
        let user: [(&str, &[u8]); 1] = [("x-user", b"alice")];
        let mut left = Vec::new();
        for _ in 0..3 {
            let answer = client.send(Method::GET, "/a", &user).await;
            left.push((answer.status.as_u16(), answer.field("ratelimit-remaining")));
        }
        let expected = [(200, "3"), (200, "0"), (429, "0")].map(|(a, b)| (a, b.to_owned()));
        assert_eq!(left, expected, "{}", store.name);
        assert_eq!(limit.failure_policy(), tollgate::FailurePolicy::Closed);
    }
}

#[tokio::test]
async fn s75_processes_share_their_counters() {
    // Two limiters, as two processes have them, over one store.
    let (one, other) = {
        let one = redis().await;
        let connect = tollgate::Connect::new(tollgate_testkit::shared_redis().await.url())
            .prefix(one.prefix.clone())
            .require(true);
        let backend = connect.connect().await.unwrap();
        (
            one,
            crate::support::Store::over("redis", String::new(), backend),
        )
    };
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for store in [&one, &other] {
        let layer = RateLimitLayer::new(&store.limit("api", "3/60s"));
        let server = Server::start(app().layer(layer)).await;
        clients.push(server.client(1));
        servers.push(server);
    }
    let mut admitted = 0;
    for turn in 0..10 {
        admitted += u16::from(clients[turn % 2].get("/a").await.status == 200);
    }
    assert_eq!(admitted, 3);
}

#[tokio::test]
async fn s81_each_route_has_a_budget_by_its_template_nested_and_mounted() {
    for store in stores().await {
        let users = Router::new().route("/users/{id}", get(|| async { "user" }));
        let app = Router::new()
            .nest("/v1/{tenant}", users.clone())
            .nest("/v2", users)
            .route("/b", get(|| async { "b" }).post(|| async { "posted" }))
            .layer(RateLimitLayer::new(store.limiter.rule("2/60s").unwrap()));
        let server = Server::start(app).await;
        let client = server.client(1);
        let paths = ["/v1/acme/users/1", "/v1/globex/users/2", "/v1/acme/users/3"];
        assert_eq!(
            statuses(&client, &paths).await,
            [200, 200, 429],
            "{}",
            store.name
        );
        // Mounted twice: two templates, two budgets.
        assert_eq!(
            statuses(&client, &["/v2/users/1"; 3]).await,
            [200, 200, 429]
        );
        // HEAD counts with GET, POST by itself.
        assert_eq!(client.send(Method::HEAD, "/b", &[]).await.status, 200);
        assert_eq!(statuses(&client, &["/b", "/b"]).await, [200, 429]);
        assert_eq!(client.send(Method::HEAD, "/b", &[]).await.status, 429);
        assert_eq!(client.send(Method::POST, "/b", &[]).await.status, 200);
    }
}

#[tokio::test]
async fn s81_named_a_route_that_is_mounted_twice_has_one_budget() {
    for store in stores().await {
        let users = Router::new().route("/users", get(|| async { "users" }));
        let app = Router::new()
            .nest("/v1", users.clone())
            .nest("/v2", users)
            .layer(RateLimitLayer::new(&store.limit("users", "2/60s")));
        let server = Server::start(app).await;
        let paths = ["/v1/users", "/v2/users", "/v1/users"];
        assert_eq!(statuses(&server.client(1), &paths).await, [200, 200, 429]);
    }
}

#[tokio::test]
async fn s82_the_same_name_and_quotas_are_one_budget_whatever_they_cost() {
    for store in stores().await {
        let limit = || store.limit("api", "1000/h");
        let export = Rule::new(&limit()).cost(50);
        let app = Router::new()
            .route(
                "/list",
                get(|| async { "list" }).layer(RateLimitLayer::new(&limit())),
            )
            .route(
                "/export",
                post(|| async { "all" }).layer(RateLimitLayer::new(export)),
            );
        let server = Server::start(app).await;
        let client = server.client(1);
        let left = async |method, path| client.send(method, path, &[]).await.field("ratelimit");
        assert_eq!(left(Method::GET, "/list").await, r#""api";r=999;t=4"#);
        assert_eq!(left(Method::POST, "/export").await, r#""api";r=949;t=4"#);
        assert_eq!(left(Method::GET, "/list").await, r#""api";r=948;t=4"#);
    }
}

#[tokio::test]
async fn s93_the_limiter_that_is_given_counts_else_the_applications() {
    let (application, given) = (redis().await, crate::support::memory().await);
    let layer = RateLimitLayer::new(&application.limit("api", "2/60s"))
        .route("/b", &given.limit("api", "2/60s"));
    let server = Server::start(app().layer(layer)).await;
    let client = server.client(1);
    assert_eq!(statuses(&client, &["/a", "/b", "/a", "/b"]).await, [200; 4]);
    let key = Identity::new("ip", "127.0.0.1");
    for store in [&application, &given] {
        let limit = store.limit("api", "2/60s");
        assert_eq!(
            limit.peek(key.key()).await.unwrap().remaining(),
            Some(0),
            "{}",
            store.name
        );
    }
}

#[tokio::test]
async fn a_second_layer_below_is_an_additional_limit() {
    for store in stores().await {
        let inner = RateLimitLayer::new(&store.limit("export", "1/60s"));
        let app = Router::new()
            .route("/export", get(|| async { "all" }).layer(inner))
            .route("/a", get(|| async { "a" }))
            .layer(RateLimitLayer::new(&store.limit("api", "3/60s")));
        let server = Server::start(app).await;
        let client = server.client(1);
        let first = client.get("/export").await;
        assert_eq!(
            first.field("ratelimit-policy"),
            r#""export";q=1;w=60, "api";q=3;w=60"#
        );
        assert_eq!(
            first.field("ratelimit"),
            r#""export";r=0;t=60, "api";r=2;t=20"#
        );
        let refused = client.get("/export").await;
        assert_eq!(
            (refused.status.as_u16(), &*refused.field("retry-after")),
            (429, "60")
        );
        // What the inner one refused counted outside.
        assert_eq!(statuses(&client, &["/a", "/a"]).await, [200, 429]);
    }
}

#[tokio::test]
async fn b106_a_spelling_that_reaches_the_handler_has_its_budget_and_others_charge_nothing() {
    for store in stores().await {
        let layer =
            RateLimitLayer::routes().route("/api/login", store.limiter.rule("2/60s").unwrap());
        let app = Router::new()
            .route("/api/login", get(|| async { "in" }))
            .layer(layer);
        let server = Server::start(app).await;
        let client = server.client(1);
        let strange = ["//api/login", "/api//login", "/api/login/", "/API/login"];
        assert_eq!(statuses(&client, &strange).await, [404; 4]);
        let paths = [
            "/api/login",
            "/api/login?x=1",
            "/api/login?x=2",
            "/api/login",
        ];
        assert_eq!(statuses(&client, &paths).await, [200, 200, 429, 429]);
        // Percent-encoded letters are the same letters to a server that decodes paths; axum does not.
        assert_eq!(client.get("/api/%6Cogin").await.status, 404);
    }
}
