//! Who is limited. What leaves the process is a digest.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

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
    bytes: Bytes<'a>,
    /// Whether the bytes are a digest already.
    digested: bool,
}

/// Most keys are short, and a short one that is owned needs no allocation.
#[derive(Clone)]
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Short(u8, [u8; SHORT]),
    /// With room that may be left: to give it back would be another allocation.
    Long(Vec<u8>),
}

/// Room for a short name and an address.
const SHORT: usize = 46;

/// For what follows the part that makes a key long: mostly an identity.
const ROOM: usize = 64;

impl Bytes<'_> {
    fn owned(bytes: &[u8]) -> Bytes<'static> {
        if bytes.len() > SHORT {
            return Bytes::Long(bytes.into());
        }
        let mut short = [0; SHORT];
        short[..bytes.len()].copy_from_slice(bytes);
        Bytes::Short(bytes.len() as u8, short)
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Short(length, bytes) => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

/// The same bytes, whoever owns them.
impl PartialEq for Bytes<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes<'_> {}

impl Hash for Bytes<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<'a> Key<'a> {
    const fn of(bytes: Bytes<'a>) -> Self {
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
            bytes: Bytes::owned(&digest),
            digested: true,
        }
    }

    /// A key made of several parts that never collides with another division of the same text, nor
    /// with a key that is plain text.
    pub fn from_parts<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Key<'static> {
        // 0xFF never occurs in UTF-8, so no text starts like this.
        let (mut short, mut length) = ([0; SHORT], 1);
        short[0] = 0xFF;
        let mut parts = parts.into_iter();
        while let Some(part) = parts.next() {
            let part = part.as_ref();
            let size = (part.len() as u64).to_be_bytes();
            let (begin, end) = (length + size.len(), length + size.len() + part.len());
            if end > SHORT {
                let mut long = Vec::with_capacity(end + ROOM);
                long.extend_from_slice(&short[..length]);
                long.extend_from_slice(&size);
                long.extend_from_slice(part);
                for part in parts {
                    let part = part.as_ref();
                    long.extend_from_slice(&(part.len() as u64).to_be_bytes());
                    long.extend_from_slice(part);
                }
                return Key::of(Bytes::Long(long));
            }
            short[length..begin].copy_from_slice(&size);
            short[begin..end].copy_from_slice(part);
            length = end;
        }
        Key::of(Bytes::Short(length as u8, short))
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
            bytes: Bytes::Borrowed(&self.bytes),
            digested: self.digested,
        }
    }

    /// The same key, owned.
    #[must_use]
    pub fn into_owned(self) -> Key<'static> {
        Key {
            bytes: match self.bytes {
                Bytes::Borrowed(bytes) => Bytes::owned(bytes),
                Bytes::Short(length, bytes) => Bytes::Short(length, bytes),
                Bytes::Long(bytes) => Bytes::Long(bytes),
            },
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
        URL_SAFE_NO_PAD.encode(&Sha256::digest(&*self.bytes)[..16])
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
        Self::of(Bytes::Borrowed(text.as_bytes()))
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(text: &'a String) -> Self {
        Self::of(Bytes::Borrowed(text.as_bytes()))
    }
}

impl From<String> for Key<'_> {
    fn from(text: String) -> Self {
        Self::of(Bytes::owned(text.as_bytes()))
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::of(Bytes::Borrowed(bytes))
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

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn keys_of_every_length_are_the_same_however_they_are_kept() {
        let hasher = std::hash::RandomState::new();
        for length in 0..200 {
            let text = "x".repeat(length);
            let parts = Key::from_parts([b"ip", text.as_bytes()]);
            let mut bytes = vec![0xFF];
            for part in [&b"ip"[..], text.as_bytes()] {
                bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
                bytes.extend_from_slice(part);
            }
            assert_eq!(parts.as_bytes(), bytes, "{length}");
            let borrowed = Key::from(&bytes[..]);
            let owned = borrowed.clone().into_owned();
            assert!(borrowed == parts && owned == parts);
            assert_eq!(hasher.hash_one(&owned), hasher.hash_one(&borrowed));
            assert_eq!(Key::from(text.clone()).digest(), Key::from(&text).digest());
        }
    }
}
