//! What a middleware can get wrong: shared state, CORS, missing addresses, unchecked text.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{any, get, options};
use http::Method;
use tollgate::http::{
    ApiKeys, ForwardedBy, Header, HeaderStyle, Limited, PeerAddr, RateLimitConfig, RateLimitLayer,
    Rule, Scope,
};
use tower_http::cors::{Any, CorsLayer};

use crate::log::Log;
use crate::support::{Answer, Client, Server, Store, memory, redis, statuses, stores};

fn app() -> Router {
    Router::new().route("/a", get(|| async { "a" }))
}

async fn flood(server: &Server, http2: bool) -> (usize, usize) {
    let mut tasks = Vec::new();
    for _ in 0..25 {
        let client = Client::new(server.address, 1, http2);
        tasks.push(tokio::spawn(async move {
            let mut counts = (0, 0);
            for _ in 0..30 {
                match client.get("/a").await.status.as_u16() {
                    200 => counts.0 += 1,
                    429 => counts.1 += 1,
                    other => panic!("{other}"),
                }
            }
            counts
        }));
    }
    let mut all = (0, 0);
    for task in tasks {
        let counts = task.await.unwrap();
        all = (all.0 + counts.0, all.1 + counts.1);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b108_all_connections_and_all_routers_of_a_layer_share_its_state() {
    for store in stores().await {
        let layer = RateLimitLayer::new(&store.limit("api", "5/s"));
        // One layer value around two routers; HTTP/1.1 to one, HTTP/2 to the other.
        let one = Server::start(app().layer(layer.clone())).await;
        let two = Server::start(app().layer(layer)).await;
        let (one, two) = tokio::join!(flood(&one, false), flood(&two, true));
        assert_eq!((one.0 + two.0, one.1 + two.1), (5, 1_495), "{}", store.name);
    }
}

#[tokio::test]
async fn b110_without_the_address_it_is_a_clear_500_and_a_log_line() {
    for store in stores().await {
        let log = Log::new(tracing::Level::INFO);
        let layer = RateLimitLayer::new(&store.limit("api", "1/60s"));
        let server = Server::blind(app().layer(layer)).await;
        for _ in 0..3 {
            let answer = server.get("/a").await;
            assert_eq!(answer.status, 500);
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(
                detail.contains("into_make_service_with_connect_info"),
                "{detail}"
            );
        }
        assert_eq!(log.count("ERROR"), 1, "{}", log.text());
    }
}

#[tokio::test]
async fn s17_b110_unresolved_forwarding_headers_are_hinted_at_once() {
    let log = Log::new(tracing::Level::INFO);
    for store in stores().await {
        let layer = RateLimitLayer::new(&store.limit("api", "3/60s"));
        let server = Server::start(app().layer(layer)).await;
        let client = server.client(1);
        let mut seen = Vec::new();
        for n in 0..5_u8 {
            let other = format!("203.0.113.{n}");
            let headers = [("x-forwarded-for", other.as_bytes())];
            seen.push(
                client
                    .send(Method::GET, "/a", &headers)
                    .await
                    .status
                    .as_u16(),
            );
        }
        // The balancer is the client, whatever the header says.
        assert_eq!(seen, [200, 200, 200, 429, 429]);
    }
    // Once for the process, however many layers there are.
    assert_eq!(log.count("WARN"), 1, "{}", log.text());
    assert!(log.text().contains("share one bucket"));
}

#[tokio::test]
async fn other_servers_say_the_address_by_an_extension() {
    let [memory, _] = stores().await;
    let layer = RateLimitLayer::new(&memory.limit("api", "1/60s"));
    let tell = |ConnectInfo(peer): ConnectInfo<SocketAddr>,
                mut request: axum::extract::Request,
                next: axum::middleware::Next| async move {
        request.extensions_mut().remove::<ConnectInfo<SocketAddr>>();
        request.extensions_mut().insert(PeerAddr(peer));
        next.run(request).await
    };
    let server = Server::start(app().layer(layer).layer(axum::middleware::from_fn(tell))).await;
    assert_eq!(statuses(&server.client(1), &["/a"; 2]).await, [200, 429]);
    assert_eq!(server.client(2).get("/a").await.status, 200);
}

#[tokio::test]
async fn b111_preflights_are_free_and_refusals_can_be_read_by_pages() {
    for store in stores().await {
        let cors = CorsLayer::new()
            .allow_origin(Any)
            .expose_headers(RateLimitLayer::EXPOSED);
        let limited = RateLimitLayer::new(&store.limit("api", "2/60s"));
        let app = Router::new().route(
            "/a",
            get(|| async { "a" }).merge(options(|| async { "asked" })),
        );
        // Outside, as the documentation says; and inside, where preflights reach the limit.
        let outside = Server::start(app.clone().layer(limited.clone()).layer(cors.clone())).await;
        let origin: (&str, &[u8]) = ("origin", b"https://app.example");
        let asks: (&str, &[u8]) = ("access-control-request-method", b"GET");
        let client = outside.client(1);
        for _ in 0..5 {
            let preflight = client.send(Method::OPTIONS, "/a", &[origin, asks]).await;
            assert_eq!(preflight.status, 200);
        }
        for status in [200, 200, 429] {
            let answer = client.send(Method::GET, "/a", &[origin]).await;
            assert_eq!(answer.status, status);
            assert_eq!(answer.field("access-control-allow-origin"), "*");
            let exposed = answer.field("access-control-expose-headers");
            assert_eq!(exposed, "ratelimit,ratelimit-policy,retry-after");
        }
        let head = client.send(Method::HEAD, "/a", &[]).await;
        assert_eq!((head.status.as_u16(), head.body.len()), (429, 0));
        assert_eq!(head.field("retry-after"), "30");

        let inside = Server::start(app.layer(cors).layer(limited)).await;
        let client = inside.client(2);
        for _ in 0..5 {
            let preflight = client.send(Method::OPTIONS, "/a", &[origin, asks]).await;
            assert_eq!(preflight.status, 200);
        }
        // One that is no preflight counts.
        let mut plain = Vec::new();
        for headers in [&[][..], &[origin], &[asks]] {
            plain.push(
                client
                    .send(Method::OPTIONS, "/a", headers)
                    .await
                    .status
                    .as_u16(),
            );
        }
        assert_eq!(plain[2], 429, "{plain:?}");
    }
}

#[tokio::test]
async fn b112_unchecked_bytes_never_panic() {
    for store in stores().await {
        let layer = RateLimitLayer::new(&store.limit("api", "1/60s"))
            .identity(Header::new("X-User").unwrap())
            .exempt("/none");
        let server = Server::start(app().layer(layer)).await;
        let client = server.client(1);
        let every: Vec<u8> = (0x80..=0xff).collect();
        let long = vec![b'k'; 60 * 1024];
        for user in [&every[..], b"a\tb", &long, b"\"\\"] {
            for status in [200, 429] {
                let path = "/a?%22%00%0d%0a\"";
                let path = if status == 200 { "/a" } else { path };
                let path = path.trim_end_matches('"');
                let id: (&str, &[u8]) = ("x-request-id", b"\"bad\"");
                let answer = client
                    .send(Method::GET, path, &[("x-user", user), id])
                    .await;
                assert_eq!(answer.status, status, "{} {:?}", store.name, &user[..2]);
                assert!(answer.headers.contains_key("ratelimit-policy"));
                if status == 429 {
                    assert_eq!(answer.json()["request_id"].as_str().unwrap().len(), 26);
                }
            }
        }
        assert!(
            store
                .limiter
                .policy(
                    "a\r\nb",
                    [
                        tollgate::Quota::token_bucket(1, std::time::Duration::from_secs(1))
                            .unwrap()
                    ]
                )
                .is_err()
        );
    }
    // What cannot be a name is refused when it is set.
    let bad = "x bad";
    assert!(Header::new(bad).is_none() && Header::api_key(bad).is_none());
    assert!(ApiKeys::new(bad).is_none());
    assert!(ForwardedBy::header(bad).is_err());
    let text = "[plugins]\nenabled = [\"ratelimit\"]\n[plugin.ratelimit]\nlimit = 1\n\
        window = 60.0\napi_key_header = \"x bad\"\n";
    let refused = RateLimitConfig::load(text, []).unwrap_err().to_string();
    assert!(refused.contains("api_key_header"), "{refused}");
}

#[tokio::test]
async fn a_handler_reads_the_decision_and_a_route_without_a_layer_says_so() {
    for store in stores().await {
        let told = |limited: Limited| async move {
            let (policy, decision) = (limited.policy(), limited.decision());
            format!("{} {}", policy.name(), decision.remaining().unwrap())
        };
        let maybe = |limited: Option<Limited>| async move { limited.is_some().to_string() };
        let app = Router::new()
            .route("/told", get(told))
            .route("/maybe", get(maybe))
            .layer(RateLimitLayer::new(&store.limit("api", "9/60s")))
            .route("/bare", get(told))
            .route("/free", get(maybe));
        let server = Server::start(app).await;
        assert_eq!(&server.get("/told").await.body[..], b"api 8");
        assert_eq!(&server.get("/maybe").await.body[..], b"true");
        assert_eq!(server.get("/bare").await.status, 500);
        assert_eq!(&server.get("/free").await.body[..], b"false");
    }
}

#[tokio::test]
async fn an_address_is_answered_alike_at_first_sight_and_after_all_has_been_looked_at() {
    for (plain, asking) in [
        (memory().await, memory().await),
        (redis().await, redis().await),
    ] {
        let app = |store: &Store, ask: bool| {
            let layer = RateLimitLayer::new(&store.limit("api", "3/60s"))
                .route(
                    "GET /own",
                    Rule::new(&store.limit("own", "2/60s")).scope(Scope::Route),
                )
                .route("/dear", Rule::new(&store.limit("dear", "5/60s")).cost(2))
                .exempt_method(Method::PUT)
                .headers(HeaderStyle::IETF | HeaderStyle::X_RATELIMIT);
            // What has to see all of the request is never at first sight.
            let layer = if ask {
                layer.exempt_if(|_| false)
            } else {
                layer
            };
            let told = |limited: Option<Limited>| async move {
                limited.map_or(String::new(), |limited| {
                    format!("{} {:?}", limited.policy().name(), limited.decision())
                })
            };
            ["/a", "/own", "/dear", "/health"]
                .into_iter()
                .fold(Router::new(), |app, path| app.route(path, any(told)))
                .layer(layer)
        };
        let servers = [
            Server::start(app(&plain, false)).await,
            Server::start(app(&asking, true)).await,
        ];
        let mut refused = 0;
        for path in ["/a", "/own", "/dear", "/health", "/nowhere"] {
            for method in [
                Method::GET,
                Method::PUT,
                Method::HEAD,
                Method::GET,
                Method::POST,
            ] {
                let [plain, asking] = &servers;
                let ask = |server: &Server| server.client(1);
                // Which a refusal would make up.
                let id: [(&str, &[u8]); 1] = [("x-request-id", b"one")];
                let first = ask(plain).send(method.clone(), path, &id).await;
                let second = ask(asking).send(method.clone(), path, &id).await;
                let seen = |answer: &Answer| {
                    let mut headers = answer.headers.clone();
                    headers.remove("date");
                    (answer.status, headers, answer.body.clone())
                };
                assert_eq!(seen(&first), seen(&second), "{method} {path}");
                refused += u16::from(first.status == 429);
            }
        }
        assert!(refused > 3, "{refused}");
        // And where the service does not know its peers.
        for (store, ask) in [(&plain, false), (&asking, true)] {
            let server = Server::blind(app(store, ask)).await;
            assert_eq!(server.get("/a").await.status, 500);
        }
    }
}
