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

/// A problem as an answer. Where the request is and what it is called are added outside.
#[derive(Debug)]
pub(crate) struct Failed(Box<Problem>);

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
        Self(Box::new(problem))
    }
}

impl Failed {
    /// The status of the answer.
    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.0.status();
        let problem = HeaderValue::from_static("application/problem+json");
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, problem);
        if self.0.status() == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            headers.insert(http::header::WWW_AUTHENTICATE, challenge);
        }
        response.extensions_mut().insert(*self.0);
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
        return Err(Failed::bad("The body must be a JSON object"));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Failed::bad(format!("The body cannot be used: {error}")))
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
