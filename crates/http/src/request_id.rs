//! The id under which a request is logged, forwarded and answered.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::{Clock, SystemClock, Timestamp};

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

    /// How many characters those have that are made here.
    pub const LENGTH: usize = 26;

    /// The id of the request with these headers.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        Self::given(headers).unwrap_or_else(|| {
            let made = Self::made(SystemClock.now());
            Self(HeaderValue::from_bytes(&made).expect("digits and capital letters are a value"))
        })
    }

    /// The id that the client gave the request with these headers, if it is one that is taken.
    #[must_use]
    pub fn given(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all(X_REQUEST_ID).iter();
        match (given.next(), given.next()) {
            (Some(id), None) if is_plain(id.as_bytes()) => Some(Self(id.clone())),
            _ => None,
        }
    }

    /// The text of a new id, for a request that came at this moment: digits and capital letters.
    ///
    /// ```
    /// use tollgate_core::Timestamp;
    /// use tollgate_http::RequestId;
    ///
    /// let now = Timestamp::from_micros(1_469_918_176_385_000);
    /// let made = RequestId::made(now);
    /// assert!(made.starts_with(b"01ARYZ6S41"));
    /// assert_ne!(made, RequestId::made(now));
    /// ```
    #[must_use]
    pub fn made(now: Timestamp) -> [u8; Self::LENGTH] {
        ulid(now.as_micros() / 1_000, random())
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

/// Twice 40 bits that nobody can guess who knows others: hashes of numbers by SipHash, with keys that
/// the operating system gave the thread. More than an id needs that is no secret, and no dependency.
fn random() -> [u64; 2] {
    struct Random {
        keys: RandomState,
        drawn: Cell<u64>,
        /// 16 bits for each of four ids.
        more: Cell<u64>,
    }
    thread_local! {
        static RANDOM: Random = Random {
            keys: RandomState::new(),
            drawn: Cell::new(0),
            more: Cell::new(0),
        };
    }
    RANDOM.with(|random| {
        let number = random.drawn.get();
        random.drawn.set(number + 1);
        let turn = number % 4;
        if turn == 0 {
            // Of other numbers than the ids' own.
            random.more.set(random.keys.hash_one(number | 1 << 63));
        }
        let bits = random.keys.hash_one(number);
        let more = random.more.get() >> (16 * turn) & 0xFFFF;
        [bits >> 24, bits << 16 & 0xFF_FFFF_FFFF | more]
    })
}

/// 48 bits of time and 40 of each of two numbers in Crockford's base 32, highest first.
fn ulid(millis: u64, random: [u64; 2]) -> [u8; RequestId::LENGTH] {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let mut text = [0; RequestId::LENGTH];
    let mut left = &mut text[..];
    for (length, mut bits) in [(8, random[1]), (8, random[0]), (10, millis)] {
        let (before, part) = left.split_at_mut(left.len() - length);
        for digit in part.iter_mut().rev() {
            *digit = DIGITS[bits as usize & 31];
            bits >>= 5;
        }
        left = before;
    }
    text
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
        let most = ulid((1 << 48) - 1, [u64::MAX; 2]);
        assert_eq!(&most, b"7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        assert_eq!(&ulid(0, [1, 33 << 35]), b"00000000000000000110000000");
        // The example of the specification: 1469918176385 ms.
        assert!(ulid(1_469_918_176_385, [0; 2]).starts_with(b"01ARYZ6S41"));
        let (a, b) = (of(&[]), of(&[]));
        assert_ne!(a, b);
        assert_eq!(a[..7], b[..7], "within a second or so");
    }

    #[test]
    fn ids_of_one_moment_have_nothing_else_in_common() {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                std::thread::spawn(|| {
                    let made = || RequestId::made(Timestamp::default())[10..].to_vec();
                    (0..1_000).map(|_| made()).collect::<Vec<_>>()
                })
            })
            .collect();
        let all: Vec<_> = threads
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect();
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        // Each place has each digit; a fair one leaves one out in 10^25 such runs.
        for place in 0..16 {
            let digits: std::collections::HashSet<_> = all.iter().map(|id| id[place]).collect();
            assert_eq!(digits.len(), 32, "{place}");
        }
    }
}
