//! API keys with plans: `cargo run -p tollgate --features axum --example api_keys`, then
//! `curl -i localhost:3000 -H 'x-api-key: free-key'`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tollgate::http::{ApiKeys, Plans, RateLimitLayer};
use tollgate::{Limiter, Quota};

type Error = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn app(limiter: &Limiter) -> Result<Router, Error> {
    // Only digests are kept: `ApiKeys::with_list` reads them from a file.
    let keys = ApiKeys::new("x-api-key")
        .ok_or("no name of a header")?
        .with(ApiKeys::digest("free-key"), "alice", None)
        .with(ApiKeys::digest("pro-key"), "acme", Some("pro"))
        .with(ApiKeys::digest("stolen-key"), "mallory", None);
    let free = limiter.policy("free", Quota::parse_list("100/h")?)?;
    let pro = limiter.policy("pro", Quota::parse_list("5000/h")?)?;
    let plans = Plans::new()
        .plan("pro", Arc::new(pro))
        .deny("api_key", "mallory");
    // No key, or one that is not known: 401.
    let layer = RateLimitLayer::new(&free).identity(keys).plans(plans);
    Ok(Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(layer))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let app = app(&limiter)?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
