//! Identities as the table knows them: 128-bit hashes with a random seed, never the text.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use tollgate_core::{Key, Policy};

/// Bits of the low half that an entry of the table uses for something else.
pub(crate) const SPARE_BITS: u32 = 10;

/// The hash of a policy and an identity. 118 of its bits are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Never 0, which marks a free slot. Chooses the bucket.
    pub(crate) hi: u64,
    /// The lowest [`SPARE_BITS`] are 0. Chooses the shard.
    pub(crate) lo: u64,
}

impl Fingerprint {
    fn new(hi: u64, lo: u64) -> Self {
        Self {
            hi: hi.max(1),
            lo: lo >> SPARE_BITS << SPARE_BITS,
        }
    }
}

/// Half of it is enough for a map, and needs no more hashing.
impl Hash for Fingerprint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hi);
    }
}

/// Two independent hash functions, seeded by the operating system's randomness: nobody outside can
/// choose keys that collide, or that crowd one bucket.
pub(crate) struct Fingerprinter {
    seeds: [u64; 2],
    shared: [SharedSeed; 2],
}

impl Fingerprinter {
    pub(crate) fn random() -> Self {
        let random = |salt: u64| RandomState::new().hash_one(salt);
        Self {
            seeds: [random(0), random(1)],
            shared: [
                SharedSeed::from_u64(random(2)),
                SharedSeed::from_u64(random(3)),
            ],
        }
    }

    /// The policy goes in first, as data: with any other way of mixing two hashes a key of one
    /// policy could be made to match a key of another by arithmetic on the (public) names.
    #[inline]
    pub(crate) fn of(&self, policy: &Policy, key: &Key<'_>) -> Fingerprint {
        let policy = u128::from_le_bytes(*policy.digest());
        self.hash(|hasher| {
            hasher.write_u128(policy);
            hasher.write(key.as_bytes());
        })
    }

    /// The slots of a limit for a key. The length goes in, so that no two divide the same text.
    pub(crate) fn of_lease(&self, name: &str, key: &Key<'_>) -> Fingerprint {
        self.hash(|hasher| {
            hasher.write_usize(name.len());
            hasher.write(name.as_bytes());
            hasher.write(key.as_bytes());
        })
    }

    /// A name that stands alone.
    pub(crate) fn of_text(&self, text: &str) -> Fingerprint {
        self.hash(|hasher| hasher.write(text.as_bytes()))
    }

    #[inline]
    fn hash(&self, feed: impl Fn(&mut FoldHasher<'_>)) -> Fingerprint {
        let half = |i: usize| {
            let mut hasher = FoldHasher::with_seed(self.seeds[i], &self.shared[i]);
            feed(&mut hasher);
            hasher.finish()
        };
        Fingerprint::new(half(0), half(1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn policy(name: &str) -> Policy {
        Policy::new(name, ["1/s".parse().unwrap()]).unwrap()
    }

    #[test]
    fn policies_keys_and_backends_are_kept_apart() {
        let (a, b) = (policy("a"), policy("b"));
        let (first, second) = (Fingerprinter::random(), Fingerprinter::random());
        let keys = [
            "",
            "\0",
            "\0\0",
            "x",
            "é",
            &"x".repeat(3_000),
            &"x".repeat(2_999),
        ];
        let mut seen = HashSet::new();
        for hasher in [&first, &second] {
            for policy in [&a, &b] {
                for key in keys {
                    let print = hasher.of(policy, &Key::from(key));
                    assert!(seen.insert(print), "{key:?}");
                    assert_eq!(print, hasher.of(policy, &Key::from(key)));
                }
            }
        }
    }

    #[test]
    fn low_bits_of_both_halves_are_spread_evenly() {
        let (policy, hasher) = (policy("a"), Fingerprinter::random());
        let mut hi = [0_u32; 64];
        let mut lo = [0_u32; 64];
        for i in 0..64_000 {
            let print = hasher.of(&policy, &Key::from(&format!("user:{i:011}")));
            hi[(print.hi % 64) as usize] += 1;
            lo[(print.lo >> SPARE_BITS) as usize % 64] += 1;
        }
        // 1,000 each are expected; nine standard deviations are 285.
        for count in hi.into_iter().chain(lo) {
            assert!(count.abs_diff(1_000) < 285, "{count}");
        }
    }
}
