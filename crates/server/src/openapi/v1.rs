//! `/v1`.

#![expect(dead_code, reason = "these are read by a macro only")]

use super::Problem;
use super::rules::Invalid;
use crate::v1::{CheckAnswer, CheckRequest};

/// Decide for a service that enforces it itself
///
/// A refusal is an answer of 200 too: `allowed` says it.
#[utoipa::path(post, path = "/v1/check", tag = "decisions", operation_id = "check",
    request_body(content = CheckRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "The decision", body = CheckAnswer),
        (status = 400, description = "Every fault of the body", body = Invalid, content_type = "application/problem+json"),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "A page of another origin asks", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "No decision could be made", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store does not answer, and the policy is to refuse", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn check() {}

/// Decide for a proxy whether a request may pass
///
/// Only trusted proxies may ask: they are known by their addresses, and what they say in
/// `X-Forwarded-*` is believed.
#[utoipa::path(get, path = "/v1/forward-auth", tag = "decisions", operation_id = "forward_auth",
    security(()),
    params(
        ("deny" = Option<u16>, Query, description = "403 for nginx, which passes nothing else on; 429 unless given"),
        ("X-Forwarded-Uri" = Option<String>, Header, description = "What is asked for; or X-Original-URI"),
        ("X-Forwarded-Method" = Option<String>, Header, description = "How; GET unless given"),
    ),
    responses(
        (status = 200, description = "It may pass"),
        (status = 400, description = "The proxy does not say what is asked for", body = Problem, content_type = "application/problem+json"),
        (status = 401, description = "The credential of the request is not valid", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "It may not pass, with deny=403; or no trusted proxy asks", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "It may not pass", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "No decision could be made", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store does not answer, and the policy is to refuse", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn forward_auth() {}
