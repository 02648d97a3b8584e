//! One request: who asks, may they, and what is the answer.

mod at_once;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{ALLOW, CONNECTION, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use tokio::time::Instant;
use tollgate::Limiter;
use tollgate_http::{BodyStyle, ForwardedBy, Problem, RequestId, TrustedProxies};

pub(super) use at_once::AtOnce;

use super::answer;
use super::body::Body;
use super::cors::Cors;
use super::forwarding::{Origin, claims_forwarding};
use super::peer::Peer;
use super::probes::Probes;
use super::routes::Routes;
use super::upstream::Target;
use super::validity;
use super::websocket::{self, Close, Tunnel};
use super::worker::Shared;
use crate::admin::{self, Caller};
use crate::config::Settings;
use crate::engine::Verdict;
use crate::log::beginning;
use crate::metrics::{Outcome, Requests};
use crate::service::Service;
use crate::store;
use crate::traces::{self, Traces};

/// Everything that requests share.
#[derive(Debug)]
pub(super) struct Gateway {
    service: Service,
    body: BodyStyle,
    routes: Routes,
    trusted: Option<TrustedProxies>,
    forwarded_by: ForwardedBy,
    cors: Option<Cors>,
    ws_close: bool,
    access_log: bool,
    probes: Probes,
    draining: AtomicBool,
    hinted: AtomicBool,
    requests: Requests,
    traces: Traces,
    forward_as: Option<HeaderName>,
}

impl Gateway {
    pub(super) fn new(
        limiter: Limiter,
        service: Service,
        routes: Routes,
        traces: Traces,
        settings: &Settings,
    ) -> Self {
        Self {
            service,
            body: settings.body,
            routes,
            trusted: settings.proxy.trusted.clone(),
            forwarded_by: settings.proxy.forwarded_by.clone(),
            cors: settings.proxy.cors.clone(),
            ws_close: settings.proxy.ws_close,
            access_log: settings.proxy.access_log,
            probes: Probes::new(limiter, store::name(&settings.backend)),
            draining: AtomicBool::new(false),
            hinted: AtomicBool::new(false),
            requests: Requests::new(),
            traces,
            forward_as: settings.identity.forward_as.clone(),
        }
    }

    /// Where admitted requests may go.
    pub(super) fn targets(&self) -> &[Target] {
        self.routes.targets()
    }

    /// From now on `/ready` says 503, and connections end with their next answer.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn is_logging(&self) -> bool {
        self.access_log && tracing::enabled!(tracing::Level::INFO)
    }

    /// Answers a request.
    pub(super) async fn handle(
        &self,
        parts: &mut Parts,
        body: Incoming,
        peer: &Arc<Peer>,
        shared: &Shared,
    ) -> Response<Body> {
        let in_flight = peer.begin();
        let logged = self.is_logging();
        let start = Instant::now();
        let answering = self.requests.begin();
        let id = RequestId::of(&parts.headers);

        let draining = self.is_draining();
        let probe = matches!(parts.uri.path(), "/health" | "/ready");
        let local = probe || self.service.is_admin(parts.uri.path());
        if !probe {
            let trusted = || self.trusts(peer.address());
            self.traces.begin(parts, &id, peer.scheme(), trusted);
        }
        let mut response = if probe {
            Box::pin(self.probe(parts, draining, &id)).await
        } else if local {
            let (client, trusted) = self.client(peer.address(), &parts.headers);
            let caller = Caller {
                peer: peer.address(),
                client,
                trusted,
            };
            Box::pin(self.admin(parts, body, caller, &id)).await
        } else if let Some(cors) = &self.cors {
            Box::pin(self.across(cors, parts, body, peer, shared, &id)).await
        } else {
            self.limited(parts, body, peer, shared, &id).await
        };
        let outcome = match local {
            true => Outcome::Local,
            false => response.body().outcome().unwrap_or(Outcome::Admitted),
        };
        drop(answering);
        let took = start.elapsed();
        self.requests.end(&parts.method, outcome, took);
        self.traces.end(parts, response.status(), outcome);
        id.write(response.headers_mut());
        let goes_on = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if draining && !goes_on && parts.version < Version::HTTP_2 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response.body_mut().in_flight(in_flight);
        response.body_mut().begin_tunnel();
        if logged {
            let (path, status) = (parts.uri.path(), response.status());
            log(&parts.method, path, status, took, probe, id.as_str());
        }
        response
    }

    /// Answers a request to the listener of the admin surface.
    pub(super) async fn administer(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let id = RequestId::of(&parts.headers);
        let mut response = if matches!(parts.uri.path(), "/health" | "/ready") {
            let draining = self.is_draining();
            Box::pin(self.probe(&parts, draining, &id)).await
        } else {
            let (client, trusted) = self.client(peer, &parts.headers);
            let caller = Caller {
                peer,
                client,
                trusted,
            };
            self.traces.begin(&mut parts, &id, "http", || trusted);
            let response = self.admin(&mut parts, body, caller, &id).await;
            self.traces.end(&parts, response.status(), Outcome::Local);
            response
        };
        id.write(response.headers_mut());
        let status = response.status().as_u16();
        let path = admin::shown(parts.uri.path());
        tracing::debug!(request_id = %id, path = beginning(&path), status, "administered");
        response
    }

    async fn admin(
        &self,
        parts: &mut Parts,
        body: Incoming,
        caller: Caller,
        id: &RequestId,
    ) -> Response<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = std::mem::take(&mut parts.headers);
        let answer = self.service.admin.answer(request, caller, id).await;
        answer.map(Body::whole)
    }

    async fn probe(&self, parts: &Parts, draining: bool, id: &RequestId) -> Response<Body> {
        match (&parts.method, parts.uri.path()) {
            (&Method::GET | &Method::HEAD, "/health") => self.probes.alive().await,
            (&Method::GET | &Method::HEAD, _) => {
                let rules = self.service.rules.problem();
                self.probes.ready(rules.as_deref(), draining).await
            }
            (_, path) => {
                let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Use GET or HEAD");
                let style = self.body.negotiated(&parts.headers);
                let mut response = told(&problem, style, path, id);
                response
                    .headers_mut()
                    .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                response
            }
        }
    }

    /// Answers as browsers want it that ask for a page of another origin.
    async fn across(
        &self,
        cors: &Cors,
        parts: &mut Parts,
        body: Incoming,
        peer: &Peer,
        shared: &Shared,
        id: &RequestId,
    ) -> Response<Body> {
        if Cors::is_preflight(parts) {
            return cors.preflight(&parts.headers);
        }
        let origin = parts.headers.get(ORIGIN).cloned();
        let mut response = self.limited(parts, body, peer, shared, id).await;
        cors.write(origin.as_ref(), response.headers_mut());
        response
    }

    async fn limited(
        &self,
        parts: &mut Parts,
        body: Incoming,
        peer: &Peer,
        shared: &Shared,
        id: &RequestId,
    ) -> Response<Body> {
        let style = self.body.negotiated(&parts.headers);
        let (client, trusted) = self.client(peer.address(), &parts.headers);
        let offered = peer.take_offered();
        let decided = match peer.take_decided() {
            Some(verdict) => Ok(*verdict),
            // In a box: it is short, and what comes after it needs no room for it.
            None => Box::pin(self.service.engine.decide(parts, client)).await,
        };
        let mut verdict = match decided {
            Ok(verdict) => verdict,
            Err(problem) => return unidentified(problem, style, parts.uri.path(), id),
        };
        traces::decided(parts, verdict.rule_id(), verdict.origin());
        peer.set_refused(!verdict.allowed());
        let mut response = if verdict.allowed() {
            let permit = verdict.take_permit();
            let origin = (peer, client, trusted, verdict.take_identity());
            // In a box: a connection has room for it only while it is needed.
            let admitted = Box::pin(self.admitted(parts, body, origin, shared, id)).await;
            let mut response =
                admitted.unwrap_or_else(|problem| told(&problem, style, parts.uri.path(), id));
            if let Some(permit) = permit {
                response.body_mut().hold(permit);
            }
            response
        } else {
            if let Some(offered) = offered {
                Box::pin(self.learn(parts, peer, &offered, style, shared)).await;
            }
            let problem = verdict.problem();
            self.closed(parts, &problem)
                .unwrap_or_else(|| told(&problem, style, parts.uri.path(), id))
        };
        verdict.write_headers(response.headers_mut());
        unenforced(&verdict, id);
        response
    }

    async fn admitted(
        &self,
        parts: &mut Parts,
        body: Incoming,
        (peer, client, trusted, identity): (&Peer, IpAddr, bool, Option<Box<HeaderValue>>),
        shared: &Shared,
        id: &RequestId,
    ) -> Result<Response<Body>, Problem> {
        if parts.method == Method::CONNECT {
            return Err(Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "This is no tunnel",
            ));
        }
        let host = validity::host(parts, |host| peer.knows(host))?;
        self.hint_at_proxies(parts);
        let uri = &parts.uri;
        let asked = host.as_ref().map(HeaderValue::as_bytes);
        let number = match self.routes.choose(asked, uri.path()) {
            Some(number) => number,
            None if self.targets().is_empty() => {
                return Ok(answer::demo(&parts.method, uri.path(), uri.query()));
            }
            None => {
                let detail = "There is no upstream for this host and path";
                return Err(Problem::new(StatusCode::NOT_FOUND, detail));
            }
        };
        let named = match &self.forwarded_by {
            ForwardedBy::Named(name) if self.trusted.is_some() => Some(name),
            _ => None,
        };
        let origin = Origin {
            peer,
            client,
            trusted,
            named,
            host: host.as_ref(),
            identity: self.forward_as.as_ref().map(|name| (name, identity)),
        };
        let (target, pool) = (&self.targets()[number], &shared.pools[number]);
        Ok(target.forward(parts, body, &origin, id, pool).await?)
    }

    /// Whether the peer is a proxy whose word counts.
    fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted
            .as_ref()
            .is_some_and(|proxies| proxies.trusts(peer))
    }

    /// Who the client is, and whether the peer is a proxy whose word counts.
    fn client(&self, peer: IpAddr, headers: &HeaderMap) -> (IpAddr, bool) {
        match &self.trusted {
            None => (peer, false),
            Some(proxies) => (proxies.client(peer, headers), proxies.trusts(peer)),
        }
    }

    /// The answer to a WebSocket that is refused, where these are accepted and closed.
    fn closed(&self, parts: &mut Parts, problem: &Problem) -> Option<Response<Body>> {
        if !self.ws_close || !websocket::is_handshake(parts) {
            return None;
        }
        let accept = websocket::accept(&parts.headers)?;
        let close = match problem.status() {
            StatusCode::SERVICE_UNAVAILABLE => Close::Full,
            _ => Close::Limited,
        };
        let client = websocket::client_of(parts)?;
        let mut response = Response::new(Body::tunnel(Tunnel::closing(client, close)));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        websocket::accepted(response.headers_mut(), accept);
        response
            .body_mut()
            .set_outcome(Outcome::of(problem.status()));
        Some(response)
    }

    /// Says once that what a proxy tells about clients is not believed.
    fn hint_at_proxies(&self, parts: &Parts) {
        if self.trusted.is_none()
            && !self.hinted.load(Ordering::Relaxed)
            && claims_forwarding(&parts.headers)
            && !self.hinted.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "requests carry forwarding headers, which are not believed: \
                 all clients behind one proxy share one quota"
            );
        }
    }
}

fn log(method: &Method, path: &str, status: StatusCode, took: Duration, probe: bool, id: &str) {
    // A u128 would be logged as a text.
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let status = status.as_u16();
    let path = admin::shown(path);
    let (method, path) = (beginning(method.as_str()), beginning(&path));
    if probe {
        tracing::debug!(request_id = %id, method, path, status, millis, "probed");
    } else {
        tracing::info!(request_id = %id, method, path, status, millis, "answered");
    }
}

/// A problem of this request.
fn told(problem: &Problem, style: BodyStyle, path: &str, id: &RequestId) -> Response<Body> {
    let mut response = answer::problem(problem, (path, id), style);
    response
        .body_mut()
        .set_outcome(Outcome::of(problem.status()));
    response
}

/// An answer that the store did not give is told apart in the log, not in a header: that would
/// tell an attacker that the gate is open.
fn unenforced(verdict: &Verdict, id: &impl fmt::Display) {
    if !verdict.is_enforced() {
        let (rule, origin) = (verdict.rule_id(), verdict.origin());
        tracing::debug!(request_id = %id, rule, origin, "not enforced");
    }
}

/// Nobody knows whom the request counts for.
fn unidentified(problem: Problem, style: BodyStyle, path: &str, id: &RequestId) -> Response<Body> {
    let asks = problem.status() == StatusCode::UNAUTHORIZED;
    let mut response = told(&problem, style, path, id);
    if asks {
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
