//! One decision: who asks, by which rule, and may they. The gateway, `/v1/check` and
//! `/v1/forward-auth` ask here.

#![allow(
    dead_code,
    reason = "rules and the admin surface, which are under way, use the rest"
)]

mod verdict;

use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use tollgate::{Clock, Limiter, PolicyError, Quota, RateLimit, SystemClock};
use tollgate_http::{HeaderStyle, Problem, RateLimitHeaders};

use crate::identity::{Digester, Identity, IdentityType, Resolver};
pub(crate) use verdict::Verdict;

/// Decides for every request.
#[derive(Debug)]
pub(crate) struct Engine {
    resolver: Resolver,
    digester: Digester,
    /// The default rule, for each type of identity.
    default: [Arc<LiveRule>; 8],
}

/// A rule with its counters.
#[derive(Debug)]
pub(crate) struct LiveRule {
    pub(crate) id: Box<str>,
    pub(crate) limit: RateLimit,
    pub(crate) headers: RateLimitHeaders,
}

impl Engine {
    /// With these sources of identities, and the default rule of these quotas.
    ///
    /// # Errors
    /// When the store cannot count the quotas.
    pub(crate) fn new(
        limiter: &Limiter,
        resolver: Resolver,
        digester: Digester,
        quotas: &[Quota],
        headers: HeaderStyle,
    ) -> Result<Self, PolicyError> {
        let algorithm = match quotas {
            [quota] => quota.algorithm().as_str(),
            _ => "multi",
        };
        let rule = |kind: IdentityType| {
            let name = format!("{algorithm}:default:{kind}");
            let limit = limiter.policy(&name, quotas.iter().copied())?;
            let shown = tollgate::Policy::new("default", quotas.iter().copied())?;
            Ok(Arc::new(LiveRule {
                id: "default".into(),
                limit,
                headers: RateLimitHeaders::new(&shown, headers),
            }))
        };
        let rules: Result<Vec<_>, PolicyError> = IdentityType::ALL.into_iter().map(rule).collect();
        Ok(Self {
            resolver,
            digester,
            default: rules?.try_into().expect("as many as there are types"),
        })
    }

    /// May this request pass? It came from a client at this address.
    ///
    /// # Errors
    /// The problem to answer when it is not known whom it counts for: 401, or 500 where the service
    /// lacks what it would verify with.
    ///
    /// # Cancellation
    /// A call that is dropped has charged, or it has not; it holds no slot.
    pub(crate) async fn decide(&self, request: &Parts, client: IpAddr) -> Result<Verdict, Problem> {
        let identity = self.resolver.resolve(request, client).await?;
        self.decide_for(identity, 1).await
    }

    async fn decide_for(&self, identity: Identity, cost: u64) -> Result<Verdict, Problem> {
        let rule = &self.default[identity.kind().index()];
        let key = self.digester.key(&identity);
        match rule.limit.acquire(key).cost(cost).await {
            Ok(decision) => Ok(Verdict::of(Arc::clone(rule), decision, SystemClock.now())),
            Err(error) => {
                tracing::error!(rule = &*rule.id, %error, "no decision");
                Err(Problem::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "No decision could be made",
                ))
            }
        }
    }
}
