//! What `/rules` answers: rules as JSON, and problem documents that name every fault.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde::Serialize;
use tollgate::BackendError;
use tollgate_http::{BodyStyle, Problem, RequestId};
use utoipa::ToSchema;

use super::MAX_BODY;
use crate::rules::store::Entry;
use crate::rules::{Fault, Faults};

/// A problem document about a request whose body or query is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub struct Invalid {
    /// `about:blank`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `Bad Request`.
    pub title: &'static str,
    /// 400.
    pub status: u16,
    /// All faults in one line.
    pub detail: String,
    /// The path of the request.
    pub instance: String,
    /// The id under which the request was logged.
    pub request_id: String,
    /// Every fault.
    pub errors: Vec<Fault>,
}

/// Why a request is not done.
pub(super) enum Refusal {
    Faults(Faults),
    NoRule,
    Method(&'static str),
    Conflict(String),
    Stale,
    TooLarge,
    Store(BackendError),
    Busy,
}

impl From<Faults> for Refusal {
    fn from(faults: Faults) -> Self {
        Self::Faults(faults)
    }
}

impl From<BackendError> for Refusal {
    fn from(error: BackendError) -> Self {
        Self::Store(error)
    }
}

impl Refusal {
    pub(super) fn answer(self, path: &str, id: &RequestId) -> Response<Bytes> {
        let (status, detail): (_, String) = match self {
            Self::Faults(faults) => return invalid(&faults, path, id),
            Self::NoRule => (StatusCode::NOT_FOUND, "There is no such rule".into()),
            Self::Method(allow) => {
                let status = StatusCode::METHOD_NOT_ALLOWED;
                let mut response = problem(status, format!("Use one of {allow}"), path, id);
                response
                    .headers_mut()
                    .insert(ALLOW, HeaderValue::from_static(allow));
                return response;
            }
            Self::Conflict(why) => (StatusCode::CONFLICT, why),
            Self::Stale => (
                StatusCode::PRECONDITION_FAILED,
                "The rule has changed since it was read; read it again".into(),
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("The body is larger than {MAX_BODY} bytes"),
            ),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Others change the same rule all the time".into(),
            ),
            Self::Store(error) => {
                tracing::warn!(request_id = %id, %error, "rules cannot be reached");
                let unknown = if error.may_have_charged() {
                    "; a change may have been made"
                } else {
                    ""
                };
                let text = format!("The store of the rules does not answer{unknown}");
                (StatusCode::SERVICE_UNAVAILABLE, text)
            }
        };
        let mut response = problem(status, detail, path, id);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The answer to a request whose body or query has these faults.
pub(crate) fn invalid(faults: &Faults, path: &str, id: &RequestId) -> Response<Bytes> {
    let mut detail = String::new();
    let _ = write!(detail, "{faults}");
    let document = Invalid {
        kind: "about:blank",
        title: "Bad Request",
        status: StatusCode::BAD_REQUEST.as_u16(),
        detail,
        instance: path.into(),
        request_id: id.as_str().into(),
        errors: faults.all().to_vec(),
    };
    let mut response = json(StatusCode::BAD_REQUEST, &document);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, BodyStyle::Problem.content_type());
    response
}

fn problem(status: StatusCode, detail: String, path: &str, id: &RequestId) -> Response<Bytes> {
    let problem = Problem::new(status, detail)
        .with_instance(path)
        .with_request_id(id.as_str());
    let mut response = Response::new(problem.to_json(BodyStyle::Problem).into());
    *response.status_mut() = status;
    let content_type = BodyStyle::Problem.content_type();
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Response<Bytes> {
    let text = serde_json::to_vec(document).expect("our own documents serialise");
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

pub(super) fn tagged(mut response: Response<Bytes>, entry: &Entry) -> Response<Bytes> {
    let tag = HeaderValue::from_str(&entry.tag()).expect("tags are plain");
    response.headers_mut().insert(ETAG, tag);
    response
}
