//! Who is it, and may it.

use std::sync::Arc;
use std::time::Duration;

use http::request;
use tollgate_core::{Clock, CostError, Decision, Key, Origin, Policy, SystemClock};

use super::prepared::{Entry, Prepared};
use crate::head::Head;
use crate::rule::Part;
use crate::{Identified, Identity, IdentitySource, Limit, LimitError, Limited, Ruling};

/// A charge: what was said, and where it can be given back. It is written once; whoever asks for it
/// later shares it.
#[derive(Clone)]
pub(crate) struct Charge {
    /// Which limit of the rule.
    part: usize,
    /// The limit of a plan, in place of that one.
    planned: Option<Arc<dyn Limit>>,
    key: Key<'static>,
    /// As clients read it.
    policy: Policy,
    pub(super) decision: Decision,
}

impl Charge {
    pub(super) fn limit<'a>(&'a self, entry: &'a Entry) -> &'a dyn Limit {
        &**self
            .planned
            .as_ref()
            .unwrap_or(&entry.parts[self.part].limit)
    }

    /// Whether the limit is that of a plan.
    pub(super) const fn is_planned(&self) -> bool {
        self.planned.is_some()
    }

    /// What was said where nothing can be given back.
    pub(crate) fn of_nobody(policy: Policy, decision: Decision) -> Self {
        Self {
            part: 0,
            planned: None,
            key: Key::from(String::new()),
            policy,
            decision,
        }
    }

    pub(crate) const fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) const fn key(&self) -> &Key<'static> {
        &self.key
    }

    pub(crate) const fn decision(&self) -> &Decision {
        &self.decision
    }
}

/// The charges of a request. One is by far the most common number.
#[derive(Clone)]
pub(super) enum Charges {
    One(Arc<Charge>),
    Many(Vec<Arc<Charge>>),
}

impl Charges {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Arc<Charge>> {
        match self {
            Self::One(charge) => std::slice::from_ref(charge).iter(),
            Self::Many(charges) => charges.iter(),
        }
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Arc<Charge>> {
        match self {
            Self::One(charge) => std::slice::from_mut(charge).iter_mut(),
            Self::Many(charges) => charges.iter_mut(),
        }
    }
}

pub(super) enum Verdict {
    Admitted(Charges),
    Refused(Charges),
    Unlimited(Unlimited),
}

/// What follows where no limit is asked.
#[derive(Clone, Copy)]
pub(super) enum Unlimited {
    /// Nothing limits it.
    Exempt,
    /// It is refused for good, and nothing was charged.
    Denied(Denied),
}

/// Why a request is refused without a limit.
#[derive(Clone, Copy)]
pub(crate) enum Denied {
    /// No source knows who it is, or one knows that it is not who it says.
    Unidentified(&'static str),
    /// The list says so.
    Listed,
    /// The service does not say what is needed to know.
    Misconfigured(&'static str),
}

/// Who it is, and by which limit.
struct Known {
    planned: Option<Arc<dyn Limit>>,
    key: Key<'static>,
}

impl Prepared {
    /// The verdict, if it takes no waiting. `None`: nothing was charged.
    pub(super) fn decide_now(&self, entry: &Entry, request: &request::Parts) -> Option<Verdict> {
        let [part] = &entry.parts[..] else {
            return None;
        };
        if let Some(verdict) = self.by_address(request) {
            return Some(verdict);
        }
        let identified = self.source(part).identify_now(request)?;
        let known = match self.known(part, identified, request) {
            Ok(known) => known,
            Err(unlimited) => return Some(Verdict::Unlimited(unlimited)),
        };
        let cost = part.price.of(request);
        if cost == 0 {
            return None;
        }
        let limit = known.planned.as_ref().unwrap_or(&part.limit);
        let decision = charge_now(&**limit, &known.key, cost)?;
        let charge = Arc::new(known.charged(entry, 0, decision));
        Some(match charge.decision().allowed() {
            true => Verdict::Admitted(Charges::One(charge)),
            false => Verdict::Refused(Charges::One(charge)),
        })
    }

    /// The same for a rule that is [`by_address`](Entry::by_address), of a request that is whole yet.
    #[inline]
    pub(super) fn decide_by_address(&self, entry: &Entry, head: Head<'_>) -> Option<Verdict> {
        let ((ip, cost), [part]) = (entry.by_address.as_ref()?, &entry.parts[..]) else {
            return None;
        };
        let key = match ip.key(head) {
            Ok(key) => part.key(key, head),
            Err(missing) => {
                let denied = Denied::Misconfigured(missing);
                return Some(Verdict::Unlimited(Unlimited::Denied(denied)));
            }
        };
        let decision = charge_now(&*part.limit, &key, *cost)?;
        let charge = Arc::new(Charge {
            part: 0,
            planned: None,
            key,
            policy: entry.policies[0].clone(),
            decision,
        });
        Some(match charge.decision().allowed() {
            true => Verdict::Admitted(Charges::One(charge)),
            false => Verdict::Refused(Charges::One(charge)),
        })
    }

    /// The verdict.
    pub(super) async fn decide(&self, entry: &Entry, request: &request::Parts) -> Verdict {
        if let Some(verdict) = self.by_address(request) {
            return verdict;
        }
        let mut charges: Vec<Arc<Charge>> = Vec::with_capacity(entry.parts.len());
        let mut refused = false;
        for (number, part) in entry.parts.iter().enumerate() {
            let source = self.source(part);
            let identified = match source.identify_now(request) {
                Some(identified) => identified,
                None => source.identify(request).await,
            };
            let known = match self.known(part, identified, request) {
                Ok(known) => known,
                Err(unlimited) => {
                    give_back(entry, &mut charges).await;
                    return Verdict::Unlimited(unlimited);
                }
            };
            let cost = part.price.of(request);
            let charge = known.charge(entry, number, cost, refused).await;
            if !refused && !charge.decision().allowed() {
                refused = true;
                give_back(entry, &mut charges).await;
            }
            charges.push(Arc::new(charge));
        }
        let charges = match charges.len() {
            1 => Charges::One(charges.remove(0)),
            _ => Charges::Many(charges),
        };
        match refused {
            true => Verdict::Refused(charges),
            false => Verdict::Admitted(charges),
        }
    }

    fn source<'a>(&'a self, part: &'a Part) -> &'a dyn IdentitySource {
        &**part.source.as_ref().unwrap_or(&self.settings.source)
    }

    /// What can be said before it is known who asks.
    fn by_address(&self, request: &request::Parts) -> Option<Verdict> {
        if self.settings.plans.is_empty() {
            return None;
        }
        let ruling = self.settings.plans.rule_address(request);
        self.limit_by(ruling).err().map(Verdict::Unlimited)
    }

    /// The limit of a plan, or what follows instead.
    fn limit_by(&self, ruling: Ruling) -> Result<Option<Arc<dyn Limit>>, Unlimited> {
        match ruling {
            Ruling::Default => Ok(None),
            Ruling::Limit(limit) => Ok(Some(limit)),
            Ruling::Exempt => Err(Unlimited::Exempt),
            Ruling::Denied => Err(Unlimited::Denied(Denied::Listed)),
            Ruling::Misconfigured(what) => Err(Unlimited::Denied(Denied::Misconfigured(what))),
        }
    }

    fn known(
        &self,
        part: &Part,
        identified: Identified,
        request: &request::Parts,
    ) -> Result<Known, Unlimited> {
        let identity = match identified {
            Identified::As(identity) => identity,
            other => return Err(Unlimited::Denied(nobody(other))),
        };
        let planned = match self.settings.plans.is_empty() {
            true => None,
            false => self.limit_by(self.settings.plans.rule(request, &identity))?,
        };
        let identity = identity.into_key();
        let key = match &planned {
            // What a plan allows is for all routes together, whichever of their limits it replaces.
            Some(_) if part.by_route => identity,
            _ => part.key(identity, request.into()),
        };
        Ok(Known { planned, key })
    }
}

/// Who it is, or why that is not enough.
pub(crate) fn identified(identified: Identified) -> Result<Identity, Denied> {
    match identified {
        Identified::As(identity) => Ok(identity),
        other => Err(nobody(other)),
    }
}

#[cold]
fn nobody(identified: Identified) -> Denied {
    match identified {
        Identified::As(_) | Identified::Unknown => {
            Denied::Unidentified("The request does not say who it is from")
        }
        Identified::Invalid(why) => {
            tracing::debug!(why, "a credential is not valid");
            Denied::Unidentified("The credential is not valid")
        }
        Identified::Misconfigured(what) => Denied::Misconfigured(what),
    }
}

impl Known {
    fn charged(self, entry: &Entry, part: usize, decision: Decision) -> Charge {
        let policy = match &self.planned {
            Some(limit) => limit.policy(),
            None => &entry.policies[part],
        };
        Charge {
            policy: policy.clone(),
            part,
            planned: self.planned,
            key: self.key,
            decision,
        }
    }

    /// Charges; or, where another limit has refused already, only asks.
    async fn charge(self, entry: &Entry, part: usize, cost: u64, ask: bool) -> Charge {
        let key = &self.key;
        let limit = &**self.planned.as_ref().unwrap_or(&entry.parts[part].limit);
        let decision = match (ask, cost) {
            (_, 0) => limit.peek(key, 1).await.map(free),
            (true, _) => limit.peek(key, cost).await,
            (false, _) => match limit.charge(key, cost).await {
                // It can never be admitted; a peek says so with what there is.
                Err(LimitError::Cost(CostError::ExceedsCapacity { .. })) => {
                    limit.peek(key, cost).await
                }
                answer => answer,
            },
        };
        let decision = decision.unwrap_or_else(|error| unavailable(limit, &error));
        self.charged(entry, part, decision)
    }
}

/// What was said, if that takes no waiting and the cost can be granted.
#[inline(always)]
fn charge_now(limit: &dyn Limit, key: &Key<'_>, cost: u64) -> Option<Decision> {
    match limit.charge_now(key, cost)? {
        Ok(decision) => Some(decision),
        Err(LimitError::Cost(_)) => None,
        Err(LimitError::Backend(error)) => Some(unavailable(limit, &error)),
    }
}

/// What costs nothing is admitted, whatever is left.
fn free(peeked: Decision) -> Decision {
    let answers = peeked.quotas().iter().map(|answer| {
        let mut answer = *answer;
        answer.allowed = true;
        answer.retry_after = None;
        answer
    });
    Decision::of(peeked.charged_at(), answers.collect()).with_origin(peeked.origin())
}

/// The store did not answer, and nobody decided in its place.
fn unavailable(limit: &dyn Limit, error: &dyn std::error::Error) -> Decision {
    tracing::warn!(policy = limit.policy().name(), %error, "no decision");
    closed()
}

/// Refused because nobody knows better.
pub(crate) fn closed() -> Decision {
    let soon = Some(Duration::from_secs(1));
    Decision::unenforced(Origin::FailClosed, false, 0, soon, SystemClock.now())
}

/// Gives back what was charged before another limit refused.
async fn give_back(entry: &Entry, charges: &mut [Arc<Charge>]) {
    for charge in charges {
        let granted = charge.decision().granted();
        if granted > 0 {
            super::settle::refund(entry, charge, granted).await;
        }
    }
}

/// The decisions as one: admitted if all admit, else the longest wait. The policy is that of the
/// first.
pub(super) fn joined(charges: &Charges) -> Limited {
    Limited::new(match charges {
        Charges::One(charge) => Arc::clone(charge),
        Charges::Many(charges) => {
            let policy = charges[0].policy().clone();
            Arc::new(Charge::of_nobody(policy, all(charges)))
        }
    })
}

/// The decisions as one.
pub(super) fn all(charges: &[Arc<Charge>]) -> Decision {
    let at = charges[0].decision().charged_at();
    let decisions = || charges.iter().map(|charge| charge.decision());
    let counted = |it: &Decision| it.origin().is_enforced() && !it.quotas().is_empty();
    if decisions().all(counted) {
        return Decision::of(
            at,
            decisions().flat_map(|it| it.quotas().to_vec()).collect(),
        );
    }
    match worst(charges).map(|charge| charge.decision()) {
        Some(refusal) => Decision::unenforced(
            refusal.origin(),
            false,
            0,
            decisions().filter_map(Decision::retry_after).max(),
            at,
        ),
        None => {
            let origin = decisions()
                .map(Decision::origin)
                .find(|origin| !origin.is_enforced())
                .unwrap_or(Origin::FailOpen);
            Decision::unenforced(origin, true, 0, None, at)
        }
    }
}

/// The refusal that speaks: a quota's before one of an outage, then the longest wait, never being
/// the longest.
pub(super) fn worst(charges: &[Arc<Charge>]) -> Option<&Arc<Charge>> {
    charges
        .iter()
        .filter(|charge| !charge.decision().allowed())
        .max_by_key(|charge| {
            let decision = charge.decision();
            let wait = decision.retry_after().unwrap_or(Duration::MAX);
            (decision.origin().is_enforced(), wait)
        })
}
