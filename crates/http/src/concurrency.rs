//! The layer that limits how many requests run at the same time.

mod answer;
mod service;
#[cfg(feature = "ws")]
mod upgrade;

use std::fmt;
use std::sync::Arc;

use http::{HeaderValue, Method, request};
use tower_layer::Layer;

use crate::exempt::Exempt;
use crate::layer::{Telling, grpc};
use crate::{BodyStyle, IdentitySource, Ip, ProblemType, Slots};
pub use service::{ConcurrencyFuture, ConcurrencyService};

/// Limits how many requests to any service of `http` requests run at the same time: axum, tonic,
/// hyper, tower.
///
/// ```
/// use axum::{Router, routing::post};
/// use tollgate_http::{ConcurrencyLayer, Slots};
///
/// fn app(ocr: impl Slots + Clone) -> Router {
///     Router::new()
///         .route("/pages", post(|| async { "the text of a page" }))
///         .layer(ConcurrencyLayer::new(&ocr))
/// }
/// ```
///
/// # What is limited
/// - Every request to a route of axum. All routes that have a layer of the same limit share its
///   slots; [`by_route`](Self::by_route) gives each its own. Requests that match no route are not
///   limited, unless [`unmatched`](Self::unmatched) says so. A service without a router, or a layer
///   around a whole router, limits every request, and has one set of slots.
/// - Not limited: CORS preflights, `/health`, `/ready`, `/metrics`, and what is made
///   [`exempt`](Self::exempt).
///
/// # For how long
/// - Until the last byte of the response has been handed over, the client is gone, or the handler
///   panics; a response without a body ends at once. Or
///   [until the handler returns](Self::until_handler_returns).
/// - A WebSocket, or whatever else a connection is upgraded to, for as long as its handler has it
///   (feature `ws`).
/// - A handler that takes the [`Slot`](crate::Slot) may keep it for longer, and is told when it is
///   lost. The layer itself lets a request go on whose slot was lost.
///
/// # What is answered
/// - All slots taken, and still so after the `wait` of the limit: 503 with a problem document,
///   `Retry-After` and `Cache-Control: no-store`; 429 where each client has slots of its own. To gRPC
///   `RESOURCE_EXHAUSTED` with a `RetryInfo`.
/// - The store does not answer, under the closed policy: 503, to gRPC `UNAVAILABLE`.
///
/// Inside of a rate limit (`.layer(slots).layer(rate_limit)`) only what that admits takes a slot.
#[derive(Clone)]
#[must_use = "a layer limits what it is put around"]
pub struct ConcurrencyLayer {
    settings: Arc<Settings>,
}

#[derive(Clone)]
struct Settings {
    slots: Arc<dyn Slots>,
    by_route: bool,
    unmatched: bool,
    /// Whose slots they are, where each client has his own.
    source: Option<Arc<dyn IdentitySource>>,
    to_the_last_byte: bool,
    exempt: Exempt,
    telling: Telling,
    problem: ProblemType,
    grpc_status: u8,
    #[cfg(feature = "ws")]
    ws_close: bool,
}

impl ConcurrencyLayer {
    /// The key of the slots that all requests share, for who takes some elsewhere: in a job, or
    /// around a part of a handler.
    pub const KEY: &str = "all";

    /// Limits by the slots of this limit. Where each client has his own
    /// ([`per_client`](Slots::per_client)), clients are told apart by their address.
    pub fn new<S: Slots + Clone>(slots: &S) -> Self {
        let per_client = slots.per_client();
        Self {
            settings: Arc::new(Settings {
                slots: Arc::new(slots.clone()),
                by_route: false,
                unmatched: false,
                source: per_client.then(|| Arc::new(Ip::default()) as _),
                to_the_last_byte: true,
                exempt: Exempt::default(),
                telling: Telling::default(),
                problem: ProblemType::default(),
                grpc_status: grpc::RESOURCE_EXHAUSTED,
                #[cfg(feature = "ws")]
                ws_close: false,
            }),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Gives each route slots of its own: one method and one template, such as `/items/{id}`. HEAD
    /// counts with GET.
    pub fn by_route(self) -> Self {
        self.with(|it| it.by_route = true)
    }

    /// Limits requests that match no route, too; they share one set of slots.
    pub fn unmatched(self) -> Self {
        self.with(|it| it.unmatched = true)
    }

    /// Gives each client slots of his own, and asks this source who it is. Several are one as
    /// [`Identities`](crate::Identities).
    pub fn identity(self, source: impl IdentitySource) -> Self {
        self.with(|it| it.source = Some(Arc::new(source)))
    }

    /// Gives the slot back when the handler returns, while the body of its response may still be
    /// sent.
    pub fn until_handler_returns(self) -> Self {
        self.with(|it| it.to_the_last_byte = false)
    }

    /// How refusals are told in the body. Default: a problem document.
    pub fn body(self, style: BodyStyle) -> Self {
        self.with(|it| it.telling.body = style)
    }

    /// The `type` of the problem document.
    pub fn problem_type(self, kind: ProblemType) -> Self {
        self.with(|it| it.problem = kind)
    }

    /// The `WWW-Authenticate` of a 401. Default: `Bearer`.
    pub fn challenge(self, challenge: HeaderValue) -> Self {
        self.with(|it| it.telling.challenge = challenge)
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

    /// The gRPC status of a refusal: 8, `RESOURCE_EXHAUSTED`, unless it is set to 14, `UNAVAILABLE`,
    /// which clients try again by themselves.
    pub fn grpc_unavailable(self) -> Self {
        self.with(|it| it.grpc_status = grpc::UNAVAILABLE)
    }

    /// Accepts a refused WebSocket handshake and closes the socket, with code 1013 (1008 where each
    /// client has slots of his own) and a reason, instead of answering 503. For axum, and for
    /// clients that cannot see the status of a handshake, such as browsers.
    #[cfg(feature = "ws")]
    pub fn ws_close(self) -> Self {
        self.with(|it| it.ws_close = true)
    }
}

impl<S> Layer<S> for ConcurrencyLayer {
    type Service = ConcurrencyService<S>;

    fn layer(&self, inner: S) -> ConcurrencyService<S> {
        ConcurrencyService::new(inner, Arc::clone(&self.settings))
    }
}

impl fmt::Debug for ConcurrencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLayer")
            .field("slots", &self.settings.slots)
            .field("by_route", &self.settings.by_route)
            .field("identity", &self.settings.source)
            .finish_non_exhaustive()
    }
}
