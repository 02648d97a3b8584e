//! How a layer tells what went wrong: a problem document, or a status of gRPC.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Response, StatusCode, request};

use super::decide::Denied;
use super::grpc;
use crate::client::Once;
use crate::{BodyStyle, Problem, RequestId, ResponseBody};

/// The settings that all layers have in common.
#[derive(Clone)]
pub(crate) struct Telling {
    pub(crate) body: BodyStyle,
    pub(crate) challenge: HeaderValue,
    /// Whether the service's mistake was logged.
    complained: Arc<Once>,
}

impl Default for Telling {
    fn default() -> Self {
        Self {
            body: BodyStyle::default(),
            challenge: HeaderValue::from_static("Bearer"),
            complained: Arc::new(Once::new()),
        }
    }
}

impl Telling {
    /// 401 or 403; 500 if it is the service's mistake.
    pub(crate) fn denied<B>(
        &self,
        denied: Denied,
        request: &request::Parts,
    ) -> Response<ResponseBody<B>> {
        match denied {
            Denied::Unidentified(why) => {
                let problem = Problem::new(StatusCode::UNAUTHORIZED, why);
                let mut response = self.told(problem, grpc::UNAUTHENTICATED, None, request);
                let challenge = self.challenge.clone();
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                response
            }
            Denied::Listed => {
                let problem = Problem::new(StatusCode::FORBIDDEN, "This client is not admitted");
                self.told(problem, grpc::PERMISSION_DENIED, None, request)
            }
            Denied::Misconfigured(what) => {
                self.complain(what);
                let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what);
                self.told(problem, grpc::INTERNAL, None, request)
            }
        }
    }

    /// A problem, or to gRPC `status` and after which wait the same call would be admitted.
    pub(crate) fn told<B>(
        &self,
        problem: Problem,
        status: u8,
        retry: Option<Duration>,
        request: &request::Parts,
    ) -> Response<ResponseBody<B>> {
        if grpc::is(&request.headers) {
            let mut response = Response::new(ResponseBody::empty());
            grpc::write(response.headers_mut(), status, problem.detail(), retry);
            return response;
        }
        let http = problem.status();
        let id = RequestId::of(&request.headers);
        let json = problem.to_json_of(path(request), id.as_str(), self.body);
        let json = Bytes::from(json);
        let length = HeaderValue::from(json.len());
        let mut response = Response::new(if request.method == Method::HEAD {
            ResponseBody::empty()
        } else {
            ResponseBody::own(json)
        });
        *response.status_mut() = http;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, self.body.content_type());
        headers.insert(CONTENT_LENGTH, length);
        response
    }

    /// Logs a mistake of the service, loudly once.
    fn complain(&self, what: &'static str) {
        if self.complained.first() {
            tracing::error!(
                what,
                "requests cannot be identified, and are answered with 500"
            );
        } else {
            tracing::debug!(what, "requests cannot be identified");
        }
    }
}

/// The path as the client sent it, also below a nested router.
fn path(request: &request::Parts) -> &str {
    #[cfg(feature = "axum")]
    if let Some(uri) = request.extensions.get::<axum::extract::OriginalUri>() {
        return uri.path();
    }
    request.uri.path()
}
