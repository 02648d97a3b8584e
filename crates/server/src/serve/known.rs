//! Requests that were refused and are likely to come again, byte for byte: a client over its limit
//! rarely asks for something else. Whom they count for, and what rules look at, was worked out then
//! and need not be again.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::BufRead as _;
use std::net::IpAddr;

use foldhash::quality::RandomState;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tollgate::{Key, Timestamp};
use tollgate_http::{BodyStyle, RequestId};

use super::template::Template;
use crate::engine::normalised;
use crate::identity::{AsOf, Identity};

/// The longest head of a request that is kept, in bytes, and the most fields.
const LONGEST: usize = 1024;
const MOST_FIELDS: usize = 32;

/// How many requests are kept: so many times as many as have the same place. One whose head is as
/// long as that takes 8.5 KiB, and its answer 2: 42 MiB of a thread at the most.
const SETS: usize = 512;
const WAYS: usize = 8;

/// As much room for answers is kept for the next ones.
const ANSWERS: usize = 16 * 1024;

/// A request without a body, and what was worked out of it.
pub(super) struct Known {
    /// Its bytes.
    head: Box<[u8]>,
    /// The other end of its connection.
    peer: IpAddr,
    pub(super) method: Method,
    pub(super) path: Box<str>,
    /// As rules see it, if that is another.
    normalised: Option<Box<str>>,
    pub(super) headers: HeaderMap,
    pub(super) client: IpAddr,
    pub(super) identity: Identity,
    pub(super) key: Key<'static>,
    pub(super) style: BodyStyle,
    /// The id that the client gave it.
    pub(super) id: Option<Box<str>>,
    /// What else says whom it counts for.
    pub(super) as_of: AsOf,
    /// Of its latest answer.
    pub(super) template: Option<Template>,
}

/// The requests that a thread knows. Bounded: of too many, the older ones are forgotten.
pub(super) struct Memo {
    hasher: RandomState,
    /// Made with the first request.
    sets: Box<[Set]>,
    offered: Option<Offered>,
    /// Room that is used again and again.
    latest: Vec<u8>,
    answers: Vec<u8>,
    date: Date,
}

#[derive(Default)]
struct Set {
    /// A part of the hash of each, to look at the right one only.
    tags: [u32; WAYS],
    known: [Option<Box<Known>>; WAYS],
    oldest: usize,
}

/// Where a request is kept.
#[derive(Clone, Copy)]
pub(super) struct Place {
    set: usize,
    way: usize,
}

/// A request that is known, and what is needed to answer it.
pub(super) struct Found<'a> {
    pub(super) known: &'a mut Known,
    pub(super) date: &'a mut Date,
    /// Where the answer is written to.
    pub(super) answers: &'a mut Vec<u8>,
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
            answers: Vec::new(),
            date: Date::default(),
        }
    }

    /// Where the request with these bytes of this peer is, if it is known.
    pub(super) fn find(&self, head: &[u8], peer: IpAddr) -> Option<Place> {
        if self.sets.is_empty() || head.len() > LONGEST {
            return None;
        }
        let (set, tag) = self.place(head, peer);
        let Set { tags, known, .. } = &self.sets[set];
        let is_it = |known: &Known| *known.head == *head && known.peer == peer;
        let way =
            (0..WAYS).find(|way| tags[*way] == tag && known[*way].as_deref().is_some_and(is_it));
        way.map(|way| Place { set, way })
    }

    /// The request at a place where one was found.
    pub(super) fn at(&mut self, Place { set, way }: Place) -> Option<Found<'_>> {
        Some(Found {
            known: self.sets[set].known[way].as_deref_mut()?,
            date: &mut self.date,
            answers: &mut self.answers,
        })
    }

    /// The answers that were written.
    pub(super) fn answers(&self) -> &[u8] {
        &self.answers
    }

    /// Makes room for others.
    pub(super) fn clear_answers(&mut self) {
        self.answers.clear();
        if self.answers.capacity() > ANSWERS {
            self.answers.shrink_to(ANSWERS);
        }
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
        let (set, tag) = self.place(&known.head, known.peer);
        let found = self.find(&known.head, known.peer).map(|place| place.way);
        let set = &mut self.sets[set];
        let free = || set.known.iter().position(Option::is_none);
        let way = found.or_else(free).unwrap_or_else(|| {
            set.oldest = (set.oldest + 1) % WAYS;
            set.oldest
        });
        set.tags[way] = tag;
        set.known[way] = Some(Box::new(known));
    }

    /// By the peer, too: the clients of one program all send the same bytes.
    fn place(&self, head: &[u8], peer: IpAddr) -> (usize, u32) {
        place(&self.hasher, head, peer)
    }
}

fn place(hasher: &RandomState, head: &[u8], peer: IpAddr) -> (usize, u32) {
    let mut hasher = hasher.build_hasher();
    hasher.write(head);
    // None of IPv4 is there in two forms.
    hasher.write_u128(match peer {
        IpAddr::V4(peer) => peer.to_bits().into(),
        IpAddr::V6(peer) => peer.to_bits(),
    });
    let hash = hasher.finish();
    (hash as usize % SETS, (hash >> 32) as u32)
}

/// How long the head is with which this begins, if all of it is there, and ends as every parser
/// takes it: one may end a head at any empty line, whatever its lines end with, and passes over
/// those before it, which are no request.
pub(super) fn head_length(bytes: &[u8]) -> Option<usize> {
    if let Some(b'\r' | b'\n') = bytes.first() {
        return None;
    }
    let mut rest = bytes;
    loop {
        // A slice never fails, and its bytes are looked at many at a time.
        let line = rest.skip_until(b'\n').ok().filter(|line| *line > 0)?;
        let at = bytes.len() - rest.len();
        if bytes[at - 1] != b'\n' {
            return None;
        }
        if rest.starts_with(b"\r\n") {
            return (line > 1 && bytes[at - 2] == b'\r').then_some(at + 2);
        }
        if rest.starts_with(b"\n") {
            return None;
        }
    }
}

/// How many heads these are, if they are nothing else, and how long the first is.
pub(super) fn heads(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = head_length(bytes)?;
    let (mut rest, mut count) = (&bytes[first..], 1);
    while !rest.is_empty() {
        rest = &rest[head_length(rest)?..];
        count += 1;
    }
    Some((count, first))
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
        let path = request.uri.path();
        let normalised = normalised(path);
        Some(Self {
            head,
            peer,
            method: request.method.clone(),
            path: path.into(),
            normalised: (normalised != path).then(|| normalised.into()),
            headers: owned(&request.headers)?,
            id: RequestId::given(&request.headers).map(|id| id.as_str().into()),
            client,
            identity,
            key,
            style,
            as_of,
            template: None,
        })
    }

    /// The path as rules see it.
    pub(super) fn normalised(&self) -> &str {
        self.normalised.as_deref().unwrap_or(&self.path)
    }
}

/// The date as answers tell it; written once a second.
pub(super) struct Date {
    second: u64,
    text: [u8; Self::LENGTH],
}

impl Date {
    /// How long it is.
    pub(super) const LENGTH: usize = 29;

    pub(super) fn text(&mut self, now: Timestamp) -> &[u8; Self::LENGTH] {
        let second = now.as_micros() / 1_000_000;
        if second != self.second {
            let moment = i64::try_from(second).unwrap_or_default();
            let moment = jiff::Timestamp::from_second(moment).unwrap_or_default();
            let written = jiff::fmt::rfc2822::DateTimePrinter::new();
            let text = written.timestamp_to_rfc9110_string(&moment);
            // Of a year with four digits, as all are that can be.
            if let Some(text) = text.ok().and_then(|it| it.as_bytes().try_into().ok()) {
                self.text = text;
            }
            self.second = second;
        }
        &self.text
    }
}

impl Default for Date {
    fn default() -> Self {
        Self {
            second: 0,
            text: *b"Thu, 01 Jan 1970 00:00:00 GMT",
        }
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
    fn heads_are_heads_however_their_lines_end() {
        let heads = |text: &str| heads(text.as_bytes());
        for one in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\nhost: a\r\n\r\n",
        ] {
            for count in [1, 3] {
                assert_eq!(
                    heads(&one.repeat(count)),
                    Some((count, one.len())),
                    "{one:?}"
                );
            }
            assert_eq!(heads(&format!("{one}x")), None, "{one:?}");
            assert_eq!(heads(&format!("{one}\r\n")), None, "{one:?}");
        }
        for none in [
            "",
            "\n",
            "\r\n",
            "\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\n",
            "GET / HTTP/1.1\n\n",
            "GET / HTTP/1.1\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\r",
            "GET / HTTP/1.1\n\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\n\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\n\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(heads(none), None, "{none:?}");
            assert_eq!(head_length(none.as_bytes()), None, "{none:?}");
        }
    }

    #[test]
    fn clients_that_send_the_same_do_not_share_a_place() {
        let hasher = RandomState::default();
        let peers = (0..64).map(|n| IpAddr::from([192, 0, 2, n]));
        let sets = peers.map(|peer| place(&hasher, b"GET /", peer).0);
        let places: HashSet<_> = sets.collect();
        assert!(places.len() > 48, "{}", places.len());
    }

    #[test]
    fn dates_are_those_of_http() {
        let mut date = Date::default();
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000 + 999_999);
        for (second, text) in [
            (0, b"Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, b"Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, b"Thu, 01 Jan 1970 00:00:00 GMT"),
        ] {
            assert_eq!(date.text(at(second)), text);
        }
    }
}
