//! What counters are kept under in place of an identity's value.

use std::fmt;

use ring::hmac;
use sha2::{Digest, Sha256};
use tollgate::Key;

use super::Identity;

/// Makes keys of identities: the SHA-256 of the value or, with a secret, its HMAC, which nobody
/// who reads the store can find the value of by trying all addresses or phone numbers.
///
/// The type is not part of it: it is in the name of the rule's policy.
#[derive(Clone)]
pub(crate) struct Digester(Option<hmac::Key>);

impl Digester {
    /// With this secret, if there is one.
    pub(crate) fn new(secret: Option<&[u8]>) -> Self {
        Self(secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// The key of an identity.
    pub(crate) fn key(&self, identity: &Identity) -> Key<'static> {
        let digest = match &self.0 {
            None => Sha256::digest(identity.value()).into(),
            Some(secret) => {
                let mut digest = [0; 32];
                digest.copy_from_slice(hmac::sign(secret, identity.value()).as_ref());
                digest
            }
        };
        Key::from_digest(digest)
    }

    /// Whether values that can be guessed are safe in the store.
    pub(crate) const fn is_keyed(&self) -> bool {
        self.0.is_some()
    }
}

/// Without the secret.
impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digester")
            .field("keyed", &self.is_keyed())
            .finish()
    }
}
