//! Subjects as hashes with a random seed, so that nobody outside can choose keys that collide.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use tollgate_core::Subject;

/// One way of hashing, of 2^64.
pub(crate) struct Seed(u64, SharedSeed);

impl Seed {
    /// By the operating system's randomness.
    pub(crate) fn random() -> Self {
        let random = |salt: u64| RandomState::new().hash_one(salt);
        Self(random(0), SharedSeed::from_u64(random(1)))
    }

    /// The name of the policy and the identity.
    pub(crate) fn hash(&self, subject: Subject<'_>) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.0, &self.1);
        // Always 16 bytes, so that where the name ends and the key begins is never in doubt.
        hasher.write_u128(u128::from_le_bytes(*subject.policy.digest()));
        hasher.write(subject.key.as_bytes());
        hasher.finish()
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed")
    }
}
