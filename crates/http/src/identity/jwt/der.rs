//! Public keys in PEM: what is inside, and of which kind it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::JwtKeyError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;
const BITS: u8 = 0x03;
const INTEGER: u8 = 0x02;

/// The kind of a public key, and its bytes.
pub(super) fn public_key(pem: &str) -> Result<(Kind, Vec<u8>), JwtKeyError> {
    use JwtKeyError::Malformed;
    // Not looked at any further: what is there is not for here.
    if pem.contains("PRIVATE KEY-----") {
        return Err(JwtKeyError::Private);
    }
    let (kind, key) = match block(pem, "RSA PUBLIC KEY") {
        Some(key) => (Kind::Rsa, key),
        None => spki(&block(pem, "PUBLIC KEY").ok_or(Malformed)?)?,
    };
    if kind == Kind::Rsa {
        let bits = modulus(&key).ok_or(Malformed)?;
        if bits < 2048 {
            return Err(JwtKeyError::ShortRsa(bits));
        }
    }
    Ok((kind, key))
}

/// What stands between the lines of a PEM block.
fn block(pem: &str, label: &str) -> Option<Vec<u8>> {
    let (_, rest) = pem.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok()
}

/// What is inside of a `SubjectPublicKeyInfo`.
fn spki(der: &[u8]) -> Result<(Kind, Vec<u8>), JwtKeyError> {
    let read = || {
        let (info, rest) = element(SEQUENCE, der)?;
        let (algorithm, key) = element(SEQUENCE, info)?;
        let (key, after) = element(BITS, key)?;
        // The first byte counts the bits that are not used in the last one.
        let key = key.strip_prefix(&[0])?;
        (rest.is_empty() && after.is_empty()).then_some((element(OID, algorithm)?, key))
    };
    let ((oid, parameters), key) = read().ok_or(JwtKeyError::Malformed)?;
    let kind = match oid {
        RSA => Kind::Rsa,
        ED25519 => Kind::Ed25519,
        EC => match element(OID, parameters) {
            Some((P256, _)) => Kind::P256,
            Some((P384, _)) => Kind::P384,
            _ => return Err(JwtKeyError::Curve),
        },
        _ => return Err(JwtKeyError::Malformed),
    };
    Ok((kind, key.to_vec()))
}

/// How many bits the modulus of an `RSAPublicKey` has.
fn modulus(der: &[u8]) -> Option<usize> {
    let (key, rest) = element(SEQUENCE, der)?;
    let (modulus, exponent) = element(INTEGER, key)?;
    let (_, after) = element(INTEGER, exponent)?;
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let first = modulus.get(zeros)?;
    let bits = (modulus.len() - zeros) * 8 - first.leading_zeros() as usize;
    (rest.is_empty() && after.is_empty()).then_some(bits)
}

/// The content of an element that begins here, and what follows it.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long @ 0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let length = bytes
                .iter()
                .fold(0, |all, byte| all << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    if *first != tag {
        return None;
    }
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(bytes in proptest::collection::vec(0_u8.., 0..64)) {
            let pem = format!(
                "-----BEGIN PUBLIC KEY-----{}-----END PUBLIC KEY-----",
                STANDARD.encode(&bytes)
            );
            let _ = public_key(&pem);
            let _ = public_key(&String::from_utf8_lossy(&bytes));
        }
    }
}
