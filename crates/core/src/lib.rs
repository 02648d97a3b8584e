//! The heart of Tollgate: quotas that are counted exactly, and the traits that stores implement.
//!
//! This crate has no runtime and no network. It holds
//! - what people write down: [`Quota`], [`Policy`], [`Key`], [`Cost`];
//! - the [`algorithm`]s as pure steps over integers;
//! - [`CounterBackend`], the one trait of every store and every wrapper, with its answer, the
//!   [`Decision`], and its failure, the [`BackendError`];
//! - [`StateStore`] and [`CasBackend`], which give any store that can compare and swap every
//!   algorithm;
//! - [`LeaseBackend`] for concurrency limits, [`DocumentStore`] for what all processes must see the
//!   same of, and the [`Clock`].
//!
//! ```
//! use tollgate_core::algorithm::{Operation, apply};
//! use tollgate_core::{Cost, Quota, Timestamp};
//!
//! let quotas = Quota::parse_list("2/s")?;
//! let mut record = Vec::new();
//! let now = Timestamp::from_micros(1_700_000_000_000_000);
//! for admitted in [true, true, false] {
//!     let applied = apply(&quotas, &mut record, now, Operation::Acquire(Cost::ONE));
//!     assert_eq!(applied.decision.allowed(), admitted);
//! }
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```

pub mod algorithm;
mod backend;
mod cas;
mod clock;
mod cost;
mod decision;
mod document;
mod error;
mod key;
mod lease;
mod no_slot;
mod policy;
mod quota;
pub mod record;
mod shared;
mod storage_key;
#[cfg(feature = "trace")]
pub mod trace;

pub use backend::{Batch, CounterBackend, Refund, Subject};
pub use cas::{CasBackend, StateStore, Versioned};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use cost::{Cost, CostError};
pub use decision::{Decision, Origin, QuotaAnswer};
pub use document::{
    Change, Changed, Collection, Document, DocumentFeed, DocumentStore, DynDocumentStore,
    SharedDocuments,
};
pub use error::{BackendError, ErrorKind};
pub use key::Key;
pub use lease::{DynLeaseBackend, LeaseAnswer, LeaseBackend, LeaseSubject, SharedLeases};
pub use no_slot::NoSlot;
pub use policy::{MAX_NAME, MAX_QUOTAS, Policy, PolicyError};
pub use quota::{Algorithm, MAX_EXACT, Quota, QuotaError, QuotaFault};
pub use shared::{DynCounterBackend, SharedBackend};
pub use storage_key::{DEFAULT_PREFIX, lease_key, storage_key};
