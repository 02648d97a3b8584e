//! Who is it, and may it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::request;
use tollgate_core::{Clock, CostError, Decision, Key, Origin, SystemClock};

use super::prepared::{Entry, Prepared};
use crate::rule::Part;
use crate::{Identified, Identity, IdentitySource, Limit, LimitError};

/// What was charged, and where it can be given back.
pub(super) struct Charge {
    pub(super) limit: Arc<dyn Limit>,
    pub(super) key: Key<'static>,
    pub(super) decision: Decision,
}

/// The charges of a request. One is by far the most common number, and needs no allocation.
pub(super) enum Charges {
    One(Charge),
    Many(Vec<Charge>),
}

impl Charges {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Charge> {
        match self {
            Self::One(charge) => std::slice::from_ref(charge).iter(),
            Self::Many(charges) => charges.iter(),
        }
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Charge> {
        match self {
            Self::One(charge) => std::slice::from_mut(charge).iter_mut(),
            Self::Many(charges) => charges.iter_mut(),
        }
    }
}

pub(super) enum Verdict {
    Admitted(Charges),
    Refused(Charges),
    Unknown(Unknown),
}

/// Why it is not known who it is.
#[derive(Clone, Copy)]
pub(super) enum Unknown {
    /// No source knows who it is, or one knows that it is not who it says.
    Unidentified(&'static str),
    /// The service does not say what a source needs.
    Misconfigured(&'static str),
}

impl Prepared {
    /// The verdict, if it takes no waiting. `None`: nothing was charged.
    pub(super) fn decide_now(&self, entry: &Entry, request: &request::Parts) -> Option<Verdict> {
        let [part] = &entry.parts[..] else {
            return None;
        };
        let identity = match self.identify_now(&part.sources, request)? {
            Ok(identity) => identity,
            Err(unknown) => return Some(Verdict::Unknown(unknown)),
        };
        let cost = part.price.of(request);
        if cost == 0 {
            return None;
        }
        let limit = part.limit_of(&identity);
        let limit = Arc::clone(limit);
        let key = part.key(identity, request);
        let decision = match limit.charge_now(&key, cost)? {
            Ok(decision) => decision,
            Err(LimitError::Cost(_)) => return None,
            Err(LimitError::Backend(_)) => unavailable(),
        };
        let allowed = decision.allowed();
        let charges = Charges::One(Charge {
            limit,
            key,
            decision,
        });
        Some(match allowed {
            true => Verdict::Admitted(charges),
            false => Verdict::Refused(charges),
        })
    }

    /// The verdict.
    pub(super) async fn decide(&self, entry: &Entry, request: &request::Parts) -> Verdict {
        let mut charges: Vec<Charge> = Vec::with_capacity(entry.parts.len());
        let mut refused = false;
        for part in &entry.parts {
            let identity = match self.identify(&part.sources, request).await {
                Ok(identity) => identity,
                Err(unknown) => {
                    give_back(&mut charges).await;
                    return Verdict::Unknown(unknown);
                }
            };
            let charge = charge(part, identity, request, refused).await;
            if !refused && !charge.decision.allowed() {
                refused = true;
                give_back(&mut charges).await;
            }
            charges.push(charge);
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

    fn identify_now(
        &self,
        sources: &[Arc<dyn IdentitySource>],
        request: &request::Parts,
    ) -> Option<Result<Identity, Unknown>> {
        for source in sources {
            if let Some(answer) = answered(source.identify_now(request)?) {
                return Some(answer);
            }
        }
        Some(self.nobody())
    }

    async fn identify(
        &self,
        sources: &[Arc<dyn IdentitySource>],
        request: &request::Parts,
    ) -> Result<Identity, Unknown> {
        for source in sources {
            let identified = match source.identify_now(request) {
                Some(identified) => identified,
                None => source.identify(request).await,
            };
            if let Some(answer) = answered(identified) {
                return answer;
            }
        }
        self.nobody()
    }

    fn nobody(&self) -> Result<Identity, Unknown> {
        if self.settings.shared {
            return Ok(Identity::new("unidentified", ""));
        }
        Err(Unknown::Unidentified(
            "The request does not say who it is from",
        ))
    }

    /// Logs a mistake of the service, loudly once.
    pub(super) fn complain(&self, what: &'static str) {
        if self.complained.swap(true, Ordering::Relaxed) {
            tracing::debug!(what, "requests cannot be identified");
        } else {
            tracing::error!(
                what,
                "requests cannot be identified, and are answered with 500"
            );
        }
    }
}

fn answered(identified: Identified) -> Option<Result<Identity, Unknown>> {
    Some(match identified {
        Identified::As(identity) => Ok(identity),
        Identified::Unknown => return None,
        Identified::Invalid(why) => {
            tracing::debug!(why, "a credential is not valid");
            Err(Unknown::Unidentified("The credential is not valid"))
        }
        Identified::Misconfigured(what) => Err(Unknown::Misconfigured(what)),
    })
}

/// Charges; or, where another limit has refused already, only asks.
async fn charge(part: &Part, identity: Identity, request: &request::Parts, ask: bool) -> Charge {
    let cost = part.price.of(request);
    let limit = Arc::clone(part.limit_of(&identity));
    let key = part.key(identity, request);
    let decision = match (ask, cost) {
        (_, 0) => limit.peek(&key, 1).await.map(free),
        (true, _) => limit.peek(&key, cost).await,
        (false, _) => match limit.charge(&key, cost).await {
            // It can never be admitted; a peek says so with what there is.
            Err(LimitError::Cost(CostError::ExceedsCapacity { .. })) => {
                limit.peek(&key, cost).await
            }
            answer => answer,
        },
    };
    Charge {
        decision: decision.unwrap_or_else(|error| {
            tracing::warn!(policy = limit.policy().name(), %error, "no decision");
            unavailable()
        }),
        limit,
        key,
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
fn unavailable() -> Decision {
    let soon = Some(Duration::from_secs(1));
    Decision::unenforced(Origin::FailClosed, false, 0, soon, SystemClock.now())
}

/// Gives back what was charged before another limit refused.
async fn give_back(charges: &mut [Charge]) {
    for charge in charges {
        let granted = charge.decision.granted();
        if granted > 0 {
            super::settle::refund(charge, granted).await;
        }
    }
}

/// The decisions as one: admitted if all admit, else the longest wait.
pub(super) fn joined(charges: &Charges) -> Decision {
    let charges = match charges {
        Charges::One(charge) => return charge.decision.clone(),
        Charges::Many(charges) => charges,
    };
    let at = charges
        .first()
        .map_or_else(Default::default, |it| it.decision.charged_at());
    let decisions = || charges.iter().map(|charge| &charge.decision);
    let counted = |it: &Decision| it.origin().is_enforced() && !it.quotas().is_empty();
    if decisions().all(counted) {
        return Decision::of(
            at,
            decisions().flat_map(|it| it.quotas().to_vec()).collect(),
        );
    }
    let worst = worst(charges).map(|charge| &charge.decision);
    match worst {
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
pub(super) fn worst(charges: &[Charge]) -> Option<&Charge> {
    charges
        .iter()
        .filter(|charge| !charge.decision.allowed())
        .max_by_key(|charge| {
            let decision = &charge.decision;
            let wait = decision.retry_after().unwrap_or(Duration::MAX);
            (decision.origin().is_enforced(), wait)
        })
}
