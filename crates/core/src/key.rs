//! Who is limited. What leaves the process is a digest.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// The identity a policy counts for: any bytes, the empty string included.
///
/// It may be a name, an address or a secret, so it is never stored, logged or printed: backends
/// keep a [`digest`](Self::digest) or a seeded hash, and `Debug` shows the digest.
///
/// ```
/// use tollgate_core::Key;
///
/// // Parts are kept apart, whatever they contain.
/// assert_ne!(Key::from_parts(["did:key:abc", "s"]), Key::from_parts(["did:key", "abc:s"]));
/// assert_eq!(Key::from("alice").digest(), "K9gGyX8OAK8aH8Myj6djqQ");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    bytes: Cow<'a, [u8]>,
    /// Whether the bytes are a digest already.
    digested: bool,
}

impl<'a> Key<'a> {
    const fn of(bytes: Cow<'a, [u8]>) -> Self {
        Self {
            bytes,
            digested: false,
        }
    }

    /// A key of which only a digest is known, or should be: a keyed one, such as an HMAC, cannot
    /// be found again by trying all identities. Stores are given all of it, in hex.
    ///
    /// ```
    /// use tollgate_core::Key;
    ///
    /// let key = Key::from_digest([0xab; 32]);
    /// assert_eq!(key.digest(), "ab".repeat(32));
    /// assert_ne!(key, Key::from(&[0xab; 32][..]));
    /// ```
    #[must_use]
    pub fn from_digest(digest: [u8; 32]) -> Key<'static> {
        Key {
            bytes: Cow::Owned(digest.to_vec()),
            digested: true,
        }
    }

    /// A key made of several parts that never collides with another division of the same text, nor
    /// with a key that is plain text.
    pub fn from_parts<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Key<'static> {
        // 0xFF never occurs in UTF-8, so no text starts like this.
        // Room for a short name and an address, so that most keys take one allocation.
        let mut bytes = Vec::with_capacity(64);
        bytes.push(0xFF);
        for part in parts {
            let part = part.as_ref();
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        Key::of(Cow::Owned(bytes))
    }

    /// The identity itself. For backends, which hash it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same key, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> Key<'_> {
        Key {
            bytes: Cow::Borrowed(&self.bytes),
            digested: self.digested,
        }
    }

    /// The same key, owned.
    #[must_use]
    pub fn into_owned(self) -> Key<'static> {
        Key {
            bytes: Cow::Owned(self.bytes.into_owned()),
            digested: self.digested,
        }
    }

    /// What stores are given: the first 16 bytes of the SHA-256 as 22 characters of base64url, or
    /// the 64 hex digits of [`from_digest`](Self::from_digest).
    #[must_use]
    pub fn digest(&self) -> String {
        if self.digested {
            return hex(&self.bytes);
        }
        URL_SAFE_NO_PAD.encode(&Sha256::digest(&self.bytes)[..16])
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| DIGITS[usize::from(digit)] as char)
        .collect()
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(text: &'a str) -> Self {
        Self::of(Cow::Borrowed(text.as_bytes()))
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(text: &'a String) -> Self {
        Self::of(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for Key<'_> {
    fn from(text: String) -> Self {
        Self::of(Cow::Owned(text.into_bytes()))
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::of(Cow::Borrowed(bytes))
    }
}

impl<'a> From<&'a Key<'_>> for Key<'a> {
    fn from(key: &'a Key<'_>) -> Self {
        key.as_ref()
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.digest())
    }
}
