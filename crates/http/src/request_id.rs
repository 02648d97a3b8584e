//! The id under which a request is logged, forwarded and answered.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::{Clock, SystemClock};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken from a client.
const MAX_LENGTH: usize = 128;

/// What the client calls its request if that is 1 to 128 characters of `A-Z a-z 0-9 . _ -`, else
/// an ULID: 26 characters that sort by time.
///
/// ```
/// use http::HeaderMap;
/// use tollgate_http::RequestId;
///
/// let mut headers = HeaderMap::new();
/// let made = RequestId::of(&headers);
/// assert_eq!(made.as_str().len(), 26);
/// made.write(&mut headers);
/// assert_eq!(RequestId::of(&headers), made);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The field that carries it, `X-Request-Id`.
    pub const HEADER: HeaderName = X_REQUEST_ID;

    /// The id of the request with these headers.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(X_REQUEST_ID).iter();
        match (given.next(), given.next()) {
            (Some(id), None) if is_plain(id.as_bytes()) => Self(id.clone()),
            _ => Self::new(),
        }
    }

    fn new() -> Self {
        // Every `RandomState` has other keys, the first of a thread from the operating system:
        // more than an id needs that is no secret, and no dependency.
        let random = || RandomState::new().hash_one(0);
        let random = u128::from(random()) << 64 | u128::from(random());
        let millis = u128::from(SystemClock.now().as_micros() / 1_000);
        Self(ulid(millis << 80 | random >> 48))
    }

    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Writes it into headers, in place of any other.
    pub fn write(&self, headers: &mut HeaderMap) {
        headers.insert(X_REQUEST_ID, self.0.clone());
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn is_plain(id: &[u8]) -> bool {
    (1..=MAX_LENGTH).contains(&id.len())
        && id
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
}

/// 128 bits in Crockford's base 32, highest first.
fn ulid(bits: u128) -> HeaderValue {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let mut text = [0; 26];
    for (i, digit) in text.iter_mut().rev().enumerate() {
        *digit = DIGITS[(bits >> (5 * i)) as usize & 31];
    }
    HeaderValue::from_bytes(&text).expect("digits and capital letters are a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ids: &[&[u8]]) -> String {
        let mut headers = HeaderMap::new();
        for id in ids {
            headers.append(X_REQUEST_ID, HeaderValue::from_bytes(id).unwrap());
        }
        RequestId::of(&headers).to_string()
    }

    #[test]
    fn a_plain_id_is_taken() {
        for id in ["a", "Az09._-", &"x".repeat(128)] {
            assert_eq!(of(&[id.as_bytes()]), id);
        }
    }

    #[test]
    fn anything_else_is_replaced() {
        let long = "x".repeat(129);
        let odd: [&[&[u8]]; 6] = [
            &[],
            &[b""],
            &[b"a b"],
            &[b"a\"b"],
            &[b"\xff"],
            &[b"a", b"b"],
        ];
        for ids in odd.into_iter().chain([&[long.as_bytes()][..]]) {
            assert_eq!(of(ids).len(), 26, "{ids:?}");
        }
    }

    #[test]
    fn an_ulid_begins_with_the_time() {
        assert_eq!(ulid(u128::MAX), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        // The example of the specification: 1469918176385 ms.
        assert!(
            ulid(1_469_918_176_385 << 80)
                .to_str()
                .unwrap()
                .starts_with("01ARYZ6S41")
        );
        let (a, b) = (RequestId::new(), RequestId::new());
        assert_ne!(a, b);
        assert_eq!(a.as_str()[..7], b.as_str()[..7], "within a second or so");
    }
}
