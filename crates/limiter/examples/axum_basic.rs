//! Limits for a service of axum: `cargo run -p tollgate --features axum --example axum_basic`, then
//! `curl -i localhost:3000/search` eleven times.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tollgate::Limiter;
use tollgate::http::{Limited, RateLimitLayer};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// 100 a minute and client for each route; 10 for a search.
pub(crate) fn app(limiter: &Limiter) -> Result<Router, Error> {
    let layer = RateLimitLayer::new(limiter.rule("100/minute")?)
        .route("/search", limiter.rule("10/minute")?);
    Ok(Router::new()
        .route("/items/{id}", get(|| async { "an item" }))
        .route("/search", get(search))
        .layer(layer))
}

/// A handler may look at the decision.
async fn search(limited: Limited) -> String {
    let left = limited.decision().remaining().unwrap_or_default();
    format!("found; {left} searches left\n")
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    // "redis://127.0.0.1:6379" counts for every process of the service.
    let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let app = app(&limiter)?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
