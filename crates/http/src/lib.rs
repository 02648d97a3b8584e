//! Limits for HTTP services and clients, over the types of the `http` crate and of tower.
//!
//! - [`RateLimitLayer`] limits the requests to a service: which [`Rule`] holds, who it is, and what
//!   is answered;
//! - [`ConcurrencyLayer`] limits how many requests run at the same time: each holds a [`Slot`] until
//!   the last byte of its response;
//! - [`IdentitySource`] says who a request counts for, and [`Limit`] is what the layer asks;
//! - [`Limited`] is the decision for a handler, [`Refusal`] a handler's own answer;
//! - `outbound::WaitLayer` (feature `client`) keeps a client within limits;
//! - [`RateLimitHeaders`] writes the rate limit fields of a policy, in any [`HeaderStyle`];
//! - [`Problem`] is the body of a refused request: a problem document (RFC 9457) or plain JSON;
//! - [`AddressPrefixes`] turns a client's address into the identity that is limited;
//! - [`TrustedProxies`] finds out that address behind proxies, as [`ClientIp`].
//!
//! Headers and documents are made without asking for the time or doing any I/O.
//!
//! ```
//! use http::HeaderMap;
//! use tollgate_core::algorithm::{Operation, apply};
//! use tollgate_core::{Cost, Policy, Timestamp};
//! use tollgate_http::{HeaderStyle, RateLimitHeaders};
//!
//! let policy = Policy::new("api", ["100/60s".parse()?])?;
//! let now = Timestamp::from_micros(1_700_000_000_000_000);
//! let decision = apply(policy.quotas(), &mut Vec::new(), now, Operation::Acquire(Cost::ONE)).decision;
//!
//! let mut headers = HeaderMap::new();
//! RateLimitHeaders::new(&policy, HeaderStyle::IETF).write(&decision, now, &mut headers);
//! assert_eq!(headers["ratelimit-policy"], r#""api";q=100;w=60"#);
//! assert_eq!(headers["ratelimit"], r#""api";r=99;t=1"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod body;
mod client;
mod concurrency;
#[cfg(feature = "config")]
mod config;
mod exempt;
mod head;
mod headers;
mod health;
mod identity;
mod json;
mod layer;
mod limit;
mod limited;
#[cfg(feature = "client")]
pub mod outbound;
mod plans;
mod problem;
mod refusal;
mod request_id;
mod response_body;
mod rule;
mod seconds;
mod slots;
mod speaker;
mod style;
#[cfg(test)]
mod test_log;
#[cfg(feature = "ws")]
pub mod ws;

pub use address::{AddressPrefixes, PrefixError};
pub use body::BodyStyle;
pub use client::{
    Cidr, CidrError, CidrSet, ClientIp, ForwardedBy, PeerAddr, ProxiesError, TrustedProxies,
    TrustedProxiesService, client_ip, peer_ip,
};
pub use concurrency::{ConcurrencyFuture, ConcurrencyLayer, ConcurrencyService};
#[cfg(feature = "config")]
pub use config::{
    ConfigError, ENV_PREFIX, Mistake, NamedSource, OnFailure, RateLimitConfig, environment,
};
#[cfg(all(feature = "config", feature = "jwt"))]
pub use config::{JwtConfig, JwtKeySource};
pub use headers::RateLimitHeaders;
pub use health::{HealthReport, Ready, ReportHealth, Reporting, ready_document};
#[cfg(feature = "axum")]
pub use health::{health_report, ready};
#[cfg(feature = "jwks")]
pub use identity::HttpFetch;
pub use identity::{
    ApiKeyOwner, ApiKeys, ApiKeysError, Cookie, Header, Identified, IdentifyBy, IdentifyByAsync,
    Identifying, Identities, Identity, IdentitySource, IntoIdentified, Ip, OnInvalid, OnNobody,
    PathParam, Subject, SubjectSource, Tenant, TenantSource, identify_by, identify_by_async,
};
#[cfg(feature = "jwt")]
pub use identity::{
    FetchError, FetchJwks, Fetching, Jwks, Jwt, JwtAlgorithm, JwtClaims, JwtKey, JwtKeyError,
    JwtKeys, UnknownJwtAlgorithm,
};
pub use layer::{
    ActualCost, CostMeter, RateLimitLayer, RateLimitService, Refused, ResponseFuture, Sent,
    SentEnd, Settle,
};
pub use limit::{Limit, LimitError, Limiting};
pub use limited::Limited;
pub use plans::{Plans, Ruling};
pub use problem::{GatewayNumbers, Problem, ProblemType};
pub use refusal::Refusal;
pub use request_id::RequestId;
pub use response_body::ResponseBody;
pub use rule::{Rule, Scope};
pub use seconds::retry_after_seconds;
pub use slots::{HeldSlot, Holding, Slot, Slots};
pub use speaker::{Speaker, speaker};
pub use style::{HeaderStyle, HeaderStyleError};
