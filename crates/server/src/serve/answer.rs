//! Answers that the gateway gives itself.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use serde::Serialize;
use tollgate_http::{BodyStyle, Problem, RequestId};

use super::body::Body;

/// As many header fields as an answer of ours has, and some.
pub(super) const FIELDS: usize = 12;

/// Why a request has no answer but ours: what a problem document says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) StatusCode, pub(super) &'static str);

impl From<Failure> for Problem {
    fn from(Failure(status, detail): Failure) -> Self {
        Self::new(status, detail)
    }
}

/// A document of JSON. (The body of an answer to HEAD is left out by the server.)
pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_string(document).expect("our own documents serialise");
    json_text(status, text)
}

/// The same, written already.
pub(super) fn json_text(status: StatusCode, text: String) -> Response<Body> {
    let json = HeaderValue::from_static("application/json");
    respond(status, json, text.into_bytes())
}

/// A problem document in the style that the request asks for.
pub(super) fn problem(
    problem: &Problem,
    (path, id): (&str, &RequestId),
    style: BodyStyle,
) -> Response<Body> {
    let text = problem.to_json_of(path, id.as_str(), style);
    respond(problem.status(), style.content_type(), text)
}

fn respond(status: StatusCode, content_type: HeaderValue, text: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::whole(text));
    *response.status_mut() = status;
    // Room for all that is written later: growing a map costs more than filling it.
    let mut headers = HeaderMap::with_capacity(FIELDS);
    headers.insert(CONTENT_TYPE, content_type);
    *response.headers_mut() = headers;
    response
}

/// What an admitted request is answered when there is no upstream.
pub(super) fn demo(method: &Method, path: &str, query: Option<&str>) -> Response<Body> {
    #[derive(Serialize)]
    struct Demo<'a> {
        detail: &'static str,
        mode: &'static str,
        message: &'static str,
        would_forward: WouldForward<'a>,
    }
    #[derive(Serialize)]
    struct WouldForward<'a> {
        method: &'a str,
        path: &'a str,
        query: &'a str,
    }
    json(
        StatusCode::OK,
        &Demo {
            detail: "Rate limit check passed",
            mode: "demo",
            message: "No UPSTREAM_BASE_URL is configured, so this request was not forwarded. \
                      Set UPSTREAM_BASE_URL to proxy accepted traffic to your protected backend.",
            would_forward: WouldForward {
                method: method.as_str(),
                path,
                query: query.unwrap_or_default(),
            },
        },
    )
}

/// Whether a request with these headers has a body of more than `most` bytes, as far as it says.
pub(super) fn declares_more_than(headers: &HeaderMap, most: u64) -> bool {
    headers
        .get(http::header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
        .is_some_and(|length| length > most)
}
