//! `/v1`: decisions for services in any language, and for proxies.

mod check;
mod forward_auth;

use axum::Router;
use axum::routing::{get, post};

use crate::admin::Shared;
pub(crate) use check::{CheckAnswer, CheckRequest, PATH as CHECK, answer as check};

/// The routes below `/v1`.
pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route(CHECK, post(check::check))
        .route("/v1/forward-auth", get(forward_auth::ask))
}
