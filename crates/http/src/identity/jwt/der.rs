//! Public keys in PEM: what is inside, and of which kind it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

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

/// The kind of a `SubjectPublicKeyInfo`, and the bytes of its key.
pub(super) fn public_key(pem: &str) -> Option<(Kind, Vec<u8>)> {
    let (_, rest) = pem.split_once("-----BEGIN PUBLIC KEY-----")?;
    let (body, _) = rest.split_once("-----END PUBLIC KEY-----")?;
    let body: String = body.split_whitespace().collect();
    let der = STANDARD.decode(body).ok()?;
    let (info, rest) = element(SEQUENCE, &der)?;
    let (algorithm, key) = element(SEQUENCE, info)?;
    let (oid, parameters) = element(OID, algorithm)?;
    let kind = match oid {
        RSA => Kind::Rsa,
        ED25519 => Kind::Ed25519,
        EC => match element(OID, parameters)?.0 {
            P256 => Kind::P256,
            P384 => Kind::P384,
            _ => return None,
        },
        _ => return None,
    };
    let (key, after) = element(BITS, key)?;
    // The first byte counts the bits that are not used in the last one.
    let key = key.strip_prefix(&[0])?;
    (rest.is_empty() && after.is_empty()).then(|| (kind, key.to_vec()))
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
