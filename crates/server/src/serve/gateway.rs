//! One request: who asks, may they, and what is the answer.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{ALLOW, CONNECTION, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tokio::time::Instant;
use tollgate::Limiter;
use tollgate_http::{BodyStyle, Problem, RequestId};

use super::answer::{self, Body};
use super::forwarding::claims_forwarding;
use super::probes::Probes;
use super::proxy::Proxy;
use super::validity;
use crate::admin::{self, Caller};
use crate::config::Settings;
use crate::engine::Verdict;
use crate::metrics::{Outcome, Requests};
use crate::service::Service;
use crate::store;

/// The longest method or path, in bytes, that is logged whole.
const MOST_LOGGED: usize = 512;

/// Everything that requests share.
#[derive(Debug)]
pub(super) struct Gateway {
    service: Service,
    body: BodyStyle,
    proxy: Option<Proxy>,
    probes: Probes,
    draining: AtomicBool,
    hinted: AtomicBool,
    requests: Requests,
}

impl Gateway {
    pub(super) fn new(limiter: Limiter, service: Service, settings: &Settings) -> Self {
        Self {
            body: settings.body,
            proxy: settings
                .upstream
                .clone()
                .map(|upstream| Proxy::new(upstream, settings)),
            probes: Probes::new(limiter, store::name(&settings.backend)),
            draining: AtomicBool::new(false),
            hinted: AtomicBool::new(false),
            requests: Requests::new(),
            service,
        }
    }

    /// From now on `/ready` says 503, and connections end with their next answer.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Answers a request of a client at this address.
    pub(super) async fn handle(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
        let start = Instant::now();
        let _in_flight = self.requests.begin();
        let id = RequestId::of(request.headers());
        let method = request.method().clone();
        let path = request.uri().path().to_owned();

        let draining = self.draining.load(Ordering::Relaxed);
        let probe = matches!(&*path, "/health" | "/ready");
        let (mut response, outcome) = if probe {
            let response = self.probe(&request, &path, draining, &id).await;
            (response, Outcome::Local)
        } else if self.service.is_admin(&path) {
            (self.admin(request, peer, &id).await, Outcome::Local)
        } else {
            let response = self.limited(request, peer, &path, &id).await;
            let told = response.extensions().get::<Outcome>().copied();
            (response, told.unwrap_or(Outcome::Admitted))
        };
        self.requests.end(&method, outcome, start.elapsed());
        id.write(response.headers_mut());
        if draining {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        let status = response.status().as_u16();
        // A u128 would be logged as a text.
        let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let path = admin::shown(&path);
        let (method, path) = (beginning(method.as_str()), beginning(&path));
        if probe {
            tracing::debug!(request_id = %id, method, path, status, millis, "probed");
        } else {
            tracing::info!(request_id = %id, method, path, status, millis, "answered");
        }
        response
    }

    /// Answers a request to the listener of the admin surface.
    pub(super) async fn administer(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
    ) -> Response<Body> {
        let id = RequestId::of(request.headers());
        let path = request.uri().path().to_owned();
        let mut response = if matches!(&*path, "/health" | "/ready") {
            let draining = self.draining.load(Ordering::Relaxed);
            self.probe(&request, &path, draining, &id).await
        } else {
            self.admin(request, peer, &id).await
        };
        id.write(response.headers_mut());
        let status = response.status().as_u16();
        let path = admin::shown(&path);
        tracing::debug!(request_id = %id, path = beginning(&path), status, "administered");
        response
    }

    async fn admin(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        id: &RequestId,
    ) -> Response<Body> {
        let caller = Caller {
            peer,
            client: peer,
            trusted: false,
        };
        let answer = self.service.admin.answer(request, caller, id).await;
        answer.map(|body| Either::Left(Full::new(body)))
    }

    async fn probe(
        &self,
        request: &Request<Incoming>,
        path: &str,
        draining: bool,
        id: &RequestId,
    ) -> Response<Body> {
        match (request.method(), path) {
            (&Method::GET | &Method::HEAD, "/health") => self.probes.alive().await,
            (&Method::GET | &Method::HEAD, _) => {
                let rules = self.service.rules.problem();
                self.probes.ready(rules.as_deref(), draining).await
            }
            _ => {
                let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Use GET or HEAD");
                let style = self.body.negotiated(request.headers());
                let mut response = told(problem, style, path, id);
                response
                    .headers_mut()
                    .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                response
            }
        }
    }

    async fn limited(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        path: &str,
        id: &RequestId,
    ) -> Response<Body> {
        let style = self.body.negotiated(request.headers());
        self.hint_at_proxies(&request);
        let (parts, body) = request.into_parts();
        let verdict = match self.service.engine.decide(&parts, peer).await {
            Ok(verdict) => verdict,
            Err(problem) => return unidentified(problem, style, path, id),
        };
        let mut response = if verdict.allowed() {
            self.admitted(Request::from_parts(parts, body), peer, path, id)
                .await
                .unwrap_or_else(|problem| told(problem, style, path, id))
        } else {
            told(verdict.problem(), style, path, id)
        };
        verdict.write_headers(response.headers_mut());
        unenforced(&verdict, id);
        response
    }

    /// Says once that what a proxy tells about clients is not believed.
    fn hint_at_proxies(&self, request: &Request<Incoming>) {
        if claims_forwarding(request.headers()) && !self.hinted.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "requests carry forwarding headers, which are not believed: \
                 all clients behind one proxy share one quota"
            );
        }
    }

    async fn admitted(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        path: &str,
        id: &RequestId,
    ) -> Result<Response<Body>, Problem> {
        if request.method() == Method::CONNECT {
            return Err(Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "This is no tunnel",
            ));
        }
        let (parts, body) = request.into_parts();
        let host = validity::host(&parts)?;
        let request = Request::from_parts(parts, body);
        match &self.proxy {
            Some(proxy) => proxy.forward(request, peer, host, id).await,
            None => Ok(answer::demo(request.method(), path, request.uri().query())),
        }
    }
}

/// As much of what a client sent as goes into the log, whose lines wait in memory to be written.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_LOGGED)]
}

/// A problem of this request.
fn told(problem: Problem, style: BodyStyle, path: &str, id: &RequestId) -> Response<Body> {
    let problem = problem.with_instance(path).with_request_id(id.as_str());
    let mut response = answer::problem(&problem, style);
    let outcome = Outcome::of(response.status());
    response.extensions_mut().insert(outcome);
    response
}

/// An answer that the store did not give is told apart in the log, not in a header: that would
/// tell an attacker that the gate is open.
fn unenforced(verdict: &Verdict, id: &RequestId) {
    if !verdict.is_enforced() {
        let (rule, origin) = (verdict.rule_id(), verdict.origin());
        tracing::debug!(request_id = %id, rule, origin, "not enforced");
    }
}

/// Nobody knows whom the request counts for.
fn unidentified(problem: Problem, style: BodyStyle, path: &str, id: &RequestId) -> Response<Body> {
    let asks = problem.status() == StatusCode::UNAUTHORIZED;
    let mut response = told(problem, style, path, id);
    if asks {
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
