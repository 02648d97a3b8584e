//! Password guessing is slowed down: 5 failures for an account and 20 for an address in 15 minutes.
//! `cargo run -p tollgate --features axum --example login`, then
//! `curl -i localhost:3000/login -d account=alice -d password=x`.

use std::net::SocketAddr;

use axum::extract::{Form, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use serde::Deserialize;
use tollgate::http::{RateLimitLayer, Refusal, Rule};
use tollgate::{Limiter, Quota, RateLimit};
use unicode_normalization::UnicodeNormalization;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Deserialize)]
pub(crate) struct Login {
    account: String,
    password: String,
}

/// All spellings of an account are one.
pub(crate) fn normalised(account: &str) -> String {
    let account: String = account.nfkc().collect();
    caseless::default_case_fold_str(account.trim())
}

async fn login(State(accounts): State<RateLimit>, Form(login): Form<Login>) -> Response {
    let account = normalised(&login.account);
    // Charged before the password is looked at, so that guesses at the same time all count.
    match accounts.acquire(&account).await {
        Ok(decision) if !decision.allowed() => Refusal::new(&accounts, decision).into_response(),
        Ok(decision) if account == "alice" && login.password == "correct horse" => {
            // Not a failure. If the store is gone it stays counted, and expires.
            let _ = accounts.refund(&account, &decision).await;
            "welcome\n".into_response()
        }
        _ => (StatusCode::UNAUTHORIZED, "wrong account or password\n").into_response(),
    }
}

pub(crate) fn app(limiter: &Limiter) -> Result<Router, Error> {
    let accounts = limiter.policy("account", Quota::parse_list("5/15m sliding_log")?)?;
    let addresses = limiter.policy("address", Quota::parse_list("20/15m sliding_log")?)?;
    let failures = Rule::new(&addresses).refund_when(|response| response.status.is_success());
    let route = post(login).layer(RateLimitLayer::new(failures));
    Ok(Router::new().route("/login", route).with_state(accounts))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let app = app(&limiter)?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
