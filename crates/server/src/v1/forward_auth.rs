//! `/v1/forward-auth`: whether a request that came to a proxy may pass, for nginx, Caddy, Traefik.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{HeaderMap, HeaderName};
use http::request::Parts;
use http::{Method, StatusCode, Uri};
use serde::Deserialize;

use crate::admin::{Caller, Failed, Shared, query};
use crate::engine::Intent;

/// Where proxies tell the method and the target of the request that they ask about.
const METHODS: [HeaderName; 2] = [
    HeaderName::from_static("x-forwarded-method"),
    HeaderName::from_static("x-original-method"),
];
const TARGETS: [HeaderName; 2] = [
    HeaderName::from_static("x-forwarded-uri"),
    HeaderName::from_static("x-original-uri"),
];

#[derive(Deserialize)]
struct Parameters {
    deny: Option<u16>,
}

/// Who calls was looked at before: only trusted proxies come here, and what they say is believed.
pub(super) async fn ask(
    State(Shared { engine, .. }): State<Shared>,
    Extension(caller): Extension<Caller>,
    request: axum::extract::Request,
) -> Result<Response, Failed> {
    let (mut parts, _) = request.into_parts();
    let Parameters { deny } = query(&parts.uri)?;
    let deny = match deny {
        None | Some(429) => None,
        Some(403) => Some(StatusCode::FORBIDDEN),
        Some(_) => return Err(Failed::bad("deny: write 403, or leave it out for 429")),
    };
    original(&mut parts)?;
    let verdict = engine
        .decide_as(&parts, caller.client, Intent::Charge)
        .await?;
    let mut response = if verdict.allowed() {
        Response::new(Body::empty())
    } else {
        Failed::from(verdict.problem()).into_response()
    };
    verdict.write_headers(response.headers_mut());
    if let Some(status) = deny
        && !verdict.allowed()
    {
        *response.status_mut() = status;
    }
    Ok(response)
}

/// Makes of the request that asks the one that is asked about.
fn original(parts: &mut Parts) -> Result<(), Failed> {
    let target = one(&parts.headers, &TARGETS)?.ok_or_else(|| {
        Failed::bad(
            "The proxy does not say which path is asked for: X-Forwarded-Uri or X-Original-URI",
        )
    })?;
    parts.uri = target
        .parse::<Uri>()
        .ok()
        .filter(|uri| uri.path().starts_with('/'))
        .ok_or_else(|| Failed::bad("The path that the proxy names is none"))?;
    parts.method = match one(&parts.headers, &METHODS)? {
        None => Method::GET,
        Some(method) => Method::from_bytes(method.as_bytes())
            .map_err(|_| Failed::bad("The method that the proxy names is none"))?,
    };
    Ok(())
}

/// What these headers say, of which a proxy writes one. Where they differ, one may be the client's own
/// that the proxy passed on, and who knows which.
fn one<'a>(headers: &'a HeaderMap, names: &[HeaderName]) -> Result<Option<&'a str>, Failed> {
    let mut values = names.iter().flat_map(|name| headers.get_all(name));
    let Some(first) = values.next() else {
        return Ok(None);
    };
    let unclear = || Failed::bad(format!("The header {} is not clear", names[0]));
    if values.any(|other| other != first) {
        return Err(unclear());
    }
    first.to_str().map(Some).map_err(|_| unclear())
}
