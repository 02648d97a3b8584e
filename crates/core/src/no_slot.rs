//! Why there is no permit.

use std::time::Duration;

use crate::BackendError;

/// Why a limit on concurrency gave no permit.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::NoSlot;
///
/// let full = NoSlot::Full {
///     in_use: 4,
///     slots: 4,
///     retry_after: Duration::from_secs(1),
///     per_client: false,
/// };
/// assert_eq!(full.to_string(), "all 4 slots are taken");
/// assert_eq!(full.retry_after(), Duration::from_secs(1));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoSlot {
    /// All slots are taken, and stayed so for as long as the caller would wait; or too many wait
    /// already.
    #[error("all {slots} slots are taken")]
    Full {
        /// How many are in. More than `slots` where a process still uses a larger limit.
        in_use: u32,
        /// How many may be.
        slots: u32,
        /// How soon to come back.
        retry_after: Duration,
        /// Whether it is this client who has too many, and not everybody together.
        per_client: bool,
    },
    /// The store does not answer, and the failure policy is closed.
    #[error("slots cannot be taken at the moment: {source}")]
    Unavailable {
        /// How soon to come back.
        retry_after: Duration,
        /// What the store did.
        source: BackendError,
    },
}

impl NoSlot {
    /// How soon to come back.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        match self {
            Self::Full { retry_after, .. } | Self::Unavailable { retry_after, .. } => *retry_after,
        }
    }
}
