//! Who a request counts for: the types of identities, and how each is found and written.
//!
//! A resolver asks the types in the order of the settings; the first that finds a value wins.
//! What it finds is normalised, so that the same client is the same text however it was written,
//! and a digester makes of that text what counters are kept under. Nothing behind it knows how an
//! identity was found.

mod custom;
mod digest;
mod keys;
mod kind;
mod phone;
mod resolver;
mod stored_keys;
#[cfg(test)]
mod tests;
mod tokens;

use std::fmt;
use std::sync::Arc;

pub(crate) use custom::Custom;
pub(crate) use digest::Digester;
pub(crate) use keys::KeyFile;
pub use kind::{IdentityType, UnknownIdentityType};
pub(crate) use phone::Region;
pub(crate) use resolver::{AsOf, Options, Resolver};
pub(crate) use stored_keys::{StoredKey, StoredKeys, digest as key_digest};
pub(crate) use tokens::TokenOptions;

/// Who a request counts for: a type, and the value that the type knows it by.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    kind: IdentityType,
    value: Box<[u8]>,
    plan: Option<Arc<str>>,
}

impl Identity {
    /// A value that is normalised already.
    pub(crate) fn new(kind: IdentityType, value: impl Into<Box<[u8]>>) -> Self {
        Self {
            kind,
            value: value.into(),
            plan: None,
        }
    }

    /// The one for which everybody counts.
    pub(crate) fn global() -> Self {
        Self::new(IdentityType::Global, Vec::new())
    }

    fn of_text(kind: IdentityType, value: String) -> Self {
        Self::new(kind, value.into_bytes())
    }

    fn with_plan(mut self, plan: Option<Arc<str>>) -> Self {
        self.plan = plan;
        self
    }

    /// Its type.
    pub(crate) const fn kind(&self) -> IdentityType {
        self.kind
    }

    /// Its value. Never to be printed, logged or stored.
    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }

    /// The plan that came with it: a claim of its token, or what is kept beside its API key.
    pub(crate) fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }
}

/// Without the value.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
