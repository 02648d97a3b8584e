//! How handlers read what they are sent, and answer.

use axum::body::Body;
use axum::extract::Query;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{StatusCode, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tollgate_http::Problem;

use super::MAX_BODY;
use crate::rules::{Faults, Fields, json};

/// A problem as an answer. Where the request is and what it is called are added outside.
#[derive(Debug)]
pub(crate) enum Failed {
    /// One that has a name.
    Problem(Box<Problem>),
    /// All that is wrong with what was sent.
    Faults(Faults),
}

impl Failed {
    /// A problem of this status; `detail` is for the caller to read.
    pub(crate) fn new(
        status: StatusCode,
        detail: impl Into<std::borrow::Cow<'static, str>>,
    ) -> Self {
        Problem::new(status, detail).into()
    }

    /// 400: what was sent cannot be used.
    pub(crate) fn bad(detail: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl From<Faults> for Failed {
    fn from(faults: Faults) -> Self {
        Self::Faults(faults)
    }
}

impl Failed {
    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Problem(problem) => problem.status(),
            Self::Faults(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status();
        let problem = HeaderValue::from_static("application/problem+json");
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, problem);
        if self.status() == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            headers.insert(http::header::WWW_AUTHENTICATE, challenge);
        }
        let extensions = response.extensions_mut();
        match self {
            Self::Problem(problem) => drop(extensions.insert(*problem)),
            Self::Faults(faults) => drop(extensions.insert(faults)),
        }
        response
    }
}

/// A document as an answer.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> Json<T> {
    /// The answer, without a body of a kind of its own.
    pub(super) fn into_bytes(self) -> http::Response<Bytes> {
        let text = serde_json::to_vec(&self.0).expect("our own documents serialise");
        let mut response = http::Response::new(text.into());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        self.into_bytes().map(Body::from)
    }
}

/// The body of a request, read whole.
pub(crate) fn body(read: Result<Bytes, BytesRejection>) -> Result<Bytes, Failed> {
    read.map_err(|rejection| unread(rejection.status()))
}

/// The same of a body that no handler has asked for.
pub(super) async fn read<B>(body: B) -> Result<Bytes, Failed>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<axum::BoxError>,
{
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(read) => Ok(read.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(unread(StatusCode::PAYLOAD_TOO_LARGE)),
        Err(_) => Err(unread(StatusCode::BAD_REQUEST)),
    }
}

fn unread(status: StatusCode) -> Failed {
    let detail = match status {
        StatusCode::PAYLOAD_TOO_LARGE => "The body is larger than 1 MiB",
        _ => "The body broke off",
    };
    Failed::new(status, detail)
}

/// The document of a body, whose fields are named: a list of them in order is none.
pub(crate) fn document<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failed> {
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(Faults::one("", None, "The body must be a JSON object").into());
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let problem = format!("The body cannot be used: {error}");
        Faults::one("", None, problem).into()
    })
}

/// The fields of the document of a body, as `read` takes them, or every fault of them.
pub(crate) fn fields<T>(
    bytes: &[u8],
    read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
) -> Result<T, Failed> {
    let value = json(bytes)?;
    let mut faults = Faults::default();
    let taken = Fields::of(&value, "", &mut faults).and_then(|mut fields| {
        let taken = read(&mut fields);
        fields.end();
        taken
    });
    taken
        .filter(|_| faults.is_empty())
        .ok_or_else(|| faults.into())
}

/// The parameters of a request.
pub(crate) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Failed> {
    Query::try_from_uri(uri)
        .map(|Query(parameters)| parameters)
        .map_err(|rejection| {
            let cause = std::error::Error::source(&rejection);
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            Failed::bad(format!("The parameters cannot be used{cause}"))
        })
}
