//! The layers for HTTP services and clients, for the limits of this crate: all of `tollgate_http`.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use tollgate::http::RateLimitLayer;
//! use tollgate::{Limiter, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(limiter.rule("100/minute")?));
//! # Ok(())
//! # }
//! ```
//!
//! How many may run at the same time, over all processes:
//!
//! ```no_run
//! use std::time::Duration;
//! use axum::{Router, routing::post};
//! use tollgate::Limiter;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
//! let app: Router = Router::new()
//!     .route("/ocr", post(|| async { "the text of a page" }))
//!     // Four at a time on each route; who comes fifth waits up to two seconds, and gets 503.
//!     .layer(limiter.in_flight(4).wait(Duration::from_secs(2)).layer()?);
//! # Ok(())
//! # }
//! ```

use std::future::Future;
use std::pin::Pin;

use tollgate_core::{Decision, Key, Policy, PolicyError, Quota, QuotaError};

pub use tollgate_http::*;

use crate::{
    Concurrency, ConcurrencyBuilder, ConcurrencyError, Error, Limiter, Permit, RateLimit, RunError,
    acquire,
};

impl Limit for RateLimit {
    fn policy(&self) -> &Policy {
        Self::policy(self)
    }

    fn charge_now(&self, key: &Key<'_>, cost: u64) -> Option<Result<Decision, LimitError>> {
        acquire::now(self, key, cost)
    }

    fn charge<'a>(&'a self, key: &'a Key<'a>, cost: u64) -> Limiting<'a> {
        Box::pin(async move { Ok(self.acquire(key).cost(cost).await?) })
    }

    fn peek<'a>(&'a self, key: &'a Key<'a>, cost: u64) -> Limiting<'a> {
        Box::pin(async move { Ok(Self::peek(self, key).cost(cost).await?) })
    }

    fn refund<'a>(&'a self, key: &'a Key<'a>, decision: &'a Decision, cost: u64) -> Limiting<'a> {
        Box::pin(async move { Ok(self.refund_some(key, decision, cost).await?) })
    }
}

impl From<Error> for LimitError {
    fn from(error: Error) -> Self {
        match error {
            Error::Cost(error) => error.into(),
            Error::Backend(error) => error.into(),
        }
    }
}

impl Slots for Concurrency {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn per_client(&self) -> bool {
        self.is_per_client()
    }

    fn take<'a>(&'a self, key: &'a Key<'a>) -> Holding<'a> {
        Box::pin(async move { Ok(Slot::new(self.acquire(key).await?)) })
    }
}

impl HeldSlot for Permit {
    fn fence(&self) -> u64 {
        Self::fence(self)
    }

    fn is_lost(&self) -> bool {
        Self::is_lost(self)
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Self::lost(self))
    }
}

/// As for a slot that is not there; work whose slot was lost may be tried again, too.
impl From<RunError> for Refusal {
    fn from(error: RunError) -> Self {
        match error {
            RunError::NoSlot(no_slot) => no_slot.into(),
            RunError::Lost => Self::lost_slot(),
        }
    }
}

impl ConcurrencyBuilder {
    /// The limit as a layer. If it has no name ([`Limiter::in_flight`]), each route has slots of its
    /// own.
    ///
    /// ```
    /// use axum::body::Body;
    /// use axum::{Router, routing::get};
    /// use tollgate::Limiter;
    /// use tollgate::http::ConcurrencyLayer;
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
    /// let app: Router = Router::new()
    ///     .route("/ocr", get(|| async { "the text of a page" }))
    ///     .layer(limiter.concurrency("ocr", 1).layer()?);
    /// let ask = || http::Request::get("/ocr").body(Body::empty());
    ///
    /// // A job has the only slot.
    /// let job = limiter.concurrency("ocr", 1).build()?.acquire(ConcurrencyLayer::KEY).await?;
    /// let refused = app.clone().oneshot(ask()?).await?;
    /// assert_eq!(refused.status(), 503);
    /// assert_eq!(refused.headers()["retry-after"], "1");
    ///
    /// drop(job);
    /// assert_eq!(app.oneshot(ask()?).await?.status(), 200);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn layer(self) -> Result<ConcurrencyLayer, ConcurrencyError> {
        let named = self.is_named();
        let layer = ConcurrencyLayer::new(&self.build()?);
        Ok(if named { layer } else { layer.by_route() })
    }
}

impl Limiter {
    /// Begins a limit on how many requests run at the same time that has no name: as a
    /// [layer](ConcurrencyBuilder::layer) it gives each route `slots` of its own, by method and
    /// template, shared by all processes.
    pub fn in_flight(&self, slots: u32) -> ConcurrencyBuilder {
        ConcurrencyBuilder::unnamed(self.clone(), slots)
    }
}

/// A rule that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The text is not that of quotas.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// There are too many quotas, or the name of the policy has others already.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A source of identities cannot be made from the settings.
    #[cfg(feature = "http-config")]
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Limiter {
    /// These quotas as a rule without a name, such as `"10/minute"`: each route that it is put on has
    /// a budget of its own, by method and template. Counters are kept under the text of the quotas.
    ///
    /// # Errors
    /// When the text is not that of quotas.
    pub fn rule(&self, quotas: &str) -> Result<Rule, RuleError> {
        let quotas = Quota::parse_list(quotas)?;
        let texts: Vec<_> = quotas.iter().map(ToString::to_string).collect();
        let limit = self.policy(&texts.join(", "), quotas)?;
        Ok(Rule::from(&limit).unnamed())
    }
}

#[cfg(feature = "http-config")]
impl Limiter {
    /// The layer that the settings describe, with the sources of identities that the program brings.
    /// The proxies they trust are a layer of their own, around this one:
    /// [`RateLimitConfig::trusted_proxies`].
    ///
    /// # Errors
    /// When a source cannot be made, or a policy of that name has other quotas already.
    pub fn configured(
        &self,
        config: &RateLimitConfig,
        brought: impl IntoIterator<Item = NamedSource>,
    ) -> Result<RateLimitLayer, RuleError> {
        let limit = |policy: &Policy| {
            let quotas = policy.quotas().iter().cloned();
            self.policy_with(policy.name(), quotas, config.on_failure.into())
        };
        let mut plans = Plans::new();
        for (name, policy) in &config.plans {
            plans = plans.plan(name, std::sync::Arc::new(limit(policy)?));
        }
        let layer = RateLimitLayer::routes()
            .default(&limit(&config.policy)?)
            .identity(config.identities(brought)?)
            .plans(plans)
            .headers(config.headers)
            .exempt_nothing();
        let exempt = config.exempt.iter();
        Ok(exempt.fold(layer, |layer, path| layer.exempt(path.as_str())))
    }
}
