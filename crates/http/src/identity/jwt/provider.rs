//! Verifying signatures with ring, the one provider of cryptography that this workspace links.
//!
//! `jsonwebtoken` asks a provider that the process sets. One that the application chose, by a call
//! or by a feature of `jsonwebtoken`, is left as it is.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::hmac;
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};

/// Sets the provider where nobody has.
pub(super) fn install() {
    if CryptoProvider::try_get_default().is_none() {
        // Somebody else was faster: theirs serves as well.
        let _ = PROVIDER.install_default();
    }
}

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(ErrorKind::UnsupportedAlgorithm.into()),
        rsa_pub_components_from_public_key: |_| Err(ErrorKind::UnsupportedAlgorithm.into()),
        ec_pub_components_from_private_key: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
        ed_pub_components_from_private_key: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
        compute_digest: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    },
};

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(Ring {
        algorithm: *algorithm,
        key: key.clone(),
    }))
}

struct Ring {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], tag: &Vec<u8>) -> std::result::Result<(), Error> {
        let secret = |algorithm| match self.key.kind() {
            DecodingKeyKind::SecretOrDer(secret) => {
                hmac::verify(&hmac::Key::new(algorithm, secret), message, tag).map_err(failed)
            }
            DecodingKeyKind::RsaModulusExponent { .. } => Err(Error::new()),
        };
        let public = |algorithm| match self.key.kind() {
            DecodingKeyKind::SecretOrDer(point) => UnparsedPublicKey::new(algorithm, point)
                .verify(message, tag)
                .map_err(failed),
            DecodingKeyKind::RsaModulusExponent { .. } => Err(Error::new()),
        };
        let rsa = |parameters: &'static RsaParameters| match self.key.kind() {
            DecodingKeyKind::SecretOrDer(der) => UnparsedPublicKey::new(parameters, der)
                .verify(message, tag)
                .map_err(failed),
            DecodingKeyKind::RsaModulusExponent { n, e } => RsaPublicKeyComponents { n, e }
                .verify(parameters, message, tag)
                .map_err(failed),
        };
        match self.algorithm {
            Algorithm::HS256 => secret(hmac::HMAC_SHA256),
            Algorithm::HS384 => secret(hmac::HMAC_SHA384),
            Algorithm::HS512 => secret(hmac::HMAC_SHA512),
            Algorithm::ES256 => public(&signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => public(&signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => UnparsedPublicKey::new(
                &signature::ED25519,
                self.key.try_get_as_bytes().map_err(|_| Error::new())?,
            )
            .verify(message, tag)
            .map_err(failed),
            Algorithm::RS256 => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => rsa(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => rsa(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => rsa(&signature::RSA_PSS_2048_8192_SHA512),
            _ => Err(Error::new()),
        }
    }
}

fn failed(_: ring::error::Unspecified) -> Error {
    Error::new()
}
