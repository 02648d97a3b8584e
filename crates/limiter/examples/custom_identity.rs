//! Who is limited is the application's own affair: the tenant, by the host name, before the address.
//! `cargo run -p tollgate --features axum --example custom_identity`, then
//! `curl -i localhost:3000 -H 'host: acme.example'`.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use http::header::HOST;
use http::request::Parts;
use tollgate::http::{Identities, Ip, RateLimitLayer, identify_by};
use tollgate::{Limiter, Quota};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// `acme` of `acme.example:3000`; nothing for another host.
fn tenant(request: &Parts) -> Option<String> {
    let host = request.headers.get(HOST)?.to_str().ok()?;
    let (tenant, domain) = host.split_once('.')?;
    let domain = domain.split(':').next()?;
    (domain == "example").then(|| tenant.to_ascii_lowercase())
}

pub(crate) fn app(limiter: &Limiter) -> Result<Router, Error> {
    let api = limiter.policy("api", Quota::parse_list("3/minute")?)?;
    // The first that answers wins. The name keeps a tenant apart from an address of the same text.
    let identities = Identities::new()
        .then(identify_by("tenant", tenant))
        .then(Ip::default());
    Ok(Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(&api).identity(identities)))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let app = app(&limiter)?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
