//! What operators and other services use: rules, usage, checks, metrics, documentation.
//!
//! It is answered by one router, on the main listener or on one of its own. Before the router
//! somebody must show that he may ([`access`]), and what was changed is told in the log
//! ([`audit`]). A handler answers with its document or with a [`Problem`].

mod access;
mod audit;
mod listener;
mod paths;
mod reply;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Collected};
use tollgate_http::{BodyStyle, Problem, RequestId};
use tower_service::Service as _;

pub(crate) use access::Access;
pub(crate) use audit::{Audited, TARGET as AUDIT};
pub(crate) use listener::serve;
pub(crate) use paths::{is_admin, shown};
pub(crate) use reply::{Failed, Json, body, document, fields, query};

use crate::engine::Engine;
use crate::rules::{Faults, rest};
use crate::v1;

/// The largest body that is read: more than any rule takes.
const MAX_BODY: usize = 1 << 20;

/// The largest number in a document: what the format `int64` of its schema holds.
pub(crate) const MOST: u64 = i64::MAX as u64;

/// What the handlers of this crate share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// Who decides.
    pub(crate) engine: Arc<Engine>,
}

/// Who sent a request to the admin surface; an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// The other end of the connection.
    pub(crate) peer: IpAddr,
    /// Who that speaks for, if it is a trusted proxy.
    pub(crate) client: IpAddr,
    /// Whether it is one.
    pub(crate) trusted: bool,
}

/// The admin surface.
#[derive(Debug)]
pub(crate) struct Admin {
    access: Access,
    router: Router,
    engine: Option<Arc<Engine>>,
}

impl Admin {
    /// With these routes, for those who may.
    pub(crate) fn new(access: Access, router: Router) -> Self {
        let router = router
            .fallback(|| async { Failed::new(StatusCode::NOT_FOUND, "There is nothing here") })
            .method_not_allowed_fallback(|| async {
                let detail = "This cannot be done here; Allow says what can";
                Failed::new(StatusCode::METHOD_NOT_ALLOWED, detail)
            })
            .layer(DefaultBodyLimit::max(MAX_BODY));
        Self {
            access,
            router,
            engine: None,
        }
    }

    /// With checks that do not go through the router: other services ask for every request of
    /// theirs.
    pub(crate) fn with_checks(mut self, engine: Arc<Engine>) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Answers a request. What every answer has, such as its id in a header, is written by who calls.
    pub(crate) async fn answer<B>(
        &self,
        request: Request<B>,
        caller: Caller,
        id: &RequestId,
    ) -> Response<Bytes>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let path = request.uri().path().to_owned();
        let method = request.method().clone();
        let mut response = match (self.access.admits(&request, caller), &self.engine) {
            (Err(failed), _) => failed.into_response(),
            (Ok(()), Some(engine)) if method == Method::POST && path == v1::CHECK => {
                match checked(engine, request.into_body()).await {
                    Ok(response) => return response,
                    Err(failed) => failed.into_response(),
                }
            }
            // In a box: what checks need stays small.
            (Ok(()), _) => Box::pin(self.routed(request.map(Body::new), caller, id)).await,
        };
        let problem = response.extensions_mut().remove::<Problem>();
        let faults = response.extensions_mut().remove::<Faults>();
        let audited = response.extensions_mut().remove::<Audited>();
        let (mut head, body) = response.into_parts();
        let body = match (problem, faults) {
            (Some(problem), _) => {
                let problem = problem.with_instance(&*path).with_request_id(id.as_str());
                Ok(problem.to_json(BodyStyle::Problem).into())
            }
            (None, Some(faults)) => Ok(rest::invalid(&faults, &path, id).into_body()),
            (None, None) => body.collect().await.map(Collected::to_bytes),
        };
        // Every body here is whole, and none can break off.
        let body = body.unwrap_or_default();
        // The router's, of the body that it knew.
        head.headers.remove(CONTENT_LENGTH);
        head.headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
        audit::tell(&method, &path, head.status, audited.as_ref(), caller, id);
        Response::from_parts(head, body)
    }

    async fn routed(
        &self,
        mut request: Request<Body>,
        caller: Caller,
        id: &RequestId,
    ) -> Response<Body> {
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(id.clone());
        // No handler needs the token, so none can tell of it. Where requests speak for others, it
        // may be theirs.
        if request.uri().path() != paths::FORWARD_AUTH {
            request.headers_mut().remove(AUTHORIZATION);
        }
        // The server leaves out the body of the answer, and tells how long it would have been.
        if request.method() == Method::HEAD {
            *request.method_mut() = Method::GET;
        }
        let Ok(response) = self.router.clone().call(request).await;
        response
    }
}

/// The answer to a check; one that is refused because of what it asks goes the way of all problems.
async fn checked<B>(engine: &Engine, body: B) -> Result<Response<Bytes>, Failed>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<axum::BoxError>,
{
    let answer = v1::check(engine, &reply::read(body).await?).await?;
    let mut response = Json(answer).into_bytes();
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    Ok(response)
}
