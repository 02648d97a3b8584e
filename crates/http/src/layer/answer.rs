//! What is answered instead of the service.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Response, StatusCode, request};
use tollgate_core::Decision;

use super::decide::{Charges, Denied, joined, worst};
use super::grpc;
use super::prepared::{Entry, Prepared};
use super::{OnRefused, Refused};
use crate::{Limited, Problem, RequestId, ResponseBody};

/// What becomes of a request that was refused.
pub(super) enum Refusal<B> {
    Answer(Box<Response<ResponseBody<B>>>),
    /// The callback lets it go on.
    Continue(Decision),
}

impl Prepared {
    /// The answer to a refusal, or that the request goes on.
    pub(super) fn refused<B>(
        &self,
        entry: &Entry,
        charges: &Charges,
        request: &mut request::Parts,
        nested: bool,
    ) -> Refusal<B> {
        let decision = joined(charges);
        // The one that speaks, for the body.
        let charge = match charges {
            Charges::One(_) => 0,
            Charges::Many(all) => worst(all)
                .and_then(|worst| all.iter().position(|it| std::ptr::eq(it, worst)))
                .unwrap_or(0),
        };
        let Some(speaks) = charges.iter().nth(charge) else {
            return Refusal::Continue(decision);
        };
        let policy = entry.policy(charge, speaks);
        let limited = Limited::new(policy.clone(), speaks.decision.clone());
        let answer = match self.on_refused(request, &limited) {
            Refused::Continue => return Refusal::Continue(decision),
            Refused::Respond(response) => Some(response),
            Refused::Answer => None,
        };
        let mut response = match answer {
            Some(response) => response.map(ResponseBody::own),
            #[cfg(feature = "ws")]
            None if self.settings.ws_close && crate::ws::is_handshake(request) => {
                crate::ws::closed(request, &limited)
            }
            None => {
                let problem = Problem::refusal(policy, limited.decision(), self.settings.problem);
                let status = if problem.status() == StatusCode::SERVICE_UNAVAILABLE {
                    grpc::UNAVAILABLE
                } else {
                    self.settings.grpc_status
                };
                self.told(problem, status, &decision, request)
            }
        };
        let (mut parts, body) = response.into_parts();
        self.write(
            &self.headers(entry, charges),
            &decision,
            true,
            nested,
            &mut parts.headers,
            &mut parts.extensions,
        );
        response = Response::from_parts(parts, body);
        Refusal::Answer(Box::new(response))
    }

    fn on_refused(&self, request: &request::Parts, limited: &Limited) -> Refused {
        let ask = |decide: &OnRefused| decide(request, limited);
        self.settings
            .on_refused
            .as_ref()
            .map_or(Refused::Answer, ask)
    }

    /// 401 or 403; 500 if it is the service's mistake.
    pub(super) fn denied<B>(
        &self,
        denied: Denied,
        request: &request::Parts,
    ) -> Response<ResponseBody<B>> {
        match denied {
            Denied::Unidentified(why) => {
                let problem = Problem::new(StatusCode::UNAUTHORIZED, why);
                let mut response = self.simple(problem, grpc::UNAUTHENTICATED, request);
                let challenge = self.settings.challenge.clone();
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                response
            }
            Denied::Listed => {
                let problem = Problem::new(StatusCode::FORBIDDEN, "This client is not admitted");
                self.simple(problem, grpc::PERMISSION_DENIED, request)
            }
            Denied::Misconfigured(what) => {
                self.complain(what);
                let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what);
                self.simple(problem, grpc::INTERNAL, request)
            }
        }
    }

    fn simple<B>(
        &self,
        problem: Problem,
        status: u8,
        request: &request::Parts,
    ) -> Response<ResponseBody<B>> {
        let never = Decision::of(Default::default(), Vec::new());
        self.told(problem, status, &never, request)
    }

    fn told<B>(
        &self,
        problem: Problem,
        status: u8,
        decision: &Decision,
        request: &request::Parts,
    ) -> Response<ResponseBody<B>> {
        if grpc::is(&request.headers) {
            let mut response = Response::new(ResponseBody::empty());
            let retry = decision.retry_after();
            grpc::write(response.headers_mut(), status, problem.detail(), retry);
            return response;
        }
        let http = problem.status();
        let problem = problem
            .with_instance(path(request))
            .with_request_id(RequestId::of(&request.headers).as_str());
        let style = self.settings.body;
        let json = Bytes::from(problem.to_json(style));
        let length = HeaderValue::from(json.len());
        let mut response = Response::new(if request.method == Method::HEAD {
            ResponseBody::empty()
        } else {
            ResponseBody::own(json)
        });
        *response.status_mut() = http;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, style.content_type());
        headers.insert(CONTENT_LENGTH, length);
        response
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
