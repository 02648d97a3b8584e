//! What a request really cost, once its response is there.

use std::sync::Arc;

use tollgate_core::Decision;

use super::decide::{Charge, Charges};
use super::prepared::{Entry, Of};

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

/// A handler's word on what its request cost: put it into the extensions of the response. Where the
/// cost is known only when the body has gone, see [`CostMeter`](crate::CostMeter).
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

/// Settles every charge.
pub(super) async fn settle(of: Of, mut charges: Charges, settle: Settle) -> Charges {
    for charge in charges.iter_mut() {
        let granted = charge.decision().granted();
        let cost = match settle {
            Settle::Keep => continue,
            Settle::Refund => 0,
            Settle::Cost(cost) => cost,
        };
        if cost < granted {
            refund(of.entry(), charge, granted - cost).await;
        } else if cost > granted {
            charge_more(of.entry(), charge, cost - granted).await;
        }
    }
    charges
}

/// In place of what was said before; handlers keep what they were told.
fn said(charge: &mut Arc<Charge>, decision: Decision) {
    Arc::make_mut(charge).decision = decision;
}

/// Gives so much back.
pub(super) async fn refund(entry: &Entry, charge: &mut Arc<Charge>, cost: u64) {
    let limit = charge.limit(entry);
    match limit.refund(charge.key(), charge.decision(), cost).await {
        // An answer without quotas: there was nothing that could be given back.
        Ok(refunded) if !refunded.quotas().is_empty() => {
            said(charge, refunded);
        }
        Ok(_) => {}
        Err(error) => {
            tracing::debug!(policy = limit.policy().name(), %error, "a refund was lost");
        }
    }
}

/// Charges as much of this as there is.
async fn charge_more(entry: &Entry, charge: &mut Arc<Charge>, missing: u64) {
    let Some(left) = charge.decision().remaining() else {
        return;
    };
    let mut cost = missing.min(left);
    // Others may have taken some meanwhile: then what they left.
    for _ in 0..2 {
        if cost == 0 {
            return;
        }
        let Ok(decision) = charge.limit(entry).charge(charge.key(), cost).await else {
            return;
        };
        if decision.allowed() {
            said(charge, decision);
            return;
        }
        cost = cost.min(decision.remaining().unwrap_or(0));
    }
}
