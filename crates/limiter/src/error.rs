//! What asking a limiter can fail with.

use tollgate_core::{BackendError, CostError};

/// Why there is no decision.
///
/// A store that does not answer is not among the reasons for a charge or a peek: those are decided
/// by the [`FailurePolicy`](crate::FailurePolicy).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cost can never be charged: it is 0, or more than the policy can ever grant.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The store did not do what was asked. Only for refunds, resets and pings, which nobody else
    /// can do for it.
    #[error(transparent)]
    Backend(#[from] BackendError),
}
