//! Which limit holds for whom: plans, and lists of those who are free or refused outright.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tollgate_core::Key;

use crate::client::{NO_PEER, Once};
use crate::{CidrSet, Identity, Limit, address, client_ip};

/// What [`Plans`] says of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ruling {
    /// The limit of the route holds.
    Default,
    /// This limit holds in its place.
    Limit(Arc<dyn Limit>),
    /// No limit holds, and nothing is charged.
    Exempt,
    /// The request is refused: 403, which waiting does not change. Nothing is charged.
    Denied,
    /// A list of addresses cannot be kept, since the client's address is not known: 500.
    Misconfigured(&'static str),
}

/// A function that names the plan of a request.
type Chooser = dyn Fn(&Identity, &Parts) -> Option<Arc<str>> + Send + Sync;

/// The quotas of each plan, and who needs none.
///
/// In this order, and the first that applies decides:
/// 1. denied, by address or identity: refused with 403;
/// 2. allowed, by address or identity: exempt;
/// 3. the plan that the identity brings (a claim of its token, what is kept beside its API key),
///    or that [`limit_from`](Self::limit_from) names: the limit of that plan;
/// 4. else the limit of the route.
///
/// The limit of a plan is one budget for all routes whose rules do not say who shares theirs
/// ([`Rule::scope`](crate::Rule::scope)): a plan of 5,000 an hour is 5,000 an hour, however many
/// routes there are.
///
/// A plan that has no limit here is as good as none, and is told of once in a warning.
///
/// ```
/// use http::Request;
/// use tollgate_http::{Identity, Plans, Ruling};
///
/// let plans = Plans::new().deny("api_key", "acme").allow("subject", "monitor");
/// let (parts, ()) = Request::new(()).into_parts();
/// let ruling = |source: &'static str, value| plans.rule(&parts, &Identity::new(source, value));
/// assert!(matches!(ruling("api_key", "acme"), Ruling::Denied));
/// assert!(matches!(ruling("subject", "monitor"), Ruling::Exempt));
/// assert!(matches!(ruling("subject", "acme"), Ruling::Default));
/// ```
#[derive(Clone, Default)]
pub struct Plans {
    limits: HashMap<Arc<str>, Arc<dyn Limit>>,
    chooser: Option<Arc<Chooser>>,
    denied: List,
    allowed: List,
    unknown: Arc<Once>,
}

#[derive(Clone, Default)]
struct List {
    networks: CidrSet,
    identities: HashSet<Key<'static>>,
}

impl Plans {
    /// No plans and no lists: the limit of the route holds for everybody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With a plan, and the limit that holds for it. The policies of two plans need names of their
    /// own, or they would share counters.
    #[must_use]
    pub fn plan(mut self, name: &str, limit: Arc<dyn Limit>) -> Self {
        self.limits.insert(name.into(), limit);
        self
    }

    /// With a function that names the plan. It is asked before what the identity brings, which
    /// holds where it answers `None`.
    #[must_use]
    pub fn limit_from<F, N>(mut self, choose: F) -> Self
    where
        F: Fn(&Identity, &Parts) -> Option<N> + Send + Sync + 'static,
        N: Into<Arc<str>>,
    {
        self.chooser = Some(Arc::new(move |identity, parts| {
            choose(identity, parts).map(Into::into)
        }));
        self
    }

    /// With networks whose clients are exempt.
    #[must_use]
    pub fn allow_networks(mut self, networks: CidrSet) -> Self {
        self.allowed.networks = networks;
        self
    }

    /// With an identity that is exempt: what the source `source` knows as `value`.
    #[must_use]
    pub fn allow(mut self, source: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.allowed.add(source, value.as_ref());
        self
    }

    /// With networks whose clients are refused. The IPv4 address inside a NAT64 or 6to4 address
    /// counts as well.
    #[must_use]
    pub fn deny_networks(mut self, networks: CidrSet) -> Self {
        self.denied.networks = networks;
        self
    }

    /// With an identity that is refused: what the source `source` knows as `value`.
    #[must_use]
    pub fn deny(mut self, source: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.denied.add(source, value.as_ref());
        self
    }

    /// What can be said before it is known who asks: whether the address is refused, or exempt.
    #[must_use]
    pub fn rule_address(&self, request: &Parts) -> Ruling {
        match self.by_address(request) {
            // Whoever is exempt by address may still be refused by name.
            Ruling::Exempt if !self.denied.identities.is_empty() => Ruling::Default,
            ruling => ruling,
        }
    }

    /// What holds for this identity.
    #[must_use]
    pub fn rule(&self, request: &Parts, identity: &Identity) -> Ruling {
        let by_address = self.by_address(request);
        match by_address {
            Ruling::Denied | Ruling::Misconfigured(_) => return by_address,
            _ if self.denied.identities.contains(identity.key()) => return Ruling::Denied,
            Ruling::Exempt => return by_address,
            _ if self.allowed.identities.contains(identity.key()) => return Ruling::Exempt,
            _ => {}
        }
        let chosen = self.chooser.as_ref().and_then(|it| it(identity, request));
        let Some(plan) = chosen.as_deref().or(identity.plan()) else {
            return Ruling::Default;
        };
        match self.limits.get(plan) {
            Some(limit) => Ruling::Limit(Arc::clone(limit)),
            None => {
                if !self.limits.is_empty() && self.unknown.first() {
                    tracing::warn!(
                        source = identity.source(),
                        "an identity has a plan that no limit is set for; the limit of the route \
                         holds for it"
                    );
                }
                Ruling::Default
            }
        }
    }

    /// Whether they say the same of everybody.
    pub(crate) fn is_empty(&self) -> bool {
        let List {
            networks,
            identities,
        } = &self.denied;
        self.limits.is_empty()
            && networks.is_empty()
            && identities.is_empty()
            && self.allowed.networks.is_empty()
            && self.allowed.identities.is_empty()
    }

    /// The limits of all plans.
    pub(crate) fn limits(&self) -> impl Iterator<Item = &Arc<dyn Limit>> {
        self.limits.values()
    }

    fn by_address(&self, request: &Parts) -> Ruling {
        if self.denied.networks.is_empty() && self.allowed.networks.is_empty() {
            return Ruling::Default;
        }
        let Some(client) = client_ip(&request.extensions) else {
            return Ruling::Misconfigured(NO_PEER);
        };
        let denied = &self.denied.networks;
        if denied.contains(client) || denied.contains(address::unwrapped(client)) {
            Ruling::Denied
        } else if self.allowed.networks.contains(client) {
            Ruling::Exempt
        } else {
            Ruling::Default
        }
    }
}

impl List {
    fn add(&mut self, source: &'static str, value: &[u8]) {
        let identity = Identity::new(source, value);
        self.identities.insert(identity.key().clone());
    }
}

/// Names of plans, and how long the lists are.
impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plans")
            .field("plans", &self.limits.keys())
            .field("denied", &self.denied.identities.len())
            .field("allowed", &self.allowed.identities.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tollgate_core::{Decision, Policy};

    use super::*;
    use crate::{ClientIp, LimitError, Limiting};

    #[derive(Debug)]
    struct Named(Policy);

    impl Named {
        fn new(name: &str, quota: &str) -> Arc<Self> {
            Arc::new(Self(Policy::new(name, [quota.parse().unwrap()]).unwrap()))
        }
    }

    impl Limit for Named {
        fn policy(&self) -> &Policy {
            &self.0
        }
        fn charge_now(&self, _: &Key<'_>, _: u64) -> Option<Result<Decision, LimitError>> {
            unreachable!("plans charge nothing")
        }
        fn charge<'a>(&'a self, _: &'a Key<'a>, _: u64) -> Limiting<'a> {
            unreachable!("plans charge nothing")
        }
        fn peek<'a>(&'a self, _: &'a Key<'a>, _: u64) -> Limiting<'a> {
            unreachable!("plans charge nothing")
        }
        fn refund<'a>(&'a self, _: &'a Key<'a>, _: &'a Decision, _: u64) -> Limiting<'a> {
            unreachable!("plans charge nothing")
        }
    }

    fn from(address: &str) -> Parts {
        let mut request = Request::new(());
        if !address.is_empty() {
            let address = ClientIp(address.parse().unwrap());
            request.extensions_mut().insert(address);
        }
        request.into_parts().0
    }

    fn told(ruling: Ruling) -> String {
        match ruling {
            Ruling::Limit(limit) => limit.policy().name().into(),
            other => format!("{other:?}"),
        }
    }

    fn alice() -> Identity {
        Identity::new("subject", "alice")
    }

    #[test]
    fn a_plan_has_the_limit_that_is_set_for_it() {
        let plans = Plans::new()
            .plan("free", Named::new("free", "100/h"))
            .plan("pro", Named::new("pro", "5000/h"));
        let rule = |identity: Identity| told(plans.rule(&from(""), &identity));
        assert_eq!(rule(alice().with_plan("free")), "free");
        assert_eq!(rule(alice().with_plan("pro")), "pro");
        assert_eq!(rule(alice()), "Default");
    }

    #[test]
    fn a_function_may_name_the_plan_and_else_the_identity_does() {
        let plans = Plans::new()
            .plan("free", Named::new("free", "100/h"))
            .plan("pro", Named::new("pro", "5000/h"))
            .limit_from(|identity, parts| {
                (identity.source() == "subject" && parts.uri.path() == "/v2").then_some("pro")
            });
        let mut parts = from("");
        assert_eq!(told(plans.rule(&parts, &alice().with_plan("free"))), "free");
        parts.uri = "/v2".parse().unwrap();
        assert_eq!(told(plans.rule(&parts, &alice().with_plan("free"))), "pro");
    }

    #[test]
    fn a_plan_that_nobody_set_is_warned_of_once_and_named_to_nobody() {
        let log = crate::test_log::Log::new();
        let plans = Plans::new().plan("free", Named::new("free", "100/h"));
        for _ in 0..3 {
            let ruling = plans.rule(&from(""), &alice().with_plan("gold"));
            assert_eq!(told(ruling), "Default");
        }
        assert_eq!(log.count("WARN"), 1, "{}", log.text());
        assert!(!log.text().contains("gold"));
    }

    #[test]
    fn denied_goes_before_allowed_and_both_before_plans() {
        let set = |text| CidrSet::parse([text]).unwrap();
        let plans = Plans::new()
            .plan("pro", Named::new("pro", "5000/h"))
            .deny_networks(set("192.0.2.0/24"))
            .allow_networks(set("192.0.0.0/16"))
            .deny("subject", "mallory")
            .allow("subject", "alice");
        let rule = |address: &str, identity: Identity| told(plans.rule(&from(address), &identity));
        assert_eq!(rule("192.0.2.9", alice()), "Denied");
        assert_eq!(rule("64:ff9b::192.0.2.9", alice()), "Denied");
        assert_eq!(rule("192.0.9.9", Identity::new("subject", "bob")), "Exempt");
        assert_eq!(
            rule("192.0.9.9", Identity::new("subject", "mallory")),
            "Denied"
        );
        assert_eq!(rule("8.8.8.8", alice().with_plan("pro")), "Exempt");
        let bob = Identity::new("subject", "bob").with_plan("pro");
        assert_eq!(rule("8.8.8.8", bob), "pro");
        // The same name by another source is somebody else.
        assert_eq!(
            rule("8.8.8.8", Identity::new("header:x-user", "alice")),
            "Default"
        );
        // An exempt address in an embedded form could be anybody's.
        assert_eq!(
            rule("2002:c000:909::1", Identity::new("ip", "x")),
            "Default"
        );
    }

    #[test]
    fn addresses_are_judged_before_it_is_known_who_asks() {
        let set = |text| CidrSet::parse([text]).unwrap();
        let plans = Plans::new()
            .deny_networks(set("192.0.2.0/24"))
            .allow_networks(set("10.0.0.0/8"));
        assert_eq!(told(plans.rule_address(&from("192.0.2.1"))), "Denied");
        assert_eq!(told(plans.rule_address(&from("10.0.0.1"))), "Exempt");
        assert_eq!(told(plans.rule_address(&from("8.8.8.8"))), "Default");
        assert!(
            told(plans.rule_address(&from(""))).contains("into_make_service_with_connect_info")
        );
        // Somebody is refused by name, so who asks has to be found out.
        let plans = plans.deny("subject", "mallory");
        assert_eq!(told(plans.rule_address(&from("10.0.0.1"))), "Default");
        assert_eq!(told(Plans::new().rule_address(&from(""))), "Default");
    }
}
