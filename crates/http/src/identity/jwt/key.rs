//! Keys of tokens, each with the algorithm that it verifies by.

use std::fmt;
use std::str::FromStr;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header};

use super::der;

/// The most keys that a token without a `kid` is tried with.
const MAX_TRIES: usize = 8;

macro_rules! algorithms {
    ($($name:ident $text:ident $doc:literal,)*) => {
        /// How a token is signed.
        ///
        /// ```
        /// use tollgate_http::JwtAlgorithm;
        ///
        /// assert_eq!("ES256".parse(), Ok(JwtAlgorithm::Es256));
        /// assert!("none".parse::<JwtAlgorithm>().is_err());
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum JwtAlgorithm {
            $(#[doc = $doc] $name,)*
        }

        impl JwtAlgorithm {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name in tokens.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($text),)*
                }
            }

            pub(super) const fn known(self) -> Algorithm {
                match self {
                    $(Self::$name => Algorithm::$text,)*
                }
            }
        }
    };
}

algorithms! {
    Hs256 HS256 "HMAC with SHA-256: a secret of 32 bytes or more, which can sign as well.",
    Hs384 HS384 "HMAC with SHA-384: a secret of 48 bytes or more.",
    Hs512 HS512 "HMAC with SHA-512: a secret of 64 bytes or more.",
    Rs256 RS256 "RSA, PKCS #1 v1.5, SHA-256.",
    Rs384 RS384 "RSA, PKCS #1 v1.5, SHA-384.",
    Rs512 RS512 "RSA, PKCS #1 v1.5, SHA-512.",
    Ps256 PS256 "RSA, PSS, SHA-256.",
    Ps384 PS384 "RSA, PSS, SHA-384.",
    Ps512 PS512 "RSA, PSS, SHA-512.",
    Es256 ES256 "ECDSA over P-256.",
    Es384 ES384 "ECDSA over P-384.",
    EdDsa EdDSA "Ed25519.",
}

impl JwtAlgorithm {
    /// The shortest secret, in bytes (RFC 7518, section 3.2). `None`: it has a public key.
    const fn secret(self) -> Option<usize> {
        match self {
            Self::Hs256 => Some(32),
            Self::Hs384 => Some(48),
            Self::Hs512 => Some(64),
            _ => None,
        }
    }

    /// Whether it has a secret in place of a public key.
    #[cfg(all(feature = "config", feature = "jwks"))]
    pub(crate) const fn is_secret(self) -> bool {
        self.secret().is_some()
    }
}

impl FromStr for JwtAlgorithm {
    type Err = UnknownJwtAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownJwtAlgorithm> {
        let mut all = Self::ALL.iter();
        all.find(|it| it.as_str() == text)
            .copied()
            .ok_or_else(|| UnknownJwtAlgorithm(text.into()))
    }
}

/// Text that names no algorithm, or one that cannot be verified here (`ES512`, `ES256K`, `none`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownJwtAlgorithm(Box<str>);

impl fmt::Display for UnknownJwtAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = JwtAlgorithm::ALL.iter().map(|it| it.as_str()).collect();
        write!(
            f,
            "JWT algorithm: {:?} is none of {}",
            self.0,
            all.join(", ")
        )?;
        match &*self.0 {
            "ES512" | "ES256K" => f.write_str(
                "; of elliptic curves there are P-256 and P-384, so have tokens signed by ES384",
            ),
            _ => f.write_str("; write one of them"),
        }
    }
}

impl std::error::Error for UnknownJwtAlgorithm {}

/// A key, with what it verifies by.
///
/// ```
/// use tollgate_http::{JwtAlgorithm, JwtKey, JwtKeyError};
///
/// let short = JwtKey::secret(JwtAlgorithm::Hs256, b"secret").unwrap_err();
/// assert_eq!(short, JwtKeyError::ShortSecret(32));
/// ```
#[derive(Clone)]
pub struct JwtKey {
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) key: DecodingKey,
    id: Option<Box<str>>,
}

impl JwtKey {
    /// A secret for `HS256` and its larger forms.
    ///
    /// # Errors
    /// When it is shorter than the hash, or the algorithm has public keys.
    pub fn secret(algorithm: JwtAlgorithm, secret: &[u8]) -> Result<Self, JwtKeyError> {
        match algorithm.secret() {
            None => Err(JwtKeyError::NotSecret(algorithm)),
            Some(least) if secret.len() < least => Err(JwtKeyError::ShortSecret(least)),
            Some(_) => {
                let key = DecodingKey::from_secret(secret);
                Ok(Self::of(
                    algorithm,
                    key.map_err(|_| JwtKeyError::Malformed)?,
                ))
            }
        }
    }

    /// A public key in PEM: `BEGIN PUBLIC KEY`, or `BEGIN RSA PUBLIC KEY`.
    ///
    /// # Errors
    /// When it is none, one of another algorithm or of a curve that is not known, or an RSA key of
    /// less than 2048 bits.
    pub fn pem(algorithm: JwtAlgorithm, pem: &str) -> Result<Self, JwtKeyError> {
        use der::Kind;
        let (kind, bytes) = der::public_key(pem)?;
        let key = match (algorithm, kind) {
            (JwtAlgorithm::Es256, Kind::P256) | (JwtAlgorithm::Es384, Kind::P384) => {
                DecodingKey::from_ec_der(&bytes)
            }
            (JwtAlgorithm::EdDsa, Kind::Ed25519) => DecodingKey::from_ed_der(&bytes),
            (
                JwtAlgorithm::Rs256
                | JwtAlgorithm::Rs384
                | JwtAlgorithm::Rs512
                | JwtAlgorithm::Ps256
                | JwtAlgorithm::Ps384
                | JwtAlgorithm::Ps512,
                Kind::Rsa,
            ) => DecodingKey::from_rsa_der(&bytes),
            _ => return Err(JwtKeyError::OtherKind(algorithm)),
        };
        Ok(Self::of(algorithm, key))
    }

    fn of(algorithm: JwtAlgorithm, key: DecodingKey) -> Self {
        Self {
            algorithms: vec![algorithm.known()],
            key,
            id: None,
        }
    }

    /// With the `kid` that tokens name it by. Tokens that name another are not tried with it.
    #[must_use]
    pub fn with_id(mut self, id: &str) -> Self {
        self.id = Some(id.into());
        self
    }

    /// A public key of a set. `None`: it is of no use here (a secret, for encryption, or of an
    /// algorithm that is not allowed).
    pub(super) fn of_set(jwk: &Jwk, allowed: &[JwtAlgorithm]) -> Option<Self> {
        if jwk
            .common
            .public_key_use
            .as_ref()
            .is_some_and(|it| *it != PublicKeyUse::Signature)
        {
            return None;
        }
        let fits: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &[
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            AlgorithmParameters::EllipticCurve(it) if it.curve == EllipticCurve::P256 => {
                &[Algorithm::ES256]
            }
            AlgorithmParameters::EllipticCurve(it) if it.curve == EllipticCurve::P384 => {
                &[Algorithm::ES384]
            }
            AlgorithmParameters::OctetKeyPair(it) if it.curve == EllipticCurve::Ed25519 => {
                &[Algorithm::EdDSA]
            }
            // A secret that everybody can fetch is none.
            _ => return None,
        };
        let named = jwk.common.key_algorithm.map(|it| it.to_string());
        let algorithms: Vec<Algorithm> = allowed
            .iter()
            .filter(|it| named.as_deref().is_none_or(|named| named == it.as_str()))
            .map(|it| it.known())
            .filter(|it| fits.contains(it))
            .collect();
        if algorithms.is_empty() {
            return None;
        }
        Some(Self {
            algorithms,
            key: DecodingKey::from_jwk(jwk).ok()?,
            id: jwk.common.key_id.as_deref().map(Into::into),
        })
    }

    fn fits(&self, header: &Header) -> bool {
        let named = match (&self.id, &header.kid) {
            (Some(id), Some(kid)) => **id == **kid,
            _ => true,
        };
        named && self.algorithms.contains(&header.alg)
    }
}

/// The keys that a token may be signed with, by its header.
pub(super) fn candidates<'a>(keys: &'a [JwtKey], header: &Header) -> Vec<&'a JwtKey> {
    let fitting = keys.iter().filter(|key| key.fits(header));
    fitting.take(MAX_TRIES).collect()
}

/// Without the key: it may be a secret.
impl fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtKey")
            .field("algorithms", &self.algorithms)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A key that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtKeyError {
    /// A secret that is shorter than the hash, and can be guessed from one token.
    #[error(
        "JWT secret: it is shorter than {0} bytes; make one at random, such as by `openssl rand -base64 {0}`"
    )]
    ShortSecret(usize),
    /// A secret for an algorithm that has public keys.
    #[error("JWT key: {} has a public key and no secret; use JwtKey::pem", .0.as_str())]
    NotSecret(JwtAlgorithm),
    /// No public key in PEM.
    #[error(
        "JWT key: it is no public key that can be read; write PEM that begins with -----BEGIN PUBLIC KEY-----"
    )]
    Malformed,
    /// A private key, which is not needed to verify.
    #[error(
        "JWT key: it is a private key; give only its public half, as `openssl pkey -pubout` prints it"
    )]
    Private,
    /// A key of an elliptic curve that cannot be verified with.
    #[error("JWT key: it is on a curve that is not known; use P-256 (ES256) or P-384 (ES384)")]
    Curve,
    /// An RSA key that is too short to be safe.
    #[error("JWT key: an RSA key needs 2048 bits or more, and this has {0}; make a longer one")]
    ShortRsa(usize),
    /// A key of another kind than the algorithm's.
    #[error("JWT key: it is no key for {}; name the algorithm that its tokens are signed by", .0.as_str())]
    OtherKind(JwtAlgorithm),
}
