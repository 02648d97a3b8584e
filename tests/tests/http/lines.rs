//! Lines of the contract that speak of counting and of stores, as a client of HTTP sees them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::routing::get;
use http::Method;
use tokio::sync::Mutex;
use tollgate::http::{Header, Identities, Identity, Ip, RateLimitLayer, Ready, Subject, Tenant};
use tollgate::redis::{RedisBackend, RedisExecutor, ScriptCall, error_kind};
use tollgate::testing::Recorder;
use tollgate::{
    BackendError, Clock as _, ErrorKind, FailurePolicy, Limiter, ManualClock, Probe, Quota,
    RateLimit, SharedBackend,
};
use tollgate_testkit::{FaultProxy, RedisClient, RedisServer, Reply, wait_until};

use crate::log::Log;
use crate::support::{Answer, Client, PATIENT, Server, Store, T0, statuses, stores};

fn app(layer: RateLimitLayer) -> Router {
    Router::new()
        .route("/a", get(|| async { "a" }))
        .layer(layer)
}

async fn serve(limit: &RateLimit) -> Server {
    Server::start(app(RateLimitLayer::new(limit))).await
}

async fn many(client: &Client, count: usize) -> Vec<u16> {
    statuses(client, &vec!["/a"; count]).await
}

/// The application's own client: one connection, one command at a time.
#[derive(Debug)]
struct Ours(Mutex<RedisClient>);

impl Ours {
    async fn call(&self, words: &[Vec<u8>]) -> Result<Vec<i64>, BackendError> {
        let reply = self.0.lock().await.call(words).await;
        match reply.map_err(|_| BackendError::new(ErrorKind::Unavailable, "lost"))? {
            Reply::Integer(number) => Ok(vec![number]),
            Reply::Array(items) => Ok(items.iter().filter_map(Reply::integer).collect()),
            Reply::Error(text) => Err(BackendError::new(error_kind(&text), text)),
            _ => Ok(Vec::new()),
        }
    }
}

impl RedisExecutor for Ours {
    async fn run(&self, call: ScriptCall<'_>) -> Result<Vec<i64>, BackendError> {
        let words = |command: &str, script: &str| {
            let head = [
                command.as_bytes(),
                script.as_bytes(),
                b"1",
                call.key.as_bytes(),
            ];
            let mut words: Vec<Vec<u8>> = head.into_iter().map(Into::into).collect();
            words.extend(call.args.iter().map(<[u8]>::to_vec));
            words
        };
        match self.call(&words("EVALSHA", call.script.sha())).await {
            Err(error) if error.to_string().contains("NOSCRIPT") => {
                self.call(&words("EVAL", call.script.source())).await
            }
            answer => answer,
        }
    }
}

#[tokio::test]
async fn s3_the_layer_counts_over_the_applications_own_connection() {
    let redis = RedisServer::start().await;
    let client = redis.client().await.unwrap();
    let backend = SharedBackend::new(RedisBackend::with_executor(Ours(Mutex::new(client))));
    let store = Store::over("redis", String::new(), backend);
    let server = serve(&store.limit("api", "3/60s")).await;
    assert_eq!(many(&server.client(1), 5).await, [200, 200, 200, 429, 429]);
    assert_eq!(many(&server.client(2), 1).await, [200]);
    let list = redis.command(&["CLIENT", "LIST"]).await.text().unwrap();
    // The application's, and the one that asks.
    let connections = list.lines().filter(|line| !line.is_empty()).count();
    assert_eq!(connections, 2, "{list}");
}

#[tokio::test]
async fn s6_s7_a_bucket_refills_steadily_up_to_a_burst_of_its_own() {
    for store in stores().await {
        let limit = store.limit("api", "60/60s burst=3");
        let server = serve(&limit).await;
        let client = server.client(1);
        assert_eq!(many(&client, 4).await, [200, 200, 200, 429]);
        // One a second, and no edge of a window at which there is more.
        for second in 1..=5 {
            store.clock.advance(Duration::from_secs(1));
            assert_eq!(
                many(&client, 2).await,
                [200, 429],
                "{} {second}",
                store.name
            );
        }
        store.clock.advance(Duration::from_secs(600));
        assert_eq!(many(&client, 4).await, [200, 200, 200, 429]);
    }
}

#[tokio::test]
async fn s8_one_record_is_kept_for_each_identity_however_often_it_asks() {
    let redis = RedisServer::start().await;
    let backend = tollgate::connect(&redis.url()).await.unwrap();
    let store = Store::over("redis", String::new(), backend);
    let server = serve(&store.limit("api", "5/60s")).await;
    for last in 1..=3 {
        many(&server.client(last), 9).await;
    }
    assert_eq!(redis.command(&["DBSIZE"]).await.integer(), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s9_s12_s85_requests_at_once_to_two_processes_are_admitted_exactly() {
    for store in stores().await {
        for (name, quota) in [
            ("bucket", "50/h"),
            ("window", "50/h sliding_window"),
            ("log", "50/h sliding_log"),
            ("fixed", "50/h fixed_window"),
        ] {
            // Each server is as another process: what they share is the store.
            let limit = store.limit(name, quota);
            let servers = [serve(&limit).await, serve(&limit).await];
            let mut tasks = Vec::new();
            for i in 0..40 {
                let client = servers[i % 2].client(1);
                tasks.push(tokio::spawn(async move { many(&client, 3).await }));
            }
            let mut admitted = 0;
            for task in tasks {
                let seen = task.await.unwrap();
                assert!(seen.iter().all(|it| matches!(it, 200 | 429)), "{seen:?}");
                admitted += seen.iter().filter(|it| **it == 200).count();
            }
            assert_eq!(admitted, 50, "{} {name}", store.name);
        }
    }
}

#[tokio::test]
async fn s10_s88_windows_follow_the_clock_of_the_store_and_not_of_the_caller() {
    let redis = RedisServer::start().await;
    let backend = tollgate::connect(&redis.url()).await.unwrap();
    // No virtual time: the server's own.
    let limiter = Limiter::builder(backend)
        .timeout(Duration::from_secs(20))
        .build();
    let quota = Quota::parse_list("5/h fixed_window").unwrap();
    let server = serve(&limiter.policy("api", quota).unwrap()).await;
    let answer = server.get("/a").await;
    let time = redis.command(&["TIME"]).await;
    let Reply::Array(time) = time else {
        panic!("{time:?}")
    };
    let now: u64 = time[0].clone().text().unwrap().parse().unwrap();
    let field = answer.field("ratelimit");
    let (_, told) = field.split_once(";t=").unwrap();
    let left = 3600 - now % 3600;
    let told: u64 = told.parse().unwrap();
    assert!(
        told.abs_diff(left) <= 20 || told.abs_diff(left) >= 3580,
        "{told} {left}"
    );
}

#[tokio::test]
async fn s88_windows_are_aligned_to_the_epoch() {
    for store in stores().await {
        let limit = store.limit("api", "3/60s fixed_window");
        let server = serve(&limit).await;
        let client = server.client(1);
        // T0 is an edge; 50 s into the window there are 10 s left, whoever came first.
        store.clock.advance(Duration::from_secs(50));
        assert_eq!(many(&client, 4).await, [200, 200, 200, 429]);
        let refused = client.get("/a").await;
        assert_eq!(refused.field("retry-after"), "10", "{}", store.name);
        store.clock.advance(Duration::from_secs(10));
        assert_eq!(many(&client, 1).await, [200]);
    }
}

/// Authentication of the application, which says who and for whom.
async fn authenticate(
    mut request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    let (subject, tenant) = {
        let text = |name: &str| {
            let value = request.headers().get(name)?;
            Some(value.to_str().ok()?.to_owned())
        };
        (text("x-test-subject"), text("x-test-tenant"))
    };
    if let Some(subject) = subject {
        request.extensions_mut().insert(Subject::new(subject));
    }
    if let Some(tenant) = tenant {
        request.extensions_mut().insert(Tenant::new(tenant));
    }
    next.run(request).await
}

async fn with(client: &Client, headers: &[(&str, &[u8])]) -> u16 {
    client
        .send(Method::GET, "/a", headers)
        .await
        .status
        .as_u16()
}

#[tokio::test]
async fn s13_s14_s15_the_most_specific_source_that_answers_counts() {
    let (alice, bob): ((&str, &[u8]), _) = (
        ("x-test-subject", b"alice"),
        ("x-test-subject", &b"bob"[..]),
    );
    let acme: (&str, &[u8]) = ("x-test-tenant", b"acme");
    let key: (&str, &[u8]) = ("x-api-key", b"k-1");
    for store in stores().await {
        let all = Identities::new()
            .then(Subject::source())
            .then(Tenant::source())
            .then(Header::api_key("x-api-key").unwrap())
            .then(Ip::default());
        let layer = RateLimitLayer::new(&store.limit("api", "1/60s"));
        let app = |sources: Identities| {
            app(layer.clone().identity(sources)).layer(axum::middleware::from_fn(authenticate))
        };
        let server = Server::start(app(all)).await;
        let (one, two) = (server.client(1), server.client(2));
        // The subject, whatever else is there.
        assert_eq!(with(&one, &[alice, acme, key]).await, 200);
        assert_eq!(with(&two, &[alice]).await, 429);
        assert_eq!(with(&one, &[bob, acme]).await, 200);
        // Anonymous traffic of a tenant spends the tenant's budget.
        assert_eq!(with(&one, &[acme]).await, 200);
        assert_eq!(with(&two, &[acme, key]).await, 429);
        // Then the key, then the address.
        assert_eq!(with(&one, &[key]).await, 200);
        assert_eq!(with(&two, &[key]).await, 429);
        assert_eq!(with(&two, &[]).await, 200);
        assert_eq!(with(&two, &[]).await, 429);
        // Without the tenant and the header's name, both are nothing.
        let few = Identities::new()
            .then(Subject::source())
            .then(Ip::default());
        let server = Server::start(app(few)).await;
        let three = server.client(3);
        assert_eq!(with(&three, &[acme, key]).await, 200);
        assert_eq!(
            with(&three, &[("x-test-tenant", b"other")]).await,
            429,
            "{}",
            store.name
        );
    }
}

#[tokio::test]
async fn s16_only_the_attribute_of_a_middleware_is_the_client() {
    use tollgate::http::ClientIp;
    let resolve = |mut request: axum::extract::Request, next: axum::middleware::Next| async move {
        let claimed = request.headers().get("x-real-client").cloned();
        if let Some(claimed) = claimed {
            let address = claimed.to_str().unwrap().parse().unwrap();
            request.extensions_mut().insert(ClientIp(address));
        }
        next.run(request).await
    };
    for store in stores().await {
        let layer = RateLimitLayer::new(&store.limit("api", "1/60s"));
        let server = Server::start(app(layer).layer(axum::middleware::from_fn(resolve))).await;
        let client = server.client(1);
        let forwarded: (&str, &[u8]) = ("x-forwarded-for", b"203.0.113.1");
        assert_eq!(with(&client, &[forwarded]).await, 200);
        assert_eq!(
            with(&client, &[("x-forwarded-for", b"203.0.113.2")]).await,
            429
        );
        assert_eq!(
            with(&client, &[("x-real-client", b"203.0.113.1"), forwarded]).await,
            200
        );
        assert_eq!(
            with(&client, &[("x-real-client", b"203.0.113.1")]).await,
            429
        );
    }
}

#[tokio::test]
async fn s26_the_reset_is_until_full_and_retry_after_until_one_fits() {
    use tollgate::http::HeaderStyle;
    for store in stores().await {
        let limit = store.limit("api", "3/60s");
        let layer = RateLimitLayer::new(&limit).headers(HeaderStyle::TRIPLE);
        let server = Server::start(app(layer)).await;
        let client = server.client(1);
        let told = |answer: &Answer| {
            let field = |name| answer.field(name);
            (
                field("ratelimit-remaining"),
                field("ratelimit-reset"),
                field("retry-after"),
            )
        };
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(told(&client.get("/a").await));
        }
        let text = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        let expected = [
            ("2", "20", ""),
            ("1", "40", ""),
            ("0", "60", ""),
            ("0", "60", "20"),
        ];
        assert_eq!(
            seen,
            expected.map(|(a, b, c)| text(a, b, c)),
            "{}",
            store.name
        );
        // Just before it fits a wait is a second still, and never 0.
        store.clock.advance(Duration::from_micros(19_999_999));
        assert_eq!(client.get("/a").await.field("retry-after"), "1");
        store.clock.advance(Duration::from_micros(1));
        assert_eq!(client.get("/a").await.status, 200);
    }
}

/// What an application keeps.
#[derive(Clone)]
struct App {
    api: RateLimit,
    ready: Ready,
}

impl FromRef<App> for RateLimit {
    fn from_ref(app: &App) -> Self {
        app.api.clone()
    }
}

impl FromRef<App> for Ready {
    fn from_ref(app: &App) -> Self {
        app.ready.clone()
    }
}

#[tokio::test]
async fn s27_s28_s29_s95_while_the_store_is_down_requests_pass_or_not_and_ready_says_so() {
    let redis = RedisServer::start().await;
    for (policy, status, detail) in [
        (
            FailurePolicy::Open,
            200,
            "failing open: rate limit backend unreachable, no limit is being enforced",
        ),
        (
            FailurePolicy::Closed,
            503,
            "failing closed: rate limit backend unreachable, requests are refused",
        ),
    ] {
        let log = Log::new(tracing::Level::WARN);
        let proxy = FaultProxy::start(redis.address()).await;
        let url = proxy.url();
        let backend = tollgate::connect(&url);
        let limiter = Limiter::builder(backend.await.unwrap())
            .timeout(Duration::from_millis(500))
            .on_failure(policy)
            .build();
        let name = format!("api-{policy}");
        let api = limiter
            .policy(&name, Quota::parse_list("100/h").unwrap())
            .unwrap();
        let state = App {
            ready: Ready::new(Probe::new(limiter.clone())),
            api: api.clone(),
        };
        let left = |State(api): State<RateLimit>| async move {
            let peek = api.peek("nobody").await.unwrap();
            format!("{:?}", peek.remaining())
        };
        let app = Router::new()
            .route("/a", get(|| async { "a" }))
            .route("/left", get(left))
            .route("/ready", get(tollgate::http::ready))
            .route("/report", get(tollgate::http::health_report))
            .layer(RateLimitLayer::new(&api))
            .with_state(state);
        let server = Server::start(app).await;
        assert_eq!(&server.get("/left").await.body[..], b"Some(100)");
        let ok = r#"{"status":"ok","checks":{"ratelimit":{"healthy":true,"critical":false,"detail":"enforcing","meta":{"enforcing":true}}}}"#;
        let ready = server.get("/ready").await;
        assert_eq!(
            (ready.status.as_u16(), &ready.body[..]),
            (200, ok.as_bytes())
        );
        assert_eq!(server.get("/report").await.json()["enforcing"], true);

        proxy.refuse().await;
        for _ in 0..3 {
            let answer = server.get("/a").await;
            assert_eq!(answer.status, status, "{policy}");
            if status == 503 {
                assert_eq!(answer.field("content-type"), "application/problem+json");
                assert!(answer.field("retry-after").parse::<u64>().unwrap() >= 1);
            }
        }
        assert!(log.count("WARN") >= 1, "{}", log.text());
        // What the last probe found stands for a moment; the requests have shown otherwise.
        let ready = server.get("/ready").await;
        let degraded = format!(
            r#"{{"status":"degraded","checks":{{"ratelimit":{{"healthy":false,"critical":false,"detail":"{detail}","meta":{{"enforcing":false}}}}}}}}"#
        );
        assert_eq!(ready.status, 200);
        assert_eq!(std::str::from_utf8(&ready.body).unwrap(), degraded);

        proxy.restore().await;
        wait_until("it enforces again", PATIENT, async || {
            limiter.ping().await.is_ok() && server.get("/ready").await.body == ok
        })
        .await;
        let answer = server.get("/a").await;
        assert!(answer.headers.contains_key("ratelimit"), "{answer:?}");
    }
}

#[tokio::test]
async fn s83_nobody_doubles_the_limit_at_the_edge_of_a_window() {
    for store in stores().await {
        let server = serve(&store.limit("api", "10/60s sliding_window")).await;
        let client = server.client(1);
        store.clock.advance(Duration::from_secs(59));
        assert_eq!(
            many(&client, 11)
                .await
                .iter()
                .filter(|it| **it == 200)
                .count(),
            10
        );
        // The next window begins, and the last one still counts in it.
        store.clock.advance(Duration::from_secs(1));
        assert_eq!(many(&client, 1).await, [429]);
        store.clock.advance(Duration::from_secs(30));
        let admitted = many(&client, 10)
            .await
            .iter()
            .filter(|it| **it == 200)
            .count();
        assert_eq!(admitted, 5, "{}", store.name);
    }
}

#[tokio::test]
async fn s84_what_is_refused_does_not_count() {
    for store in stores().await {
        for quota in ["2/60s", "2/60s sliding_log", "2/60s fixed_window"] {
            let server = serve(&store.limit(quota, quota)).await;
            let client = server.client(1);
            assert_eq!(many(&client, 2).await, [200, 200]);
            for _ in 0..6 {
                store.clock.advance(Duration::from_secs(4));
                assert_eq!(many(&client, 2).await, [429, 429], "{} {quota}", store.name);
            }
            store.clock.advance(Duration::from_secs(36));
            assert_eq!(many(&client, 2).await, [200, 200], "{} {quota}", store.name);
            // Back to an edge.
            let now = store.clock.now().saturating_since(T0).as_secs();
            store.clock.advance(Duration::from_secs(600 - now % 600));
        }
    }
}

#[tokio::test]
async fn s86_s87_who_has_nothing_left_is_refused_without_the_store_until_that_is_forgotten() {
    for store in stores().await {
        // A limiter of its own, whose store writes down what it is asked.
        let recorder = Recorder::new(store.limiter.backend().clone());
        let clock = ManualClock::new(T0);
        let limiter = Limiter::builder(recorder.clone())
            .timeout(Duration::from_secs(20))
            .clock(clock.clone())
            .build();
        let limit = limiter
            .policy("api", Quota::parse_list("2/60s").unwrap())
            .unwrap();
        let server = serve(&limit).await;
        let client = server.client(1);
        assert_eq!(many(&client, 3).await, [200, 200, 429]);
        let asked = recorder.calls().len();
        let refused = client.get("/a").await;
        assert_eq!(
            (refused.status.as_u16(), refused.field("retry-after")),
            (429, "30".into())
        );
        assert_eq!(many(&client, 20).await, [429; 20]);
        assert_eq!(
            recorder.calls().len(),
            asked,
            "{}: a flood reaches nobody",
            store.name
        );
        // Another client is asked for.
        assert_eq!(many(&server.client(2), 1).await, [200]);
        assert_eq!(recorder.calls().len(), asked + 1);
        // Forgotten, or reset behind its back: the store is asked again.
        let identity = Identity::new("ip", "127.0.0.1").into_key();
        store.limit("api", "2/60s").reset(&identity).await.unwrap();
        assert_eq!(many(&client, 1).await, [429]);
        limiter.forget();
        assert_eq!(many(&client, 1).await, [200]);
        assert_eq!(recorder.calls().len(), asked + 2);
        // And when something fits again.
        assert_eq!(many(&client, 2).await, [200, 429]);
        clock.advance(Duration::from_secs(30));
        assert_eq!(many(&client, 1).await, [200]);
    }
}

#[tokio::test]
async fn s94_what_is_remembered_can_be_cleared_and_the_counters_stay() {
    for store in stores().await {
        let server = serve(&store.limit("api", "2/60s")).await;
        let client = server.client(1);
        assert_eq!(many(&client, 3).await, [200, 200, 429]);
        store.limiter.forget();
        assert_eq!(many(&client, 2).await, [429, 429], "{}", store.name);
        // A process that starts now remembers nothing, and counts on.
        let other = Limiter::builder(store.limiter.backend().clone())
            .clock(store.clock.clone())
            .build();
        let limit = other
            .policy("api", Quota::parse_list("2/60s").unwrap())
            .unwrap();
        assert_eq!(many(&serve(&limit).await.client(1), 1).await, [429]);
    }
}

#[tokio::test]
async fn ready_tells_of_a_broken_rule_file_and_drains() {
    let [memory, _] = stores().await;
    let broken = Arc::new(std::sync::Mutex::new(None::<String>));
    let look = Arc::clone(&broken);
    let ready = Ready::new(Probe::new(memory.limiter.clone()))
        .with_rules(move || look.lock().unwrap().clone());
    let server = Server::start(ready.router()).await;
    assert_eq!(server.get("/ready").await.json()["status"], "ok");
    *broken.lock().unwrap() = Some("rules.toml, line 3: no limit".into());
    let told = server.get("/ready").await;
    assert_eq!(
        (told.status.as_u16(), &told.json()["status"]),
        (200, &"degraded".into())
    );
    let rules = &told.json()["checks"]["rules"];
    assert_eq!(rules["healthy"], false);
    assert_eq!(rules["detail"], "rules.toml, line 3: no limit");
    *broken.lock().unwrap() = None;
    assert_eq!(server.get("/ready").await.json()["status"], "ok");
    ready.drain();
    let head = server.client(1).send(Method::HEAD, "/ready", &[]).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (503, 0));
}
