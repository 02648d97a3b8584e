//! What the layers ask: a policy with its counters behind it, whatever they are.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tollgate_core::{BackendError, CostError, Decision, Key, Policy};

/// Why a limit gave no decision. That the store does not answer is none of these where a failure
/// policy decides.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The cost can never be granted, or is 0.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The store did not answer, and nobody decided in its place.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// An answer that takes its time.
pub type Limiting<'a> = Pin<Box<dyn Future<Output = Result<Decision, LimitError>> + Send + 'a>>;

/// A policy with its counters behind it. `tollgate::RateLimit` is one.
pub trait Limit: fmt::Debug + Send + Sync + 'static {
    /// The policy.
    fn policy(&self) -> &Policy;

    /// Charges, if that takes no waiting. `None`: nothing was done, ask [`charge`](Self::charge).
    fn charge_now(&self, key: &Key<'_>, cost: u64) -> Option<Result<Decision, LimitError>>;

    /// Charges.
    ///
    /// # Cancellation
    /// A call that is dropped has charged, or it has not.
    fn charge<'a>(&'a self, key: &'a Key<'a>, cost: u64) -> Limiting<'a>;

    /// Asks what a charge would be answered; charges nothing.
    fn peek<'a>(&'a self, key: &'a Key<'a>, cost: u64) -> Limiting<'a>;

    /// Gives `cost` of a charge back where it was charged; at most what it granted.
    fn refund<'a>(&'a self, key: &'a Key<'a>, decision: &'a Decision, cost: u64) -> Limiting<'a>;
}
