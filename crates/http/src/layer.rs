//! The layer: what is limited, by what, and how it is told.

mod answer;
mod decide;
pub(crate) mod grpc;
mod headers;
mod hooks;
mod prepared;
mod sent;
mod service;
mod settle;
mod telling;

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, request};
use tower_layer::Layer;

use crate::exempt::Exempt;
use crate::{BodyStyle, HeaderStyle, IdentitySource, Ip, Limited, Plans, ProblemType, Rule};
pub(crate) use decide::{Charge, Denied, closed, identified};
pub(crate) use headers::Written;
pub(crate) use hooks::Hooks;
use prepared::Prepared;
pub(crate) use prepared::{Route, counted_as, route};
pub(crate) use sent::Watch;
pub use sent::{CostMeter, Sent, SentEnd};
pub use service::{RateLimitService, ResponseFuture};
pub use settle::{ActualCost, Settle};
pub(crate) use telling::Telling;

type OnRefused = Arc<dyn Fn(&request::Parts, &Limited) -> Refused + Send + Sync>;

/// Limits requests to any service of `http` requests: axum, tonic, hyper, tower.
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate_http::{Limit, RateLimitLayer};
///
/// fn app<L: Limit + Clone>(api: &L, search: &L) -> Router {
///     Router::new()
///         .route("/items/{id}", get(|| async { "an item" }))
///         .route("/search", get(|| async { "found" }))
///         .layer(RateLimitLayer::new(api).route("/search", search))
/// }
/// ```
///
/// # What is limited
/// - Every request to a route of axum, each identity by the default limit, or by that of the route,
///   which replaces the default. A second layer below is an additional limit: both count, and the
///   outer one counts also what the inner one refuses.
/// - Requests that match no route are not, unless [`unmatched`](Self::unmatched) says how. A service
///   without a router, or a layer around a whole router (`ServiceBuilder`), limits every request.
/// - Whatever reaches it counts, also what the handler will find invalid.
/// - Not limited: CORS preflights, `/health`, `/ready`, `/metrics`, and what is made
///   [`exempt`](Self::exempt).
///
/// # Who
/// The client's address, unless [`identity`](Self::identity) says otherwise. Nobody knows who it is:
/// 401, or by setting one shared budget ([`OnNobody`](crate::OnNobody)). A service that does not pass
/// on the address of its connections answers 500, and the log says what to do.
///
/// # What is answered
/// - Admitted: what the service answers, errors too, with rate limit fields ([`HeaderStyle`]).
/// - Refused: 429 with a problem document, `Retry-After` and `Cache-Control: no-store`; where the
///   policy refuses because the store does not answer, 503. To gRPC (`application/grpc`) the status
///   `RESOURCE_EXHAUSTED`, or `UNAVAILABLE`, with a `RetryInfo`.
/// - An error of the service itself is passed on as it is.
///
/// Put a CORS layer outside of this one, so that refusals carry its fields; see
/// [`EXPOSED`](Self::EXPOSED).
///
/// # Clones
/// share everything. The counters are the limit's, so layers, routers and processes share those.
///
/// # Cancellation
/// A request that is dropped has been charged, or it has not, and a charge stays unless
/// [`when_sent`](Self::when_sent) says otherwise. A settlement that is under way when the client
/// leaves may be lost, and the charge then stays.
#[derive(Clone)]
#[must_use = "a layer limits what it is put around"]
pub struct RateLimitLayer {
    settings: Arc<Settings>,
    prepared: Arc<OnceLock<Arc<Prepared>>>,
}

/// What `on_refused` says.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refused {
    /// The usual answer.
    Answer,
    /// This one, with the rate limit fields, `Retry-After` and `no-store` added.
    Respond(Response<Bytes>),
    /// The request goes on as if it had been admitted. It was not charged.
    Continue,
}

/// As it was told.
#[derive(Clone)]
struct Settings {
    default: Option<Rule>,
    unmatched: Option<Rule>,
    routes: Vec<(Box<str>, Rule)>,
    source: Arc<dyn IdentitySource>,
    plans: Plans,
    style: HeaderStyle,
    telling: Telling,
    problem: ProblemType,
    tell_unenforced: bool,
    exempt: Exempt,
    hooks: Hooks,
    on_refused: Option<OnRefused>,
    grpc_status: u8,
    #[cfg(feature = "ws")]
    ws_close: bool,
}

impl RateLimitLayer {
    /// The fields that a page of another origin must be allowed to read
    /// (`Access-Control-Expose-Headers`).
    pub const EXPOSED: [http::HeaderName; 3] = [
        http::HeaderName::from_static("ratelimit"),
        http::HeaderName::from_static("ratelimit-policy"),
        http::header::RETRY_AFTER,
    ];

    /// Limits all routes by this: with a budget for the policy, or for each route if the rule is
    /// [unnamed](Rule::unnamed).
    pub fn new(limit: impl Into<Rule>) -> Self {
        Self::routes().default(limit.into().by_route())
    }

    /// Limits nothing yet: [`route`](Self::route) and [`default`](Self::default) say what.
    pub fn routes() -> Self {
        Self {
            settings: Arc::new(Settings {
                default: None,
                unmatched: None,
                routes: Vec::new(),
                source: Arc::new(Ip::default()),
                plans: Plans::new(),
                style: HeaderStyle::default(),
                telling: Telling::default(),
                problem: ProblemType::default(),
                tell_unenforced: false,
                exempt: Exempt::default(),
                hooks: Hooks::default(),
                on_refused: None,
                grpc_status: grpc::RESOURCE_EXHAUSTED,
                #[cfg(feature = "ws")]
                ws_close: false,
            }),
            prepared: Arc::default(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        // What other clones have prepared is theirs.
        self.prepared = Arc::default();
        self
    }

    /// Limits the routes that have no rule of their own, with one budget over all of them.
    pub fn default(self, limit: impl Into<Rule>) -> Self {
        self.with(|it| it.default = Some(limit.into()))
    }

    /// Limits a route by this instead of the default. The route is its template, as the router has
    /// it (`/items/{id}`, nested ones with their prefix), for all methods or, `POST /items`, for one;
    /// `GET` is for HEAD too. A service without a router is asked for the path itself.
    pub fn route(self, route: impl Into<Box<str>>, limit: impl Into<Rule>) -> Self {
        self.with(|it| it.routes.push((route.into(), limit.into())))
    }

    /// Limits requests that match no route, which otherwise are not limited.
    pub fn unmatched(self, limit: impl Into<Rule>) -> Self {
        self.with(|it| it.unmatched = Some(limit.into()))
    }

    /// Asks this source who it is, instead of taking the client's address ([`Ip`]). Several are one
    /// as [`Identities`](crate::Identities).
    pub fn identity(self, source: impl IdentitySource) -> Self {
        self.with(|it| it.source = Arc::new(source))
    }

    /// Lets some identities have other limits, or none, and refuses others with 403.
    pub fn plans(self, plans: Plans) -> Self {
        self.with(|it| it.plans = plans)
    }

    /// The `WWW-Authenticate` of a 401. Default: `Bearer`.
    pub fn challenge(self, challenge: HeaderValue) -> Self {
        self.with(|it| it.telling.challenge = challenge)
    }

    /// Which rate limit fields responses carry. Default: [`HeaderStyle::IETF`].
    pub fn headers(self, style: HeaderStyle) -> Self {
        self.with(|it| it.style = style)
    }

    /// How refusals are told in the body. Default: a problem document.
    pub fn body(self, style: BodyStyle) -> Self {
        self.with(|it| it.telling.body = style)
    }

    /// The `type` of the problem document.
    pub fn problem_type(self, kind: ProblemType) -> Self {
        self.with(|it| it.problem = kind)
    }

    /// Says in a field `RateLimit-Unenforced` when nobody enforces the limit (`fail_open`,
    /// `local_fallback`). Off by default: it tells an attacker that the gate is open.
    pub fn tell_unenforced(self) -> Self {
        self.with(|it| it.tell_unenforced = true)
    }

    /// Does not limit this path, besides `/health`, `/ready` and `/metrics`.
    pub fn exempt(self, path: impl Into<Box<str>>) -> Self {
        self.with(|it| it.exempt.paths.push(path.into()))
    }

    /// Limits also `/health`, `/ready`, `/metrics` and what was exempt before.
    pub fn exempt_nothing(self) -> Self {
        self.with(|it| it.exempt.paths.clear())
    }

    /// Does not limit requests of this method.
    pub fn exempt_method(self, method: Method) -> Self {
        self.with(|it| it.exempt.methods.push(method))
    }

    /// Does not limit such requests.
    pub fn exempt_if(
        self,
        exempt: impl Fn(&request::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|it| it.exempt.tests.push(Arc::new(exempt)))
    }

    /// Gives back, or charges more, once the response is there; it waits until that is done. The
    /// first hook that does not say [`Settle::Keep`] decides, those of the route's rule before those
    /// of the layer; a handler that knows what its request cost says so by [`ActualCost`], or, for a
    /// body that is streamed, by a [`CostMeter`], which go before all hooks.
    ///
    /// If the store does not answer, the charge stays as it was.
    pub fn when(
        self,
        settle: impl Fn(&http::response::Parts) -> Settle + Send + Sync + 'static,
    ) -> Self {
        self.with(|it| it.hooks.when(settle))
    }

    /// Gives the charge back if the response is one of these.
    pub fn refund_when(
        self,
        refund: impl Fn(&http::response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|it| it.hooks.refund_when(refund))
    }

    /// Gives the charge back if the service failed: a status of 500 or above, or an error instead of
    /// a response.
    pub fn refund_server_errors(self) -> Self {
        self.with(|it| it.hooks.refund_server_errors())
    }

    /// Gives back, or charges more, once the last byte of the response has gone, or the client has:
    /// by the bytes that were sent, or by how it ended. A handler that counts something else uses a
    /// [`CostMeter`]. The rate limit fields have gone by then, and tell what was charged before.
    ///
    /// It is not asked where the head of the response settled the charge: by [`ActualCost`], or by
    /// [`when`](Self::when) and its kin. A body that is empty is at its end at once, so one that is
    /// upgraded (a WebSocket) is too.
    ///
    /// Nobody waits for it. If the store does not answer, or the process ends, the charge stays.
    ///
    /// ```
    /// use tollgate_http::{Limit, RateLimitLayer, Rule, Settle};
    ///
    /// // 1,000 are charged in advance, and one for each kibibyte in the end.
    /// fn by_kibibytes<L: Limit + Clone>(transfer: &L) -> RateLimitLayer {
    ///     RateLimitLayer::new(Rule::new(transfer).cost(1_000))
    ///         .when_sent(|sent| Settle::Cost(sent.bytes.div_ceil(1_024)))
    /// }
    /// ```
    pub fn when_sent(self, settle: impl Fn(&Sent) -> Settle + Send + Sync + 'static) -> Self {
        self.with(|it| it.hooks.when_sent(settle))
    }

    /// Is asked for every refusal what to do with it.
    pub fn on_refused(
        self,
        decide: impl Fn(&request::Parts, &Limited) -> Refused + Send + Sync + 'static,
    ) -> Self {
        self.with(|it| it.on_refused = Some(Arc::new(decide)))
    }

    /// The gRPC status of a refusal: 8, `RESOURCE_EXHAUSTED`, unless it is set to 14, `UNAVAILABLE`,
    /// which clients try again by themselves.
    pub fn grpc_unavailable(self) -> Self {
        self.with(|it| it.grpc_status = grpc::UNAVAILABLE)
    }

    /// Accepts a refused WebSocket handshake and closes the socket, with code 1008 and a reason (1013
    /// where the store does not answer), instead of answering 429. For axum, and for clients that
    /// cannot see the status of a handshake, such as browsers.
    #[cfg(feature = "ws")]
    pub fn ws_close(self) -> Self {
        self.with(|it| it.ws_close = true)
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimitService<S>;

    fn layer(&self, inner: S) -> RateLimitService<S> {
        let prepared = self
            .prepared
            .get_or_init(|| Arc::new(Prepared::new(&self.settings)));
        RateLimitService::new(inner, Arc::clone(prepared))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("default", &self.settings.default)
            .field("unmatched", &self.settings.unmatched)
            .field("routes", &self.settings.routes)
            .field("source", &self.settings.source)
            .field("plans", &self.settings.plans)
            .field("style", &self.settings.style)
            .finish_non_exhaustive()
    }
}
