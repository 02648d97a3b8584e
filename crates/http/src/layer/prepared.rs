//! The settings, worked out once: which rule holds for a request.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use tollgate_core::{Key, Policy};

use super::decide::Charges;
use super::sent::Afterwards;
use super::{Hooks, Settings};
use crate::head::Head;
use crate::rule::{Part, Price};
use crate::{Ip, RateLimitHeaders, Rule, Scope};

pub(crate) struct Prepared {
    pub(super) settings: Settings,
    /// By their numbers.
    entries: Vec<Entry>,
    default: Option<usize>,
    unmatched: Option<usize>,
    any_method: HashMap<Box<str>, usize>,
    by_method: HashMap<Box<str>, Vec<(Method, usize)>>,
    /// The fields of the limits of plans, by the name of the policy.
    plan_headers: HashMap<Box<str>, RateLimitHeaders>,
    pub(super) afterwards: Afterwards,
}

/// The entry of a request, for as long as somebody works on it.
#[derive(Clone)]
pub(super) struct Of {
    pub(super) prepared: Arc<Prepared>,
    pub(super) number: usize,
}

impl Of {
    pub(super) fn new(prepared: &Arc<Prepared>, number: usize) -> Self {
        Self {
            prepared: Arc::clone(prepared),
            number,
        }
    }

    pub(super) fn entry(&self) -> &Entry {
        self.prepared.entry(self.number)
    }
}

/// A rule, with what does not change from request to request.
pub(super) struct Entry {
    pub(super) parts: Vec<Part>,
    pub(super) hooks: Hooks,
    /// What clients read: the policies of the parts, `default` for those without a name.
    pub(super) policies: Vec<Policy>,
    pub(super) headers: RateLimitHeaders,
    /// What it costs, if all there is to it is one limit for each address.
    pub(super) by_address: Option<(Ip, u64)>,
}

impl Prepared {
    pub(super) fn new(settings: &Settings) -> Self {
        let settings = settings.clone();
        let default = settings.default.clone();
        let mut entries = Vec::new();
        let mut entry = |rule: Rule| {
            entries.push(Entry::new(rule, &settings));
            entries.len() - 1
        };
        let mut any_method = HashMap::new();
        let mut by_method: HashMap<Box<str>, Vec<_>> = HashMap::new();
        for (route, rule) in &settings.routes {
            let entry = entry(on_a_route(rule.clone(), default.as_ref()));
            match route.split_once(' ') {
                Some((method, path)) => {
                    let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
                    by_method
                        .entry(path.trim().into())
                        .or_default()
                        .push((method, entry));
                }
                None => {
                    any_method.insert(route.clone(), entry);
                }
            }
        }
        Self {
            default: default.map(&mut entry),
            unmatched: settings.unmatched.clone().map(&mut entry),
            entries,
            any_method,
            by_method,
            plan_headers: settings
                .plans
                .limits()
                .map(|limit| {
                    let headers = RateLimitHeaders::new(limit.policy(), settings.style);
                    (limit.policy().name().into(), headers)
                })
                .collect(),
            settings,
            afterwards: Afterwards::default(),
        }
    }

    pub(super) fn entry(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    /// The rule for a request, if it is limited. What the service exempts by a test of its own is
    /// not asked for.
    pub(super) fn number(&self, head: Head<'_>) -> Option<usize> {
        if self.settings.exempt.is_by_head(head) {
            return None;
        }
        let route = match route(head) {
            Route::Template(template) => template,
            Route::NoRouter => head.uri.path(),
            Route::None => return self.unmatched,
        };
        if !self.by_method.is_empty() {
            let method = counted_as(head.method);
            let rules = self.by_method.get(route).into_iter().flatten();
            if let Some((_, entry)) = rules.into_iter().find(|(of, _)| of == method) {
                return Some(*entry);
            }
        }
        if !self.any_method.is_empty()
            && let Some(entry) = self.any_method.get(route)
        {
            return Some(*entry);
        }
        self.default
    }

    /// The fields for these charges, of which some may be those of plans.
    pub(super) fn headers<'a>(
        &'a self,
        entry: &'a Entry,
        charges: &Charges,
    ) -> Cow<'a, RateLimitHeaders> {
        match charges {
            Charges::One(charge) if !charge.is_planned() => return Cow::Borrowed(&entry.headers),
            Charges::One(charge) => {
                if let Some(headers) = self.plan_headers.get(charge.policy().name()) {
                    return Cow::Borrowed(headers);
                }
            }
            Charges::Many(charges) => {
                if charges.iter().all(|charge| !charge.is_planned()) {
                    return Cow::Borrowed(&entry.headers);
                }
            }
        }
        let policies = charges.iter().map(|charge| charge.policy().clone());
        let policies: Vec<_> = policies.collect();
        Cow::Owned(RateLimitHeaders::joined(&policies, self.settings.style))
    }
}

/// A rule without a name has a budget for each route; with the default's quotas, the default's.
fn on_a_route(mut rule: Rule, default: Option<&Rule>) -> Rule {
    let default = default.and_then(|rule| match &rule.parts[..] {
        [part] => Some(part),
        _ => None,
    });
    for part in rule.parts.iter_mut().filter(|part| !part.named) {
        match default {
            Some(default) if default.limit.policy().quotas() == part.limit.policy().quotas() => {
                part.limit = Arc::clone(&default.limit);
                part.scope = default.scope.clone();
                part.by_route = default.by_route;
                part.named = default.named;
            }
            _ => part.by_route(),
        }
    }
    rule
}

pub(crate) fn counted_as(method: &Method) -> &Method {
    if *method == Method::HEAD {
        &Method::GET
    } else {
        method
    }
}

pub(crate) enum Route<'a> {
    #[cfg_attr(not(feature = "axum"), expect(dead_code, reason = "only axum tells"))]
    Template(&'a str),
    /// There is a router, and it knows no route.
    #[cfg_attr(not(feature = "axum"), expect(dead_code, reason = "only axum tells"))]
    None,
    NoRouter,
}

#[cfg(feature = "axum")]
pub(crate) fn route(head: Head<'_>) -> Route<'_> {
    use axum::extract::{MatchedPath, OriginalUri};
    let extensions = head.extensions;
    match extensions.get::<MatchedPath>() {
        Some(path) => Route::Template(path.as_str()),
        // A router leaves the URI as it came with every request, whether it knows a route or not.
        None if extensions.get::<OriginalUri>().is_some() => Route::None,
        None => Route::NoRouter,
    }
}

#[cfg(not(feature = "axum"))]
pub(crate) fn route(_: Head<'_>) -> Route<'_> {
    Route::NoRouter
}

impl Entry {
    fn new(rule: Rule, settings: &Settings) -> Self {
        let parts = rule.parts;
        let policies: Vec<_> = parts.iter().map(shown).collect();
        let mut hooks = rule.hooks;
        hooks.extend(settings.hooks.clone());
        Self {
            headers: RateLimitHeaders::joined(&policies, settings.style),
            by_address: by_address(&parts, settings),
            parts,
            hooks,
            policies,
        }
    }
}

/// One limit for each address, and nothing that has to see all of the request.
fn by_address(parts: &[Part], settings: &Settings) -> Option<(Ip, u64)> {
    let [part] = parts else { return None };
    if !settings.plans.is_empty() || !settings.exempt.tests.is_empty() {
        return None;
    }
    let source: &dyn Any = &**part.source.as_ref().unwrap_or(&settings.source);
    match part.price {
        Price::Fixed(cost) if cost > 0 => Some((*source.downcast_ref()?, cost)),
        _ => None,
    }
}

/// The policy as clients read it.
fn shown(part: &Part) -> Policy {
    let policy = part.limit.policy();
    if part.named {
        return policy.clone();
    }
    let quotas = policy.quotas().iter().cloned();
    Policy::new("default", quotas).unwrap_or_else(|_| policy.clone())
}

impl Part {
    /// What is counted: the identity, and the scope unless the policy is that.
    pub(super) fn key(&self, identity: Key<'static>, head: Head<'_>) -> Key<'static> {
        match &self.scope {
            Scope::Policy => identity,
            Scope::Named(name) => Key::from_parts([b"scope", name.as_bytes(), identity.as_bytes()]),
            Scope::Route => {
                let route = match route(head) {
                    Route::Template(template) => template,
                    Route::None | Route::NoRouter => head.uri.path(),
                };
                let method = counted_as(head.method).as_str().as_bytes();
                Key::from_parts([b"route", method, route.as_bytes(), identity.as_bytes()])
            }
        }
    }
}
