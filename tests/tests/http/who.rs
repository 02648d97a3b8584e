//! Who a request counts for.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::Method;
use tollgate::http::{
    Identified, Identifying, Identities, Identity, IdentitySource, Ip, OnNobody, Plans,
    RateLimitLayer,
};
use tollgate_testkit::{RedisServer, Reply};

use crate::support::{FromHeader, Server, Store, statuses, stores};

fn app(layer: RateLimitLayer) -> Router {
    Router::new()
        .route("/a", get(|| async { "a" }))
        .layer(layer)
}

#[tokio::test]
async fn s76_s78_the_default_identity_is_the_connections_address() {
    for store in stores().await {
        let layer = RateLimitLayer::new(&store.limit("api", "2/60s"));
        let server = Server::start(app(layer)).await;
        assert_eq!(
            statuses(&server.client(1), &["/a"; 3]).await,
            [200, 200, 429]
        );
        assert_eq!(
            statuses(&server.client(2), &["/a"; 3]).await,
            [200, 200, 429]
        );
        // Nothing that a client writes makes it another one.
        for name in ["x-forwarded-for", "forwarded", "x-real-ip", "x-api-key"] {
            let headers: [(&str, &[u8]); 1] = [(name, b"192.0.2.1")];
            let answer = server.client(1).send(Method::GET, "/a", &headers).await;
            assert_eq!(answer.status, 429, "{name}");
        }
    }
}

/// A user by the token that the service keeps somewhere: it takes its time.
#[derive(Debug)]
struct Session;

impl IdentitySource for Session {
    fn identify_now(&self, _: &http::request::Parts) -> Option<Identified> {
        None
    }

    fn identify<'a>(&'a self, request: &'a http::request::Parts) -> Identifying<'a> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            match request.headers.get("x-session").map(|it| it.as_bytes()) {
                None => Identified::Unknown,
                Some(b"expired") => Identified::Invalid("expired"),
                Some(b"1" | b"2") => Identified::As(Identity::new("user", "alice")),
                Some(_) => Identified::As(Identity::new("user", "bob").with_plan("pro")),
            }
        })
    }
}

#[tokio::test]
async fn s79_an_identity_is_a_function_of_the_request_and_the_next_source_is_asked() {
    for store in stores().await {
        let sources = Identities::new().then(Session).then(FromHeader("x-user"));
        let layer = RateLimitLayer::new(&store.limit("api", "1/60s"));
        let server = Server::start(app(layer.clone().identity(sources.clone()))).await;
        let client = server.client(1);
        let get = async |name, value: &'static [u8]| {
            let answer = client.send(Method::GET, "/a", &[(name, value)]).await;
            answer.status.as_u16()
        };
        assert_eq!(get("x-session", b"1").await, 200);
        assert_eq!(get("x-session", b"2").await, 429, "the same user");
        assert_eq!(get("x-session", b"3").await, 200);
        // The same text from another source is somebody else.
        assert_eq!(get("x-user", b"alice").await, 200);
        // A credential that is there and wrong is never the next source.
        assert_eq!(get("x-session", b"expired").await, 401);
        // Nobody: refused, or one budget, as it was set.
        assert_eq!(client.get("/a").await.status, 401);
        assert_eq!(client.get("/a").await.status, 401);
        let server = Server::start(app(layer.identity(sources.on_nobody(OnNobody::Share)))).await;
        assert_eq!(server.client(1).get("/a").await.status, 200);
        assert_eq!(server.client(2).get("/a").await.status, 429);
    }
}

#[tokio::test]
async fn a_plan_has_quotas_of_its_own() {
    for store in stores().await {
        let plans = Plans::new().plan("pro", Arc::new(store.limit("pro", "3/h")));
        let free = store.limit("free", "1/h");
        let layer = RateLimitLayer::new(&free).identity(Session).plans(plans);
        let server = Server::start(app(layer)).await;
        let client = server.client(1);
        let mut seen = Vec::new();
        for session in [b"1", b"1", b"3", b"3", b"3", b"3"] {
            let answer = client
                .send(Method::GET, "/a", &[("x-session", session)])
                .await;
            seen.push((answer.status.as_u16(), answer.field("ratelimit-policy")));
        }
        let statuses: Vec<_> = seen.iter().map(|it| it.0).collect();
        assert_eq!(statuses, [200, 429, 200, 200, 200, 429]);
        assert_eq!(seen[0].1, r#""free";q=1;w=3600"#);
        assert_eq!(seen[2].1, r#""pro";q=3;w=3600"#);
    }
}

#[tokio::test]
async fn s80_identities_are_hashed_before_they_reach_the_store() {
    let redis = RedisServer::start().await;
    let backend = tollgate::connect(&redis.url()).await.unwrap();
    let store = Store::over("redis", String::new(), backend);
    let layer = RateLimitLayer::new(&store.limit("api", "5/60s")).identity(FromHeader("x-user"));
    let server = Server::start(app(layer)).await;
    let secret: &[u8] = b"s3cr3t-token";
    server
        .client(1)
        .send(Method::GET, "/a", &[("x-user", secret)])
        .await;
    let keys = redis.command(&["KEYS", "*"]).await;
    let Reply::Array(keys) = keys else {
        panic!("{keys:?}")
    };
    let text: String = keys.into_iter().filter_map(|key| key.text()).collect();
    assert!(
        text.contains(":v1:api:") && !text.contains("s3cr3t"),
        "{text}"
    );
}

#[tokio::test]
async fn b104_sources_have_name_spaces_and_a_missing_identity_is_the_next_sources() {
    for store in stores().await {
        let layer = RateLimitLayer::new(&store.limit("api", "1/60s")).identity(
            Identities::new()
                .then(FromHeader("x-user"))
                .then(Ip::default()),
        );
        let server = Server::start(app(layer)).await;
        let from = async |last, user: Option<&'static [u8]>| {
            let headers: Vec<_> = user.map(|user| ("x-user", user)).into_iter().collect();
            let answer = server.client(last).send(Method::GET, "/a", &headers).await;
            answer.status.as_u16()
        };
        assert_eq!(from(1, Some(b"127.0.0.9")).await, 200);
        assert_eq!(
            from(9, None).await,
            200,
            "an address, not a user of that name"
        );
        assert_eq!(from(2, None).await, 200);
        assert_eq!(from(3, None).await, 200);
        assert_eq!(from(4, Some(b"")).await, 200, "empty is missing");
        assert_eq!(from(4, None).await, 429);
        assert_eq!(from(5, Some(b"127.0.0.9")).await, 429);
    }
}

#[tokio::test]
async fn s1_s2_s31_the_settings_make_the_layer_and_only_if_they_enable_it() {
    use tollgate::http::RateLimitConfig;
    let text = r#"
        [plugins]
        enabled = ["cache", "ratelimit"]
        [plugin.ratelimit]
        limit = 100
        window = 60.0
        key_sources = ["api_key", "ip"]
        api_key_header = "X-API-Key"
        exempt = ["/free"]
        plans = { pro = "5000/h" }
    "#;
    let quiet = text.replace(r#", "ratelimit""#, "");
    let env = [("TOLLGATE_RATELIMIT_LIMIT".to_owned(), "2".to_owned())];
    assert!(
        RateLimitConfig::load(&quiet, env.clone())
            .unwrap()
            .is_none()
    );
    let config = RateLimitConfig::load(text, env).unwrap().unwrap();
    for store in stores().await {
        let layer = store.limiter.configured(&config, []).unwrap();
        let app = Router::new()
            .route("/a", get(|| async { "a" }))
            .route("/free", get(|| async { "free" }))
            .layer(layer);
        let server = Server::start(app).await;
        let client = server.client(1);
        assert_eq!(
            statuses(&client, &["/a", "/a", "/a", "/free"]).await,
            [200, 200, 429, 200]
        );
        let refused = client.get("/a").await;
        assert_eq!(refused.field("ratelimit-policy"), r#""default";q=2;w=60"#);
        let key: [(&str, &[u8]); 1] = [("x-api-key", b"k")];
        assert_eq!(
            client.send(Method::GET, "/a", &key).await.status,
            200,
            "{}",
            store.name
        );
    }
}
