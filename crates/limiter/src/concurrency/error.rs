//! Why there is no limit, or no work was done.

use std::time::Duration;

use tollgate_core::{BackendError, NoSlot};

/// Why a limit on concurrency cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConcurrencyError {
    /// The store has nothing that can hold slots.
    #[error(
        "concurrency {name:?}: {store} cannot hold leases; use redis://, dynamodb:// or memory:// for it"
    )]
    Unsupported {
        /// Of the limit.
        name: Box<str>,
        /// The store.
        store: String,
    },
    /// No slots.
    #[error("concurrency {0:?}: slots is 0, so nobody could ever run; use 1 or more")]
    NoSlots(Box<str>),
    /// A name that cannot be part of a key.
    #[error(
        "concurrency {0:?}: the name must have 1 to {max} printable ASCII characters",
        max = tollgate_core::MAX_NAME
    )]
    Name(Box<str>),
    /// The same name with another number of slots: which one counts would depend on who asks.
    #[error(
        "concurrency {name:?}: the name belongs to a limit of {known} slots already; use {known}, or another name for {slots}"
    )]
    Taken {
        /// Of the limit.
        name: Box<str>,
        /// As it is known.
        known: u32,
        /// As it was asked for.
        slots: u32,
    },
    /// More slots than the store can hold.
    #[error("concurrency {name:?}: {source}")]
    TooMany {
        /// Of the limit.
        name: Box<str>,
        /// What the store says.
        source: BackendError,
    },
    /// Too short to renew in, or longer than a year.
    #[error("concurrency {name:?}: ttl is {ttl:?}; use 100 ms or more, and 365 days or less")]
    Ttl {
        /// Of the limit.
        name: Box<str>,
        /// As it was asked for.
        ttl: Duration,
    },
}

/// Why work did not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It did not begin.
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
    /// Its slot was lost, so it was stopped.
    #[error("the slot was lost: it could not be renewed in time")]
    Lost,
}
