//! Requests that were refused and are likely to come again, byte for byte: a client over its limit
//! rarely asks for something else. Whom they count for, and what rules look at, was worked out then
//! and need not be again.

use std::fmt;
use std::hash::BuildHasher as _;
use std::net::IpAddr;

use foldhash::quality::RandomState;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tollgate::{Key, Timestamp};
use tollgate_http::BodyStyle;

use crate::identity::{AsOf, Identity};

/// The longest head of a request that is kept, in bytes, and the most fields.
const LONGEST: usize = 1024;
const MOST_FIELDS: usize = 32;

/// How many requests are kept: so many times as many as have the same place.
const SETS: usize = 1024;
const WAYS: usize = 4;

/// A request without a body, and what was worked out of it.
pub(super) struct Known {
    /// Its bytes.
    head: Box<[u8]>,
    /// The other end of its connection.
    peer: IpAddr,
    pub(super) method: Method,
    pub(super) path: Box<str>,
    pub(super) headers: HeaderMap,
    pub(super) client: IpAddr,
    pub(super) identity: Identity,
    pub(super) key: Key<'static>,
    pub(super) style: BodyStyle,
    /// What else says whom it counts for.
    pub(super) as_of: AsOf,
}

/// The requests that a thread knows. Bounded: of too many, the older ones are forgotten.
pub(super) struct Memo {
    hasher: RandomState,
    /// Made with the first request.
    sets: Box<[Set]>,
    offered: Option<Offered>,
    /// Room that is used again and again.
    latest: Vec<u8>,
    date: Date,
}

#[derive(Default)]
struct Set {
    known: [Option<Box<Known>>; WAYS],
    oldest: usize,
}

/// The bytes of a request that was given on to be understood.
#[derive(PartialEq, Eq)]
pub(super) struct Offered {
    /// Which connection it came by.
    pub(super) connection: usize,
    /// The how manieth of its requests it is.
    pub(super) number: usize,
}

impl Memo {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            sets: Box::default(),
            offered: None,
            latest: Vec::new(),
            date: Date::default(),
        }
    }

    /// What is known of a request with these bytes of this peer, and the date of today.
    pub(super) fn find(&mut self, head: &[u8], peer: IpAddr) -> Option<(&Known, &mut Date)> {
        if self.sets.is_empty() || head.len() > LONGEST {
            return None;
        }
        let set = &self.sets[place(&self.hasher, head, peer)];
        let mut known = set.known.iter().flatten();
        let known = known.find(|known| *known.head == *head && known.peer == peer)?;
        Some((known, &mut self.date))
    }

    /// Keeps the bytes of a request until the next one is given on: it may be refused.
    pub(super) fn offer(&mut self, head: &[u8], offered: Offered) {
        self.offered = None;
        if head.len() <= LONGEST {
            self.latest.clear();
            self.latest.extend_from_slice(head);
            self.offered = Some(offered);
        }
    }

    /// The bytes of this request, if none was given on since.
    pub(super) fn offered(&mut self, offered: &Offered) -> Option<Box<[u8]>> {
        (self.offered.take().as_ref() == Some(offered)).then(|| self.latest.as_slice().into())
    }

    pub(super) fn learn(&mut self, known: Known) {
        if self.sets.is_empty() {
            self.sets = (0..SETS).map(|_| Set::default()).collect();
        }
        let set = &mut self.sets[place(&self.hasher, &known.head, known.peer)];
        let same = |it: &Option<Box<Known>>| match it {
            None => true,
            Some(it) => it.head == known.head && it.peer == known.peer,
        };
        let way = set.known.iter().position(same).unwrap_or_else(|| {
            set.oldest = (set.oldest + 1) % WAYS;
            set.oldest
        });
        set.known[way] = Some(Box::new(known));
    }
}

/// By the peer, too: the clients of one program all send the same bytes.
fn place(hasher: &RandomState, head: &[u8], peer: IpAddr) -> usize {
    hasher.hash_one((head, peer)) as usize % SETS
}

/// Whether this is the head of one request and nothing else. A parser may end a head at any empty
/// line, whatever its lines end with.
pub(super) fn is_one_head(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|b| *b == b'\n') {
        rest = &rest[at + 1..];
        if rest == b"\r\n" {
            return bytes.ends_with(b"\r\n\r\n");
        }
        if rest.starts_with(b"\n") || rest.starts_with(b"\r\n") {
            return false;
        }
    }
    false
}

/// Fields with memory of their own: those of a request keep all that was read with it. `None`: too
/// many to be kept.
pub(super) fn owned(headers: &HeaderMap) -> Option<HeaderMap> {
    if headers.len() > MOST_FIELDS {
        return None;
    }
    let mut owned = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        owned.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
    }
    Some(owned)
}

/// What is worked out of a request that is refused, to be known from now on.
pub(super) struct Worked {
    pub(super) client: IpAddr,
    pub(super) identity: Identity,
    pub(super) key: Key<'static>,
    pub(super) style: BodyStyle,
    pub(super) as_of: AsOf,
}

impl Known {
    /// `None`: it is too large to be kept.
    pub(super) fn new(
        head: Box<[u8]>,
        peer: IpAddr,
        request: &http::request::Parts,
        worked: Worked,
    ) -> Option<Self> {
        let Worked {
            client,
            identity,
            key,
            style,
            as_of,
        } = worked;
        Some(Self {
            head,
            peer,
            method: request.method.clone(),
            path: request.uri.path().into(),
            headers: owned(&request.headers)?,
            client,
            identity,
            key,
            style,
            as_of,
        })
    }
}

/// The date as answers tell it; written once a second.
#[derive(Default)]
pub(super) struct Date {
    second: u64,
    text: String,
}

impl Date {
    pub(super) fn text(&mut self, now: Timestamp) -> &str {
        let second = now.as_micros() / 1_000_000;
        if second != self.second || self.text.is_empty() {
            let moment = i64::try_from(second).unwrap_or_default();
            let moment = jiff::Timestamp::from_second(moment).unwrap_or_default();
            let written = jiff::fmt::rfc2822::DateTimePrinter::new();
            self.text = written
                .timestamp_to_rfc9110_string(&moment)
                .unwrap_or_default();
            self.second = second;
        }
        &self.text
    }
}

/// Without what clients sent.
impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memo").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn one_head_is_one_however_its_lines_end() {
        for one in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\nhost: a\r\n\r\n",
        ] {
            assert!(is_one_head(one.as_bytes()), "{one:?}");
        }
        for other in [
            "",
            "\r\n",
            "GET / HTTP/1.1\r\n",
            "GET / HTTP/1.1\n\n",
            "GET / HTTP/1.1\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\r",
            "GET / HTTP/1.1\r\n\r\nx",
            "GET / HTTP/1.1\r\n\r\n\r\n",
            "GET / HTTP/1.1\n\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\n\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\n\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert!(!is_one_head(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn clients_that_send_the_same_do_not_share_a_place() {
        let hasher = RandomState::default();
        let peers = (0..64).map(|n| IpAddr::from([192, 0, 2, n]));
        let places: HashSet<_> = peers.map(|peer| place(&hasher, b"GET /", peer)).collect();
        assert!(places.len() > 64 / WAYS, "{}", places.len());
    }

    #[test]
    fn dates_are_those_of_http() {
        let mut date = Date::default();
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000 + 999_999);
        assert_eq!(date.text(at(784_111_777)), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date.text(at(0)), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
