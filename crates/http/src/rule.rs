//! What a route charges: which limits, for whom, how much, and who shares the budget.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::request;

use crate::layer::Hooks;
use crate::{IdentitySource, Limit, Sent, Settle};

/// Which requests share a budget, besides that of one identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// All that are limited by the policy, on whatever route.
    #[default]
    Policy,
    /// Those of one route: one method and one template, such as `/items/{id}`. HEAD counts with GET.
    /// Without a router the path stands for the template. A route that is mounted twice has two
    /// templates.
    Route,
    /// Those of all routes that give the same name.
    Named(Cow<'static, str>),
}

/// The limits of a route, and how they are charged.
///
/// A policy has a name, and whatever is charged under that name is one budget, on every route and in
/// every process ([`Scope::Policy`]). A rule that is [`unnamed`](Self::unnamed) has a budget for
/// each route.
///
/// ```
/// use tollgate_http::{Limit, Rule, Scope};
///
/// fn rules<L: Limit + Clone>(api: &L, search: &L) -> [Rule; 3] {
///     [
///         // An export costs 25.
///         Rule::new(api).cost(25),
///         // A search costs one of its own limit, and one of the other.
///         Rule::new(search).and(api),
///         // Each route has all of it for itself.
///         Rule::new(api).scope(Scope::Route),
///     ]
/// }
/// ```
///
/// # Several limits
/// [`and`](Self::and) adds a limit, with an identity of its own if need be: per account and per
/// address. These are separate records, so they are charged one after the other, in order. When one
/// refuses, those before it are given back, and the others are only asked how long they would wait;
/// the answer names the longest wait. Between a charge and its return a concurrent request may be
/// refused that would have fitted. Quotas of *one* identity belong into one policy instead
/// (`"10/s, 1000/h"`), which is decided in one step.
#[derive(Clone)]
pub struct Rule {
    pub(crate) parts: Vec<Part>,
    pub(crate) hooks: Hooks,
}

/// One limit of a rule.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) limit: Arc<dyn Limit>,
    pub(crate) named: bool,
    pub(crate) scope: Scope,
    /// The scope is the route, since nobody said who shares the budget.
    pub(crate) by_route: bool,
    pub(crate) price: Price,
    /// `None`: that of the layer.
    pub(crate) source: Option<Arc<dyn IdentitySource>>,
}

/// How much a request costs.
#[derive(Clone)]
pub(crate) enum Price {
    Fixed(u64),
    Of(Arc<dyn Fn(&request::Parts) -> u64 + Send + Sync>),
}

impl Price {
    pub(crate) fn of(&self, request: &request::Parts) -> u64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Of(cost) => cost(request),
        }
    }
}

impl Rule {
    /// Charges one of this limit.
    pub fn new(limit: impl Into<Self>) -> Self {
        limit.into()
    }

    /// Charges one of a limit whose type is not known here.
    #[must_use]
    pub fn of(limit: Arc<dyn Limit>) -> Self {
        let part = Part {
            limit,
            named: true,
            scope: Scope::Policy,
            by_route: false,
            price: Price::Fixed(1),
            source: None,
        };
        Self {
            parts: vec![part],
            hooks: Hooks::default(),
        }
    }

    /// The name of the policy was made up: clients read `default`, and each route has a budget of its
    /// own, unless its quotas are those of the table's default, whose budget it then charges.
    #[must_use]
    pub fn unnamed(mut self) -> Self {
        self.last().named = false;
        self
    }

    /// Charges so much: 1 unless told otherwise, at most the capacity of the policy. What costs 0 is
    /// not counted.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.last().price = Price::Fixed(cost);
        self
    }

    /// Charges what the request costs. The function is called once, before the handler.
    #[must_use]
    pub fn cost_of(
        mut self,
        cost: impl Fn(&request::Parts) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.last().price = Price::Of(Arc::new(cost));
        self
    }

    /// Who shares the budget. Default: [`Scope::Policy`].
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.last().scope = scope;
        self
    }

    /// Asks this source who it is, instead of that of the layer.
    #[must_use]
    pub fn identity(mut self, source: impl IdentitySource) -> Self {
        self.last().source = Some(Arc::new(source));
        self
    }

    /// And these limits too. What follows (cost, identity, scope) is about the last of them.
    #[must_use]
    pub fn and(mut self, other: impl Into<Self>) -> Self {
        let other = other.into();
        self.parts.extend(other.parts);
        self.hooks.extend(other.hooks);
        self
    }

    /// Gives back, or charges more, once the response is there. See
    /// [`RateLimitLayer::when`](crate::RateLimitLayer::when).
    #[must_use]
    pub fn when(
        mut self,
        settle: impl Fn(&http::response::Parts) -> Settle + Send + Sync + 'static,
    ) -> Self {
        self.hooks.when(settle);
        self
    }

    /// Gives the charge back if the response is one of these: count failed logins only.
    #[must_use]
    pub fn refund_when(
        mut self,
        refund: impl Fn(&http::response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.hooks.refund_when(refund);
        self
    }

    /// Gives the charge back if the service failed. See
    /// [`RateLimitLayer::refund_server_errors`](crate::RateLimitLayer::refund_server_errors).
    #[must_use]
    pub fn refund_server_errors(mut self) -> Self {
        self.hooks.refund_server_errors();
        self
    }

    /// Gives back, or charges more, once the last byte of the response has gone, or the client. See
    /// [`RateLimitLayer::when_sent`](crate::RateLimitLayer::when_sent).
    #[must_use]
    pub fn when_sent(mut self, settle: impl Fn(&Sent) -> Settle + Send + Sync + 'static) -> Self {
        self.hooks.when_sent(settle);
        self
    }

    /// What has no name has a budget for each route, unless its scope was said.
    pub(crate) fn by_route(mut self) -> Self {
        for part in self.parts.iter_mut().filter(|part| !part.named) {
            part.by_route();
        }
        self
    }

    fn last(&mut self) -> &mut Part {
        self.parts.last_mut().expect("a rule has a limit")
    }
}

impl Part {
    /// Each route has a budget of its own, unless it was said who shares it.
    pub(crate) fn by_route(&mut self) {
        if self.scope == Scope::Policy {
            (self.scope, self.by_route) = (Scope::Route, true);
        }
    }
}

impl<L: Limit + Clone> From<&L> for Rule {
    fn from(limit: &L) -> Self {
        Self::of(Arc::new(limit.clone()))
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.parts).finish()
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("policy", self.limit.policy())
            .field("named", &self.named)
            .field("scope", &self.scope)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
