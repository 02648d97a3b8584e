//! Something for each of some identities: found by the identity, or by its digest.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::IdentityType;
use super::live::Compiler;

/// What belongs to identities that rules name.
#[derive(Clone, Debug)]
pub(super) struct Values<T> {
    plain: HashMap<Box<[u8]>, T>,
    digests: HashMap<[u8; 32], T>,
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self {
            plain: HashMap::new(),
            digests: HashMap::new(),
        }
    }
}

impl<T: Default> Values<T> {
    /// What belongs to an identity, as a rule names it.
    pub(super) fn entry(&mut self, compiler: &Compiler, kind: IdentityType, named: &str) -> &mut T {
        if let Some(digest) = named.strip_prefix("sha256:").and_then(digest) {
            return self.digests.entry(digest).or_default();
        }
        let value = (compiler.normalise)(kind, named);
        self.plain.entry(value.into()).or_default()
    }
}

impl<T> Values<T> {
    /// What belongs to an identity, as a request brings it.
    pub(super) fn find(&self, value: &[u8]) -> impl Iterator<Item = &T> {
        let plain = self.plain.get(value);
        // A digest costs more than all the rest, so only who needs one pays.
        let digest = (!self.digests.is_empty())
            .then(|| self.digests.get(&<[u8; 32]>::from(Sha256::digest(value))));
        plain.into_iter().chain(digest.flatten())
    }
}

fn digest(digits: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let pairs = digits.as_bytes().chunks_exact(2);
    if pairs.len() != digest.len() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}
