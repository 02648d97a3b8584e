//! Each example is served on loopback, and does what it says.

#![allow(dead_code, reason = "an example is a program, too")]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

#[path = "../examples/api_keys.rs"]
mod api_keys;
#[path = "../examples/axum_basic.rs"]
mod axum_basic;
#[path = "../examples/custom_identity.rs"]
mod custom_identity;
#[path = "../examples/gpu_pool.rs"]
mod gpu_pool;
#[path = "../examples/grpc.rs"]
mod grpc;
#[path = "../examples/login.rs"]
mod login;
#[path = "../examples/streamed.rs"]
mod streamed;
#[path = "../examples/websocket.rs"]
mod websocket;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::Router;
use axum::body::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::testing::ManualClock;
use tollgate::{Limiter, Timestamp};

/// A limiter in virtual time, at an edge of every window up to a day.
async fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_micros(1_700_006_400_000_000));
    let backend = tollgate::connect("memory://").await.unwrap();
    (
        Limiter::builder(backend).clock(clock.clone()).build(),
        clock,
    )
}

/// Serves until the test's runtime ends.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The status that a request from 127.0.0.`from` is answered with, and a field of the answer.
async fn ask(from: u8, request: http::request::Builder, body: String) -> (u16, String) {
    let mut connector = HttpConnector::new();
    connector.set_local_address(Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, from))));
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let request = request.body(Full::<Bytes>::from(body)).unwrap();
    let response = client.request(request).await.unwrap();
    let left = response.headers().get_all("ratelimit").iter();
    let left: Vec<_> = left.map(|left| left.to_str().unwrap()).collect();
    (response.status().as_u16(), left.join(", "))
}

async fn get(url: String, headers: &[(&str, &str)]) -> (u16, String) {
    let request = http::Request::get(url);
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    ask(1, request, String::new()).await
}

#[tokio::test]
async fn axum_basic_limits_each_route_and_a_search_more() {
    let (limiter, _) = limiter().await;
    let server = serve(axum_basic::app(&limiter).unwrap()).await;
    for n in 0..10 {
        let (status, left) = get(format!("http://{server}/search"), &[]).await;
        assert_eq!(status, 200);
        assert!(
            left.starts_with(&format!("\"default\";r={};", 9 - n)),
            "{left}"
        );
    }
    assert_eq!(get(format!("http://{server}/search"), &[]).await.0, 429);
    for n in 0..100 {
        assert_eq!(get(format!("http://{server}/items/{n}"), &[]).await.0, 200);
    }
    assert_eq!(get(format!("http://{server}/items/7"), &[]).await.0, 429);
}

async fn attempt(server: SocketAddr, from: u8, account: &str, password: &str) -> u16 {
    let form = "application/x-www-form-urlencoded";
    let request =
        http::Request::post(format!("http://{server}/login")).header("content-type", form);
    let body = format!("account={account}&password={password}");
    ask(from, request, body).await.0
}

#[tokio::test]
async fn s99_the_login_counts_failures_for_the_account_and_for_the_address() {
    let (limiter, clock) = limiter().await;
    let server = serve(login::app(&limiter).unwrap()).await;
    // Right ones never count.
    for _ in 0..30 {
        assert_eq!(attempt(server, 1, "alice", "correct+horse").await, 200);
    }
    // Five spellings of one account, from as many addresses: full-width, capitals, spaces.
    let spellings = ["alice", "ALICE", "%EF%BD%81lice", "+alice+", "Al%C4%B1ce"];
    for (from, spelling) in (10..).zip(&spellings[..4]) {
        assert_eq!(attempt(server, from, spelling, "guess").await, 401);
    }
    assert_eq!(attempt(server, 14, "aLiCe", "guess").await, 401);
    assert_eq!(attempt(server, 15, "alice", "guess").await, 429);
    assert_eq!(
        attempt(server, 15, "alice", "correct+horse").await,
        429,
        "nor does a right one help"
    );
    // A dotless i is another letter, so another account.
    assert_eq!(attempt(server, 15, spellings[4], "guess").await, 401);
    // Twenty failures from one address, whatever the account.
    for n in 0..20 {
        assert_eq!(attempt(server, 2, &format!("user{n}"), "guess").await, 401);
    }
    assert_eq!(attempt(server, 2, "user99", "guess").await, 429);
    assert_eq!(
        attempt(server, 3, "user99", "guess").await,
        401,
        "another address"
    );
    clock.advance(std::time::Duration::from_secs(1_800));
    assert_eq!(attempt(server, 2, "alice", "correct+horse").await, 200);
}

#[tokio::test]
async fn s99_a_refused_account_is_told_when_to_come_back() {
    let (limiter, _) = limiter().await;
    let server = serve(login::app(&limiter).unwrap()).await;
    for _ in 0..5 {
        attempt(server, 1, "bob", "guess").await;
    }
    let form = "application/x-www-form-urlencoded";
    let request =
        http::Request::post(format!("http://{server}/login")).header("content-type", form);
    let (status, left) = ask(1, request, "account=bob&password=x".into()).await;
    assert_eq!(status, 429);
    assert!(
        left.contains("\"account\";r=0;") && left.contains("\"address\";r=14;"),
        "{left}"
    );
}

#[tokio::test]
async fn custom_identity_limits_tenants_before_addresses() {
    let (limiter, _) = limiter().await;
    let server = serve(custom_identity::app(&limiter).unwrap()).await;
    let hit = async |host| get(format!("http://{server}/"), &[("host", host)]).await.0;
    for status in [200, 200, 200, 429] {
        assert_eq!(hit("acme.example").await, status);
    }
    assert_eq!(hit("ACME.example:80").await, 429, "the same tenant");
    assert_eq!(hit("globex.example").await, 200);
    assert_eq!(hit("127.0.0.1").await, 200, "by address");
}

#[tokio::test]
async fn api_keys_have_plans_and_some_are_refused() {
    let (limiter, _) = limiter().await;
    let server = serve(api_keys::app(&limiter).unwrap()).await;
    let hit = async |key| get(format!("http://{server}/"), &[("x-api-key", key)]).await;
    assert_eq!(hit("free-key").await, (200, "\"free\";r=99;t=36".into()));
    assert_eq!(hit("pro-key").await, (200, "\"pro\";r=4999;t=1".into()));
    assert_eq!(hit("stolen-key").await.0, 403);
    assert_eq!(hit("unknown-key").await.0, 401);
    assert_eq!(get(format!("http://{server}/"), &[]).await.0, 401);
}

#[tokio::test]
async fn websocket_limits_connections_and_messages() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;
    let (limiter, _) = limiter().await;
    let server = serve(websocket::app(&limiter).unwrap()).await;
    let connect = async || tokio_tungstenite::connect_async(format!("ws://{server}/echo")).await;
    let (mut socket, _) = connect().await.unwrap();
    for _ in 0..20 {
        socket.send("hello".into()).await.unwrap();
        assert_eq!(
            socket.next().await.unwrap().unwrap(),
            Message::from("hello")
        );
    }
    socket.send("hello".into()).await.unwrap();
    let closed = |message| match message {
        Message::Close(Some(frame)) => (u16::from(frame.code), frame.reason.to_string()),
        other => panic!("{other:?}"),
    };
    let (code, reason) = closed(socket.next().await.unwrap().unwrap());
    assert_eq!(
        (code, &*reason),
        (1008, "rate limit exceeded, retry after 3s")
    );
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(connect().await.unwrap());
    }
    // The sixth is accepted, and closed at once.
    let (mut socket, _) = connect().await.unwrap();
    assert_eq!(closed(socket.next().await.unwrap().unwrap()).0, 1008);
}

#[tokio::test]
async fn grpc_callers_are_told_resource_exhausted() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    let (limiter, clock) = limiter().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(grpc::serve(listener, limiter));
    let channel = tonic::transport::Endpoint::new(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    let mut check = async || {
        let service = String::new();
        client.check(HealthCheckRequest { service }).await
    };
    for _ in 0..10 {
        check().await.unwrap();
    }
    let status = check().await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert_eq!(status.metadata().get("retry-after").unwrap(), "1");
    clock.advance(std::time::Duration::from_millis(100));
    check().await.unwrap();
}

#[tokio::test]
async fn gpu_pool_runs_every_job_once_and_four_at_a_time() {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};
    // In real time: consumers wait for each other.
    let limiter = Limiter::builder(tollgate::connect("memory://").await.unwrap()).build();
    let gpus = gpu_pool::pool(&limiter).unwrap();
    let (jobs, queue) = tokio::sync::mpsc::channel(100);
    let queue = Arc::new(tokio::sync::Mutex::new(queue));
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let done = Arc::new(Mutex::new(Vec::new()));
    let mut consumers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (running, most, done) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&done));
        let render = move |job| {
            let (running, most, done) =
                (Arc::clone(&running), Arc::clone(&most), Arc::clone(&done));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                done.lock().unwrap().push(job);
            }
        };
        consumers.spawn(gpu_pool::consume(gpus.clone(), Arc::clone(&queue), render));
    }
    for job in 0..40 {
        jobs.send(job).await.unwrap();
    }
    drop(jobs);
    consumers.join_all().await;
    let mut done = done.lock().unwrap().clone();
    done.sort_unstable();
    assert_eq!(done, (0..40).collect::<Vec<_>>());
    assert_eq!(most.load(Ordering::SeqCst), 4);
    assert_eq!(gpus.in_use("all").await.unwrap(), 0);
}

#[tokio::test]
async fn streamed_answers_have_a_slot_to_their_last_word() {
    use http_body_util::{BodyExt, Empty};
    let (limiter, _) = limiter().await;
    let server = serve(streamed::app(&limiter).unwrap()).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let open = async || {
        let url = format!("http://{server}/complete").parse().unwrap();
        client.get(url).await.unwrap()
    };
    let (first, second) = (open().await, open().await);
    assert_eq!(
        (first.status().as_u16(), second.status().as_u16()),
        (200, 200)
    );
    // Nobody reads the first two to their end yet, which takes half a second: the third waits.
    let (third, text) = tokio::join!(open(), async {
        let _ = first.into_body().collect().await.unwrap();
        second.into_body().collect().await.unwrap().to_bytes()
    });
    assert_eq!(text, "each word keeps its slot\n");
    assert_eq!(third.status(), 200);
    let held: Vec<_> = [open().await].into();
    assert_eq!(open().await.status(), 200, "it waited for the third");
    drop((third, held));
}

#[test]
fn every_example_is_at_most_60_lines() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut examples = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 60, "{}: {lines} lines", path.display());
        examples += 1;
    }
    assert!(examples >= 8, "only {examples} examples");
}
