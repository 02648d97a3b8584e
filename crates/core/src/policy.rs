//! A policy: a name, and the quotas that apply together to each identity.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::Quota;

/// The most quotas a policy may have.
pub const MAX_QUOTAS: usize = 16;

/// The longest name a policy may have, in bytes.
pub const MAX_NAME: usize = 128;

/// A name and the quotas that are decided and charged together, all or nothing.
///
/// Cheap to clone. Two policies with the same name share their counters, so a name belongs to one
/// set of quotas at a time; a set that changes while counters live keeps what was used where the
/// algorithm and the period of a quota stay the same (see `docs/algorithms.md`).
///
/// ```
/// use tollgate_core::{Policy, Quota};
///
/// let policy = Policy::new("search", Quota::parse_list("10/s, 1000/h")?)?;
/// assert_eq!(policy.capacity(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Policy(Arc<Inner>);

struct Inner {
    name: Box<str>,
    quotas: Box<[Quota]>,
    capacity: u64,
    digest: [u8; 16],
}

impl Policy {
    /// A policy.
    ///
    /// # Errors
    /// The name must be 1 to 128 bytes of printable ASCII, and there must be 1 to 16 quotas.
    pub fn new(name: &str, quotas: impl IntoIterator<Item = Quota>) -> Result<Self, PolicyError> {
        if name.is_empty()
            || name.len() > MAX_NAME
            || !name.bytes().all(|b| matches!(b, b' '..=b'~'))
        {
            return Err(PolicyError::Name(name.chars().take(MAX_NAME).collect()));
        }
        let quotas: Box<[Quota]> = quotas.into_iter().take(MAX_QUOTAS + 1).collect();
        if quotas.is_empty() || quotas.len() > MAX_QUOTAS {
            return Err(PolicyError::Quotas(name.into()));
        }
        let capacity = quotas.iter().map(Quota::capacity).min().unwrap_or(0);
        let mut digest = [0; 16];
        digest.copy_from_slice(&Sha256::digest(name)[..16]);
        Ok(Self(Arc::new(Inner {
            name: name.into(),
            quotas,
            capacity,
            digest,
        })))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its quotas, in the order in which answers list them.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.0.quotas
    }

    /// The most that one charge can ever get: the smallest capacity among the quotas.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.0.capacity
    }

    /// The first half of the SHA-256 of the name: for backends that hash keys in process.
    #[must_use]
    pub fn digest(&self) -> &[u8; 16] {
        &self.0.digest
    }
}

/// The same name and the same quotas.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.name() == other.name() && self.quotas() == other.quotas())
    }
}

impl Eq for Policy {}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name())
            .field("quotas", &self.quotas())
            .finish()
    }
}

/// A policy that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The name is empty, too long, or has a character outside printable ASCII.
    #[error(
        "policy name: {0:?} is not 1 to {MAX_NAME} bytes of printable ASCII; rename the policy"
    )]
    Name(String),
    /// There are no quotas, or too many.
    #[error("policy {0:?}: quotas must be 1 to {MAX_QUOTAS}")]
    Quotas(Box<str>),
    /// The name is already taken by other quotas.
    #[error(
        "policy {0:?}: already registered with other quotas; use another name, or the same quotas to share its counters"
    )]
    Taken(Box<str>),
    /// The store cannot count it.
    #[error("{0}")]
    Store(Box<str>),
}
