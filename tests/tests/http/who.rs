//! Who a request counts for.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::Method;
use tollgate::http::{
    Identified, Identifying, Identities, Identity, IdentitySource, Ip, OnNobody, Plans,
    RateLimitLayer, Rule, Scope,
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
async fn a_plan_is_one_budget_for_all_routes_unless_their_rules_say_otherwise() {
    for store in stores().await {
        let unnamed = |name, quota| Rule::new(&store.limit(name, quota)).unnamed();
        let layer = |other| {
            let plans = Plans::new().plan("pro", Arc::new(store.limit("pro", "3/h")));
            RateLimitLayer::new(unnamed("made-up", "1/h"))
                .route("/b", other)
                .identity(Session)
                .plans(plans)
        };
        let ask = async |layer, session: &'static [u8]| {
            let routes = Router::new()
                .route("/a", get(|| async { "a" }))
                .route("/b", get(|| async { "b" }));
            let server = Server::start(routes.layer(layer)).await;
            let client = server.client(1);
            let mut statuses = Vec::new();
            for path in ["/a", "/b", "/a", "/b"] {
                let headers = [("x-session", session)];
                let answer = client.send(Method::GET, path, &headers).await;
                statuses.push(answer.status.as_u16());
            }
            statuses
        };
        let other = unnamed("made-up-too", "2/h");
        assert_eq!(ask(layer(other.clone()), b"1").await, [200, 200, 429, 200]);
        let got = ask(layer(other.clone()), b"3").await;
        assert_eq!(got, [200, 200, 200, 429], "{}", store.name);
        // `/b` has a budget for itself: nothing of it was used.
        let other = other.scope(Scope::Route);
        let got = ask(layer(other), b"3").await;
        assert_eq!(got, [429, 200, 429, 200], "{}", store.name);
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

#[tokio::test]
async fn lists_deny_and_exempt_before_anything_is_charged() {
    use tollgate::http::{CidrSet, HeaderStyle};
    for store in stores().await {
        let limit = store.limit("api", "1/h");
        let plans = Plans::new()
            .deny_networks(CidrSet::parse(["127.0.0.66"]).unwrap())
            .allow_networks(CidrSet::parse(["127.0.0.99"]).unwrap())
            .deny("user", "bob")
            .allow("header:x-user", "monitor");
        let sources = Identities::new()
            .then(Session)
            .then(FromHeader("x-user"))
            .then(Ip::default());
        let layer = RateLimitLayer::new(&limit)
            .identity(sources)
            .plans(plans)
            .headers(HeaderStyle::IETF | HeaderStyle::X_RATELIMIT);
        let server = Server::start(app(layer)).await;
        let ask = async |last, headers: &[(&str, &[u8])]| {
            server.client(last).send(Method::GET, "/a", headers).await
        };
        // Refused for good: no wait helps, and nothing tells of a quota.
        let by_name: &[(&str, &[u8])] = &[("x-session", b"3")];
        for (last, headers) in [(66, &[][..]), (66, by_name), (1, by_name), (99, by_name)] {
            for _ in 0..2 {
                let denied = ask(last, headers).await;
                assert_eq!(denied.status, 403, "{}", store.name);
                assert_eq!(denied.field("content-type"), "application/problem+json");
                assert_eq!(denied.json()["status"], 403);
                for name in ["retry-after", "ratelimit", "x-ratelimit-limit"] {
                    assert!(!denied.headers.contains_key(name), "{name}");
                }
            }
        }
        // Exempt: as often as they like, and nothing is written.
        let alice: &[(&str, &[u8])] = &[("x-user", b"alice")];
        for headers in [&[][..], alice] {
            for _ in 0..3 {
                let free = ask(99, headers).await;
                assert_eq!(free.status, 200, "{}", store.name);
                assert!(!free.headers.contains_key("ratelimit"), "{free:?}");
            }
        }
        for last in [1, 1, 2] {
            let monitor: &[(&str, &[u8])] = &[("x-user", b"monitor")];
            assert_eq!(ask(last, monitor).await.status, 200);
        }
        // None of that was charged to anybody: the budgets are whole.
        assert_eq!(ask(1, &[]).await.status, 200);
        assert_eq!(ask(1, &[]).await.status, 429);
        assert_eq!(ask(1, alice).await.status, 200);
        assert_eq!(ask(2, alice).await.status, 429);
    }
}

#[tokio::test]
async fn a_function_chooses_the_plan_and_each_plan_counts_for_itself() {
    for store in stores().await {
        let plans = Plans::new()
            .plan("free", Arc::new(store.limit("free", "1/h")))
            .plan("pro", Arc::new(store.limit("pro", "2/h")))
            .limit_from(|_, request| {
                let plan = request.headers.get("x-plan")?.to_str().ok()?;
                Some(plan.to_owned())
            });
        let layer = RateLimitLayer::new(&store.limit("api", "3/h")).plans(plans);
        let server = Server::start(app(layer)).await;
        let client = server.client(1);
        let ask = async |plan: &'static str| {
            let headers: Vec<(&str, &[u8])> = match plan {
                "" => Vec::new(),
                plan => vec![("x-plan", plan.as_bytes())],
            };
            let answer = client.send(Method::GET, "/a", &headers).await;
            (answer.status.as_u16(), answer.field("ratelimit-policy"))
        };
        // A plan that nobody set has the limit of the route.
        for (plan, name, limit) in [("free", "free", 1), ("pro", "pro", 2), ("", "api", 3)] {
            for _ in 0..limit {
                let (status, policy) = ask(plan).await;
                assert_eq!(status, 200, "{} {plan}", store.name);
                assert_eq!(policy, format!(r#""{name}";q={limit};w=3600"#));
            }
            assert_eq!(ask(plan).await.0, 429, "{} {plan}", store.name);
        }
        assert_eq!(ask("gold").await.0, 429);
    }
}

#[tokio::test]
async fn s31_tokens_of_the_settings_identify_and_choose_the_plan() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
    use tollgate::http::RateLimitConfig;
    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    let text = r#"
        [plugins]
        enabled = ["ratelimit"]
        [plugin.ratelimit]
        limit = 1
        window = 3600.0
        key_sources = ["jwt", "ip"]
        jwt_issuer = "https://issuer.example"
        jwt_audience = "orders"
        jwt_algorithms = ["HS256"]
        jwt_plan_claim = "plan"
        plans = { pro = "2/h" }
    "#;
    let env = [(
        "TOLLGATE_RATELIMIT_JWT_SECRET".to_owned(),
        SECRET.to_owned(),
    )];
    let config = RateLimitConfig::load(text, env).unwrap().unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs();
    let token = |subject: &str, plan: &str, secret: &str| {
        let claims = serde_json::json!({
            "iss": "https://issuer.example", "aud": "orders", "exp": now + 3600,
            "sub": subject, "plan": plan,
        });
        let message = format!(
            "{}.{}",
            B64.encode(r#"{"alg":"HS256"}"#),
            B64.encode(claims.to_string())
        );
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
        let tag = ring::hmac::sign(&key, message.as_bytes());
        format!("Bearer {message}.{}", B64.encode(tag))
    };
    for store in stores().await {
        let layer = store.limiter.configured(&config, []).unwrap();
        let server = Server::start(app(layer)).await;
        let client = server.client(1);
        let ask = async |token: &str| {
            let headers = [("authorization", token.as_bytes())];
            let answer = client.send(Method::GET, "/a", &headers).await;
            answer.status.as_u16()
        };
        let alice = token("alice", "free", SECRET);
        assert_eq!(ask(&alice).await, 200);
        assert_eq!(ask(&alice).await, 429, "{}", store.name);
        let bob = token("bob", "pro", SECRET);
        for status in [200, 200, 429] {
            assert_eq!(ask(&bob).await, status, "{}", store.name);
        }
        // One that is not valid is never the next source; none at all is.
        assert_eq!(
            ask(&token("eve", "pro", "another secret of enough length")).await,
            401
        );
        assert_eq!(client.get("/a").await.status, 200);
        assert_eq!(client.get("/a").await.status, 429);
    }
}

#[tokio::test]
async fn b100_only_the_configured_algorithm_and_key_identify() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
    use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
    use tollgate::http::{Jwt, JwtAlgorithm, JwtKey};
    const PRIVATE: &[u8] =
        include_bytes!("../../../crates/http/src/identity/jwt/testdata/rsa.pkcs8.der");
    const PUBLIC: &str = include_str!("../../../crates/http/src/identity/jwt/testdata/rsa.pub.pem");
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs();
    let message = |header: &str| {
        let claims = format!(
            r#"{{"iss":"i","aud":"a","sub":"alice","exp":{}}}"#,
            now + 3600
        );
        format!("{}.{}", B64.encode(header), B64.encode(claims))
    };
    let rsa = |header: &str| {
        let (key, message) = (RsaKeyPair::from_pkcs8(PRIVATE).unwrap(), message(header));
        let mut tag = vec![0; key.public().modulus_len()];
        let random = ring::rand::SystemRandom::new();
        key.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut tag)
            .unwrap();
        format!("{message}.{}", B64.encode(tag))
    };
    let hmac = |header: &str| {
        let message = message(header);
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, PUBLIC.as_bytes());
        format!(
            "{message}.{}",
            B64.encode(ring::hmac::sign(&key, message.as_bytes()))
        )
    };
    let long = format!(r#"{{"alg":"RS256","kid":"{}"}}"#, "k".repeat(10 << 10));
    for store in stores().await {
        let key = JwtKey::pem(JwtAlgorithm::Rs256, PUBLIC)
            .unwrap()
            .with_id("k1");
        let layer =
            RateLimitLayer::new(&store.limit("api", "1/h")).identity(Jwt::new("i", "a", [key]));
        let server = Server::start(app(layer)).await;
        let client = server.client(1);
        let ask = async |token: String| {
            let token = format!("Bearer {token}");
            let headers = [("authorization", token.as_bytes())];
            let answer = client.send(Method::GET, "/a", &headers).await;
            answer.status.as_u16()
        };
        for token in [
            format!("{}.", message(r#"{"alg":"none"}"#)),
            format!("{}.", message(r#"{"alg":"nOnE"}"#)),
            hmac(r#"{"alg":"HS256"}"#),
            hmac(r#"{"alg":"RS256"}"#),
            rsa(r#"{"alg":"RS256","kid":"../../etc/passwd"}"#),
            rsa(&long),
            rsa(r#"{"alg":"RS256","crit":["x"]}"#),
            "x.y.z".into(),
        ] {
            assert_eq!(ask(token.clone()).await, 401, "{} {token:.80}", store.name);
        }
        assert_eq!(ask(rsa(r#"{"alg":"RS256"}"#)).await, 200);
        assert_eq!(
            ask(rsa(r#"{"alg":"RS256","kid":"k1"}"#)).await,
            429,
            "alice again"
        );
    }
}
