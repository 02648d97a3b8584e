//! The settings, worked out once: which rule holds for a request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use http::{Method, request};
use tollgate_core::{Key, Policy};

use super::decide::{Charge, Charges};
use super::{Hook, Settings};
use crate::rule::Part;
use crate::{Identity, RateLimitHeaders, Rule, Scope};

pub(crate) struct Prepared {
    pub(super) settings: Settings,
    default: Option<Arc<Entry>>,
    unmatched: Option<Arc<Entry>>,
    any_method: HashMap<Box<str>, Arc<Entry>>,
    by_method: HashMap<Box<str>, Vec<(Method, Arc<Entry>)>>,
    /// The fields of the limits of plans, by the name of the policy.
    plan_headers: HashMap<Box<str>, RateLimitHeaders>,
}

/// A rule, with what does not change from request to request.
pub(super) struct Entry {
    pub(super) parts: Vec<Part>,
    pub(super) hooks: Vec<Hook>,
    /// What clients read: the policies of the parts, `default` for those without a name.
    pub(super) policies: Vec<Policy>,
    pub(super) headers: RateLimitHeaders,
}

impl Prepared {
    pub(super) fn new(settings: &Settings) -> Self {
        let settings = settings.clone();
        let default = settings.default.clone();
        let entry = |rule: Rule| Arc::new(Entry::new(rule, &settings));
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
            default: default.map(entry),
            unmatched: settings.unmatched.clone().map(entry),
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
        }
    }

    /// The rule for a request, if it is limited.
    pub(super) fn entry(&self, request: &request::Parts) -> Option<&Arc<Entry>> {
        if self.settings.exempt.is(request) {
            return None;
        }
        let route = match route(request) {
            Route::Template(template) => template,
            Route::NoRouter => request.uri.path(),
            Route::None => return self.unmatched.as_ref(),
        };
        if !self.by_method.is_empty() {
            let method = counted_as(&request.method);
            let rules = self.by_method.get(route).into_iter().flatten();
            if let Some((_, entry)) = rules.into_iter().find(|(of, _)| of == method) {
                return Some(entry);
            }
        }
        if !self.any_method.is_empty()
            && let Some(entry) = self.any_method.get(route)
        {
            return Some(entry);
        }
        self.default.as_ref()
    }

    /// The fields for these charges, of which some may be those of plans.
    pub(super) fn headers<'a>(
        &'a self,
        entry: &'a Entry,
        charges: &Charges,
    ) -> Cow<'a, RateLimitHeaders> {
        if charges.iter().all(|charge| !charge.planned) {
            return Cow::Borrowed(&entry.headers);
        }
        if let Charges::One(charge) = charges
            && let Some(headers) = self.plan_headers.get(charge.limit.policy().name())
        {
            return Cow::Borrowed(headers);
        }
        let policies: Vec<_> = charges
            .iter()
            .enumerate()
            .map(|(part, charge)| entry.policy(part, charge).clone())
            .collect();
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
                part.named = default.named;
            }
            _ if part.scope == Scope::Policy => part.scope = Scope::Route,
            _ => {}
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
pub(crate) fn route(request: &request::Parts) -> Route<'_> {
    use axum::extract::{MatchedPath, OriginalUri};
    let extensions = &request.extensions;
    match extensions.get::<MatchedPath>() {
        Some(path) => Route::Template(path.as_str()),
        // A router leaves the URI as it came with every request, whether it knows a route or not.
        None if extensions.get::<OriginalUri>().is_some() => Route::None,
        None => Route::NoRouter,
    }
}

#[cfg(not(feature = "axum"))]
pub(crate) fn route(_: &request::Parts) -> Route<'_> {
    Route::NoRouter
}

impl Entry {
    fn new(rule: Rule, settings: &Settings) -> Self {
        let parts = rule.parts;
        let policies: Vec<_> = parts.iter().map(shown).collect();
        let mut hooks = rule.hooks;
        hooks.extend(settings.hooks.iter().cloned());
        Self {
            headers: RateLimitHeaders::joined(&policies, settings.style),
            parts,
            hooks,
            policies,
        }
    }
}

impl Entry {
    /// The policy of a charge, as clients read it.
    pub(super) fn policy<'a>(&'a self, part: usize, charge: &'a Charge) -> &'a Policy {
        match charge.planned {
            true => charge.limit.policy(),
            false => &self.policies[part],
        }
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
    pub(super) fn key(&self, identity: Identity, request: &request::Parts) -> Key<'static> {
        let (kind, scope) = match &self.scope {
            Scope::Policy => return identity.into_key(),
            Scope::Named(name) => ("scope", Cow::Borrowed(name.as_ref())),
            Scope::Route => {
                let route = match route(request) {
                    Route::Template(template) => template,
                    Route::None | Route::NoRouter => request.uri.path(),
                };
                let method = counted_as(&request.method);
                ("route", Cow::Owned(format!("{method} {route}")))
            }
        };
        Key::from_parts([kind.as_bytes(), scope.as_bytes(), identity.key().as_bytes()])
    }
}
