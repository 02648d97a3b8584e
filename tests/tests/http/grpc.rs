//! A service of tonic with the layer around it.

use std::time::Duration;

use http::request::Parts;
use tokio::net::TcpListener;
use tollgate::http::{Identified, Identity, IdentitySource, RateLimitLayer};
use tollgate::{FailurePolicy, Limiter, Quota, RateLimit};
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{Answer, Client, stores};

/// The client as tonic's connections say it.
#[derive(Debug)]
struct TonicPeer;

impl IdentitySource for TonicPeer {
    fn identify_now(&self, request: &Parts) -> Option<Identified> {
        let info = request.extensions.get::<TcpConnectInfo>();
        let address = info.and_then(TcpConnectInfo::remote_addr);
        Some(match address {
            Some(address) => Identified::As(Identity::new("ip", address.ip().to_string())),
            None => Identified::Misconfigured("no address"),
        })
    }
}

fn layer(limit: &RateLimit) -> RateLimitLayer {
    RateLimitLayer::new(limit).identity(TonicPeer)
}

/// A server of tonic, and its address.
async fn serve(layer: RateLimitLayer) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = tonic::transport::Server::builder()
        .layer(layer)
        .add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

async fn check(address: std::net::SocketAddr) -> Result<(), Status> {
    let channel = tonic::transport::Endpoint::new(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    let service = String::new();
    client
        .check(HealthCheckRequest { service })
        .await
        .map(|_| ())
}

/// What is on the wire.
async fn raw(address: std::net::SocketAddr) -> Answer {
    let headers: [(&str, &[u8]); 2] = [("content-type", b"application/grpc"), ("te", b"trailers")];
    let path = "/grpc.health.v1.Health/Check";
    Client::new(address, 1, true)
        .send(http::Method::POST, path, &headers)
        .await
}

#[tokio::test]
async fn b136_a_grpc_client_is_told_resource_exhausted_with_when_to_retry() {
    for store in stores().await {
        let api = store.limit("api", "2/60s");
        let address = serve(layer(&api)).await;
        check(address).await.unwrap();
        check(address).await.unwrap();
        let status = check(address).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{}", store.name);
        assert_eq!(
            status.message(),
            "Rate limit of 2 request(s) per 60s exceeded."
        );
        assert_eq!(status.metadata().get("retry-after").unwrap(), "30");
        // google.rpc.Status: a RetryInfo with a delay of 30 s.
        let details = status.details();
        assert!(
            details.ends_with(b"google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x1e"),
            "{details:?}"
        );

        let raw = raw(address).await;
        assert_eq!(raw.status, 200, "trailers only");
        assert!(raw.body.is_empty());
        assert_eq!(raw.field("content-type"), "application/grpc");
        assert_eq!(raw.field("grpc-status"), "8");
        assert_eq!(raw.field("ratelimit"), r#""api";r=0;t=30"#);

        store.clock.advance(Duration::from_secs(30));
        check(address).await.unwrap();
        let address = serve(layer(&api).grpc_unavailable()).await;
        assert_eq!(check(address).await.unwrap_err().code(), Code::Unavailable);
    }
}

#[tokio::test]
async fn b136_a_store_that_is_down_is_unavailable_under_the_closed_policy() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    drop(listener);
    for (policy, code) in [
        (FailurePolicy::Closed, Code::Unavailable),
        (FailurePolicy::Open, Code::Ok),
    ] {
        let backend = tollgate::connect(&url).await.unwrap();
        let limiter = Limiter::builder(backend).on_failure(policy).build();
        let api = limiter
            .policy("api", Quota::parse_list("2/60s").unwrap())
            .unwrap();
        let address = serve(layer(&api)).await;
        let answered = check(address).await;
        assert_eq!(
            answered.err().map_or(Code::Ok, |status| status.code()),
            code
        );
    }
}

#[tokio::test]
async fn nobody_is_unauthenticated() {
    #[derive(Debug)]
    struct Nobody;
    impl IdentitySource for Nobody {
        fn identify_now(&self, _: &Parts) -> Option<Identified> {
            Some(Identified::Invalid("never"))
        }
    }
    let [memory, _] = stores().await;
    let layer = RateLimitLayer::new(&memory.limit("api", "2/60s")).identity(Nobody);
    assert_eq!(
        check(serve(layer).await).await.unwrap_err().code(),
        Code::Unauthenticated
    );
}
