//! A rule that can be asked: its policies, slots and header fields, made once.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, Method};
use metrics::{Counter, counter};
use tollgate::{Concurrency, LeaseBackend, Limiter, Policy, Quota, RateLimit, Timestamp};
use tollgate_http::{CidrSet, HeaderStyle, RateLimitHeaders};

use super::model::{Config, Rule, Slots};
use super::pattern::Pattern;
use super::read::DEFAULT_ID;
use super::value::Values;
use super::{Decimal, IdentityType};

/// What a rule may ask of a request.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its path, as it is forwarded: normalised, without the query.
    pub path: &'a str,
    /// Its header fields.
    pub headers: &'a HeaderMap,
    /// Its client's address, where that is known.
    pub client: Option<IpAddr>,
    /// The plan that the identity brings.
    pub plan: Option<&'a str>,
    /// Now.
    pub now: Timestamp,
}

/// A rule in force.
pub struct LiveRule {
    rule: Rule,
    counted: Counted,
    plans: HashMap<Box<str>, Counted>,
    exempt: Option<Exemptions>,
    /// How many it would have refused, if it only watches.
    shadowed: Counter,
}

/// What is counted for a rule, or for one of its plans.
#[derive(Debug, Default)]
pub struct Counted {
    /// No other one in this process has the same, but for those that count nothing.
    pub(crate) number: u64,
    /// All its quotas, in one policy.
    pub limit: Option<RateLimit>,
    /// Its requests in flight.
    pub slots: Option<Concurrency>,
    /// The header fields of `limit`.
    pub headers: Option<Arc<RateLimitHeaders>>,
    /// Nothing is ever admitted.
    pub blocks: bool,
}

/// What a rule asks for.
#[derive(Clone, Copy, Debug)]
pub enum Ruling<'a> {
    /// Nothing is counted: its mode is off, or the request is exempt.
    Free,
    /// The limit is 0.
    Blocked,
    /// This is counted, and [`Rule::cost`] charged.
    Counted(&'a Counted),
}

#[derive(Debug)]
struct Exemptions {
    values: Values<()>,
    networks: CidrSet,
    paths: Vec<Pattern>,
    methods: HashSet<Method>,
}

/// Puts an identity that a rule names into the form in which requests bring it.
pub type Normalise = Arc<dyn Fn(IdentityType, &str) -> Vec<u8> + Send + Sync>;

/// Makes rules that can be asked.
#[derive(Clone)]
pub struct Compiler {
    /// Who counts.
    pub limiter: Limiter,
    /// The header fields of answers.
    pub headers: HeaderStyle,
    /// What holds where no rule does. As quotas, since not every one of them can be written in a
    /// rule: 100 a minute are no number of tokens a second.
    pub default: Vec<Quota>,
    /// An identity as it is written in a rule, in the form that requests bring: a network for an
    /// address, `+` and digits for a phone number. What is none stays as it is.
    pub normalise: Normalise,
}

/// Why a rule cannot be asked in this store: for whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotCountable(pub String);

impl Compiler {
    /// A rule in force.
    ///
    /// # Errors
    /// The store cannot count it.
    pub fn live(&self, rule: Rule) -> Result<LiveRule, NotCountable> {
        let counted = self.counted(&rule, "", rule.configs())?;
        let mut plans = HashMap::new();
        for (name, plan) in rule.limit_from.iter().flat_map(|it| &it.plans) {
            let counted = self.counted(&rule, name, plan.configs())?;
            plans.insert(name.as_str().into(), counted);
        }
        let exempt = rule.exempt.as_ref().map(|exempt| {
            let mut values = Values::default();
            for value in &exempt.identity_values {
                values.entry(self, rule.identity_type, value);
            }
            Exemptions {
                values,
                networks: CidrSet::parse(&exempt.networks).unwrap_or_default(),
                paths: exempt
                    .paths
                    .iter()
                    .filter_map(|path| Pattern::parse(path).ok())
                    .collect(),
                methods: exempt
                    .methods
                    .iter()
                    .filter_map(|it| it.parse().ok())
                    .collect(),
            }
        });
        let shadowed = match rule.mode {
            super::Mode::Shadow => {
                counter!("tollgate_shadow_refusals_total", "rule" => rule.id.clone())
            }
            _ => Counter::noop(),
        };
        Ok(LiveRule {
            rule,
            counted,
            plans,
            exempt,
            shadowed,
        })
    }

    /// The rule that holds for this type where no other does.
    ///
    /// # Errors
    /// The store cannot count it.
    pub fn default_rule(&self, identity_type: IdentityType) -> Result<LiveRule, NotCountable> {
        let mut configs: Vec<_> = self.default.iter().map(Config::nearest).collect();
        let config = match configs.len() {
            1 => configs.pop(),
            _ => None,
        };
        let rule = Rule {
            id: DEFAULT_ID.into(),
            name: DEFAULT_ID.into(),
            identity_type,
            priority: i32::MIN,
            enabled: true,
            config,
            quotas: configs,
            matching: None,
            cost: 1,
            mode: super::Mode::Enforce,
            not_before: None,
            expires: None,
            managed_by: None,
            limit_from: None,
            exempt: None,
        };
        let counted = self.counted_by(&rule, "", rule.configs(), self.default.clone(), None)?;
        Ok(LiveRule {
            rule,
            counted,
            plans: HashMap::new(),
            exempt: None,
            shadowed: Counter::noop(),
        })
    }

    /// Whether the store can count a rule. Nothing is registered.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self, rule: &Rule) -> Result<(), NotCountable> {
        let plans = rule.limit_from.iter().flat_map(|it| it.plans.values());
        for configs in std::iter::once(rule.configs()).chain(plans.map(super::Plan::configs)) {
            let (quotas, slots) = parts(configs);
            if !quotas.is_empty() {
                let policy = policy(&rule.id, quotas)?;
                let accepted = tollgate::CounterBackend::accepts(self.limiter.backend(), &policy);
                accepted.map_err(|error| NotCountable(error.to_string()))?;
            }
            if let Some(slots) = slots {
                self.check_slots(slots.slots)?;
            }
        }
        Ok(())
    }

    fn check_slots(&self, slots: u32) -> Result<(), NotCountable> {
        let Some(leases) = self.limiter.backend().leases() else {
            return Err(NotCountable(format!(
                "{} cannot hold slots; use another algorithm, or redis://, dynamodb:// or memory://",
                self.limiter.backend()
            )));
        };
        // A rule has one or more.
        let accepted = NonZeroU32::new(slots).map_or(Ok(()), |slots| leases.accepts_slots(slots));
        accepted.map_err(|error| NotCountable(error.to_string()))
    }

    fn counted(
        &self,
        rule: &Rule,
        plan: &str,
        configs: &[Config],
    ) -> Result<Counted, NotCountable> {
        if configs.iter().any(Config::blocks) {
            return Ok(Counted {
                blocks: true,
                ..Counted::default()
            });
        }
        let (quotas, slots) = parts(configs);
        self.counted_by(rule, plan, configs, quotas, slots)
    }

    fn counted_by(
        &self,
        rule: &Rule,
        plan: &str,
        configs: &[Config],
        quotas: Vec<Quota>,
        slots: Option<&Slots>,
    ) -> Result<Counted, NotCountable> {
        let algorithm = match configs {
            [config] => config.family(),
            _ => "multi",
        };
        let name = policy_name(algorithm, &rule.id, plan, rule.identity_type);
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let mut counted = Counted {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            ..Counted::default()
        };
        if !quotas.is_empty() {
            let limit = self
                .limiter
                .replace_policy(&name, quotas.iter().copied())
                .map_err(|error| NotCountable(error.to_string()))?;
            // Clients read the id, and not how keys are made.
            let shown = policy(&rule.id, quotas)?;
            counted.headers = Some(Arc::new(RateLimitHeaders::new(&shown, self.headers)));
            counted.limit = Some(limit);
        }
        if let Some(slots) = slots {
            let seconds = |it: Decimal| Duration::from_micros(it.millionths());
            let mut limit = self
                .limiter
                .concurrency(&name, slots.slots)
                .ttl(seconds(slots.ttl_seconds))
                .wait(seconds(slots.wait_seconds))
                .replace();
            if rule.identity_type != IdentityType::Global {
                limit = limit.per_client();
            }
            let limit = limit
                .build()
                .map_err(|error| NotCountable(error.to_string()))?;
            counted.slots = Some(limit);
        }
        Ok(counted)
    }
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler")
            .field("limiter", &self.limiter)
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

/// The quotas among ways to count, and the slots.
fn parts(configs: &[Config]) -> (Vec<Quota>, Option<&Slots>) {
    let quotas = configs
        .iter()
        .filter_map(|config| config.quota()?.ok())
        .collect();
    let slots = configs.iter().find_map(|config| match config {
        Config::Concurrency(slots) => Some(slots),
        _ => None,
    });
    (quotas, slots)
}

fn policy(name: &str, quotas: Vec<Quota>) -> Result<Policy, NotCountable> {
    Policy::new(name, quotas).map_err(|error| NotCountable(error.to_string()))
}

/// `{algorithm|multi}:{rule_id}:{identity_type}`; with a plan `{rule_id}.{plan}`, which is no id.
fn policy_name(algorithm: &str, id: &str, plan: &str, identity_type: IdentityType) -> String {
    let dot = if plan.is_empty() { "" } else { "." };
    format!("{algorithm}:{id}{dot}{plan}:{identity_type}")
}

impl LiveRule {
    /// The rule as it is written.
    #[must_use]
    pub const fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Its id; for metrics, too.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.rule.id
    }

    /// What holds for those on no plan.
    #[must_use]
    pub const fn counted(&self) -> &Counted {
        &self.counted
    }

    /// What holds for each plan.
    pub fn plans(&self) -> impl Iterator<Item = (&str, &Counted)> {
        self.plans.iter().map(|(name, counted)| (&**name, counted))
    }

    /// What it asks for, of this identity and request.
    #[must_use]
    pub fn ruling(&self, value: &[u8], facts: &Facts<'_>) -> Ruling<'_> {
        if self.rule.mode == super::Mode::Off || self.exempts(value, facts) {
            return Ruling::Free;
        }
        let counted = self.counted_for(facts);
        if counted.blocks {
            Ruling::Blocked
        } else {
            Ruling::Counted(counted)
        }
    }

    /// Tells of a request that passes only because the rule just watches.
    pub(crate) fn would_have_refused(&self) {
        self.shadowed.increment(1);
        tracing::debug!(rule = self.id(), "this would have been refused");
    }

    /// The names under which it counts.
    pub(super) fn policy_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.counted)
            .chain(self.plans.values())
            .flat_map(|counted| {
                let limit = counted.limit.as_ref().map(RateLimit::name);
                limit.or_else(|| counted.slots.as_ref().map(Concurrency::name))
            })
    }

    fn counted_for(&self, facts: &Facts<'_>) -> &Counted {
        let Some(from) = &self.rule.limit_from else {
            return &self.counted;
        };
        let plan = match &from.header {
            Some(header) => facts.headers.get(header).and_then(|it| it.to_str().ok()),
            None => facts.plan,
        };
        plan.and_then(|plan| self.plans.get(plan))
            .unwrap_or(&self.counted)
    }

    fn exempts(&self, value: &[u8], facts: &Facts<'_>) -> bool {
        let Some(exempt) = &self.exempt else {
            return false;
        };
        exempt.methods.contains(facts.method)
            || exempt.paths.iter().any(|path| path.matches(facts.path))
            || facts.client.is_some_and(|it| exempt.networks.contains(it))
            || exempt.values.find(value).next().is_some()
    }

    /// Whether it holds at this time for a request with these header fields.
    pub(super) fn holds(&self, facts: &Facts<'_>) -> bool {
        let rule = &self.rule;
        let now = facts.now.as_micros();
        rule.not_before.as_ref().is_none_or(|it| it.micros <= now)
            && rule.expires.as_ref().is_none_or(|it| now < it.micros)
            && rule.matching.as_ref().is_none_or(|matching| {
                matching.headers.iter().all(|(name, value)| {
                    let mut values = facts.headers.get_all(name).iter();
                    values.any(|it| it.as_bytes() == value.as_bytes())
                })
            })
    }

    pub(super) fn share(self) -> Arc<Self> {
        Arc::new(self)
    }
}

impl fmt::Debug for LiveRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRule")
            .field("id", &self.rule.id)
            .field("counted", &self.counted)
            .finish_non_exhaustive()
    }
}
