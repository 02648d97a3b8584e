//! What a request really cost, once its response is there.

use http::response;

use super::Hook;
use super::decide::{Charge, Charges};

/// What becomes of a charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// It stays.
    #[default]
    Keep,
    /// All of it is given back.
    Refund,
    /// The request cost so much. What was charged beyond is given back; what is missing is charged,
    /// as far as there is something left: nobody owes.
    Cost(u64),
}

/// A handler's word on what its request cost: put it into the extensions of the response.
///
/// ```
/// use axum::Extension;
/// use tollgate_http::ActualCost;
///
/// async fn complete() -> (Extension<ActualCost>, &'static str) {
///     (Extension(ActualCost(317)), "317 tokens of text")
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActualCost(pub u64);

/// What the response and the hooks say.
pub(super) fn said(hooks: &[Hook], response: &response::Parts) -> Settle {
    if let Some(ActualCost(cost)) = response.extensions.get() {
        return Settle::Cost(*cost);
    }
    let said = hooks.iter().map(|hook| hook(response));
    said.into_iter()
        .find(|settle| *settle != Settle::Keep)
        .unwrap_or_default()
}

/// Settles every charge.
pub(super) async fn settle(mut charges: Charges, settle: Settle) -> Charges {
    for charge in charges.iter_mut() {
        let granted = charge.decision.granted();
        let cost = match settle {
            Settle::Keep => continue,
            Settle::Refund => 0,
            Settle::Cost(cost) => cost,
        };
        if cost < granted {
            refund(charge, granted - cost).await;
        } else if cost > granted {
            charge_more(charge, cost - granted).await;
        }
    }
    charges
}

/// Gives so much back.
pub(super) async fn refund(charge: &mut Charge, cost: u64) {
    let Charge {
        limit,
        key,
        decision,
        ..
    } = charge;
    match limit.refund(key, decision, cost).await {
        // An answer without quotas: there was nothing that could be given back.
        Ok(refunded) if !refunded.quotas().is_empty() => *decision = refunded,
        Ok(_) => {}
        Err(error) => {
            tracing::debug!(policy = limit.policy().name(), %error, "a refund was lost");
        }
    }
}

/// Charges as much of this as there is.
async fn charge_more(charge: &mut Charge, missing: u64) {
    let Some(left) = charge.decision.remaining() else {
        return;
    };
    let mut cost = missing.min(left);
    // Others may have taken some meanwhile: then what they left.
    for _ in 0..2 {
        if cost == 0 {
            return;
        }
        let Ok(decision) = charge.limit.charge(&charge.key, cost).await else {
            return;
        };
        if decision.allowed() {
            charge.decision = decision;
            return;
        }
        cost = cost.min(decision.remaining().unwrap_or(0));
    }
}
