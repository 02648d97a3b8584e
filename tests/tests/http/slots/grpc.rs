//! A service of tonic with slots around it.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tollgate::http::ConcurrencyLayer;
use tollgate::{FailurePolicy, Limiter};
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{in_use, limit};
use crate::support::stores;

type Client = HealthClient<tonic::transport::Channel>;

async fn serve(layer: ConcurrencyLayer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (reporter, health) = tonic_health::server::health_reporter();
    let server = tonic::transport::Server::builder()
        .layer(layer)
        .add_service(health);
    tokio::spawn(async move {
        let _reporter = reporter;
        server
            .serve_with_incoming(TcpIncoming::from(listener))
            .await
    });
    address
}

async fn client(address: SocketAddr) -> Client {
    let channel = tonic::transport::Endpoint::new(format!("http://{address}")).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

fn request() -> HealthCheckRequest {
    HealthCheckRequest {
        service: String::new(),
    }
}

async fn check(address: SocketAddr) -> Result<(), Status> {
    client(address).await.check(request()).await.map(|_| ())
}

#[tokio::test]
async fn a_stream_has_its_slot_and_who_finds_none_is_told_resource_exhausted() {
    for store in stores().await {
        let ocr = limit(&store, 1);
        let layer = ConcurrencyLayer::new(&ocr);
        let address = serve(layer.clone()).await;
        check(address).await.unwrap();
        check(address).await.unwrap();
        // A stream that goes on until its client leaves.
        let mut watching = client(address)
            .await
            .watch(request())
            .await
            .unwrap()
            .into_inner();
        assert!(watching.message().await.unwrap().is_some());
        let status = check(address).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{}", store.name);
        assert_eq!(status.message(), "All 1 slot(s) are in use.");
        assert_eq!(status.metadata().get("retry-after").unwrap(), "1");
        // google.rpc.Status: a RetryInfo with a delay of 1 s.
        let details = status.details();
        assert!(
            details.ends_with(b"google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x01"),
            "{details:?}"
        );
        let other = serve(layer.grpc_unavailable()).await;
        assert_eq!(check(other).await.unwrap_err().code(), Code::Unavailable);
        drop(watching);
        in_use(&ocr, 0).await;
        check(address).await.unwrap();
    }
}

#[tokio::test]
async fn s111_a_store_that_is_down_is_unavailable_under_the_closed_policy() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    drop(listener);
    for (policy, code) in [
        (FailurePolicy::Closed, Code::Unavailable),
        (FailurePolicy::Open, Code::Ok),
    ] {
        let backend = tollgate::connect(&url).await.unwrap();
        let limiter = Limiter::builder(backend).on_failure(policy).build();
        let address = serve(limiter.in_flight(2).layer().unwrap()).await;
        let answered = check(address).await;
        assert_eq!(
            answered.err().map_or(Code::Ok, |status| status.code()),
            code
        );
    }
}
