//! A service of tonic whose callers get RESOURCE_EXHAUSTED with the time to wait:
//! `cargo run -p tollgate --features http --example grpc`. Ask it by `grpcurl`, or without:
//! `printf '\0\0\0\0\0' | curl -i --http2-prior-knowledge -H 'content-type: application/grpc' \
//!   -H 'te: trailers' --data-binary @- http://127.0.0.1:50051/grpc.health.v1.Health/Check`.

use http::request::Parts;
use tokio::net::TcpListener;
use tollgate::http::{RateLimitLayer, identify_by};
use tollgate::{Limiter, Quota};
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The caller's address, as tonic knows it.
fn address(request: &Parts) -> Option<String> {
    let peer = request.extensions.get::<TcpConnectInfo>()?.remote_addr()?;
    Some(peer.ip().to_string())
}

/// The health service of gRPC, which each address may ask 10 times a second. A service of your own
/// is added in the same way.
pub(crate) async fn serve(listener: TcpListener, limiter: Limiter) -> Result<(), Error> {
    let calls = limiter.policy("calls", Quota::parse_list("10/s")?)?;
    let layer = RateLimitLayer::new(&calls).identity(identify_by("ip", address));
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    Ok(server
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
    serve(TcpListener::bind("127.0.0.1:50051").await?, limiter).await
}
