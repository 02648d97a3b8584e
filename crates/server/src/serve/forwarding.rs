//! What changes in the headers of a message that is passed on.

use std::net::IpAddr;

use http::Version;
use http::header::{CONNECTION, COOKIE, FORWARDED, HeaderMap, HeaderName, HeaderValue, TE, VIA};
use http::request::Parts;

use super::peer::Peer;
use super::validity::{VIA_NAME, is_host};

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What a field is to somebody who passes a message on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Of the message: it stays.
    Message,
    /// Of one connection: it ends here (RFC 9110, 7.6.1), as do those that `Connection` names.
    Hop,
    /// It says where a request goes, how long its body is or what it is called, which whoever
    /// sends it says.
    Sender,
    /// It says who sent the message on.
    Claim,
}

/// Looks at a name once; most are told by their length and first letter.
pub(super) fn field(name: &str) -> Field {
    match name {
        "connection"
        | "te"
        | "keep-alive"
        | "proxy-connection"
        | "proxy-authenticate"
        | "proxy-authorization"
        | "transfer-encoding"
        | "upgrade" => Field::Hop,
        "host" | "content-length" | "x-request-id" => Field::Sender,
        "forwarded" => Field::Claim,
        _ if name.starts_with('x') && is_claim(name.as_bytes()) => Field::Claim,
        _ => Field::Message,
    }
}

/// `X-Forwarded-*` and `X-Real-IP`. Many an upstream reads `_` as `-`: CGI makes one variable of
/// them.
fn is_claim(name: &[u8]) -> bool {
    let begins = |with: &[u8]| {
        name.get(..with.len())
            .is_some_and(|name| reads_as(name, with))
    };
    begins(b"x-forwarded-") || (name.len() == 9 && begins(b"x-real-ip"))
}

/// Whether two names are one to who reads `_` as `-`.
fn reads_as(name: &[u8], other: &[u8]) -> bool {
    let dashed = |b: u8| if b == b'_' { b'-' } else { b };
    name.len() == other.len()
        && name
            .iter()
            .zip(other)
            .all(|(a, b)| dashed(*a) == dashed(*b))
}

/// The fields that a value of `Connection` names; nearly always none.
pub(super) fn named(value: &[u8]) -> impl Iterator<Item = HeaderName> {
    words(value)
        .filter(|word| !is_usual(word))
        .filter_map(|word| HeaderName::from_bytes(word).ok())
}

/// What `Connection` says that is the name of no field that is left.
fn is_usual(word: &[u8]) -> bool {
    [&b"keep-alive"[..], b"close", b"te", b"upgrade"]
        .iter()
        .any(|usual| word.eq_ignore_ascii_case(usual))
}

/// The words of a value between its commas.
pub(super) fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(<[u8]>::trim_ascii)
}

/// The comma-separated words of all fields of a name.
pub(super) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).iter();
    values.flat_map(|value| words(value.as_bytes()))
}

/// Whether somebody says that the request was sent on to here.
pub(super) fn claims_forwarding(headers: &HeaderMap) -> bool {
    headers
        .keys()
        .any(|name| field(name.as_str()) == Field::Claim)
}

/// Where a request came from, as far as that is known and not just said.
#[derive(Debug)]
pub(super) struct Origin<'a> {
    /// The other end of the connection.
    pub(super) peer: &'a Peer,
    /// The client: the peer, or who it is for according to a peer that is trusted.
    pub(super) client: IpAddr,
    /// Whether the peer is a proxy whose word counts.
    pub(super) trusted: bool,
    /// A field of one's own by which such proxies name the client.
    pub(super) named: Option<&'a HeaderName>,
    /// The host that was asked for.
    pub(super) host: Option<&'a HeaderValue>,
    /// The field that says whom the request counts for, and what it says.
    pub(super) identity: Option<(&'a HeaderName, Option<Box<HeaderValue>>)>,
}

impl Origin<'_> {
    /// Whether a field that the client sent stays as it is.
    pub(super) fn leaves(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        let stays = match field(text) {
            Field::Message => true,
            Field::Hop | Field::Sender => false,
            Field::Claim => self.trusted && is_other_claim(text),
        };
        stays
            && (self.trusted || self.named != Some(name))
            && self
                .identity
                .as_ref()
                .is_none_or(|(own, _)| !reads_as(text.as_bytes(), own.as_str().as_bytes()))
    }
}

/// Writes the fields of a client's request as those of the request that is sent on, but for those
/// of which the sender says what they are ([`Field::Sender`]), and those that are `other`s to
/// write.
///
/// What is said about who sent the request on is dropped and written anew: the client that is
/// limited, and the trusted peer after it. Of what a trusted peer says, the host and the scheme
/// that it was asked by stay, and other `X-Forwarded-*`. A client that names one of these fields in
/// `Connection` takes nothing away.
pub(super) fn forward_request(
    request: &Parts,
    origin: &Origin<'_>,
    other: impl Fn(&HeaderName) -> bool,
    out: &mut Vec<u8>,
) {
    let headers = &request.headers;
    let connection = headers.get_all(CONNECTION).iter();
    let gone: Vec<_> = connection.flat_map(|it| named(it.as_bytes())).collect();
    // HTTP/2 may send cookies in several fields, which are one (RFC 9113, 8.2.3).
    let joined = request.version >= Version::HTTP_2;
    let mut cookies = Vec::new();
    for (name, value) in headers {
        if name == TE && words(value.as_bytes()).any(|it| it.eq_ignore_ascii_case(b"trailers")) {
            // Which this program passes on.
            write(out, "te", b"trailers");
        } else if !origin.leaves(name) || gone.contains(name) || other(name) {
        } else if joined && name == COOKIE {
            cookies.push(value.as_bytes());
        } else {
            write(out, name.as_str(), value.as_bytes());
        }
    }
    if !cookies.is_empty() {
        write(out, "cookie", &cookies.join(&b"; "[..]));
    }
    if origin.trusted {
        forward_trusted(headers, origin, out);
    } else {
        origin.peer.write_forwarded(origin.host, out);
    }
    write(out, VIA.as_str(), VIA_NAME.as_bytes());
    if let Some((name, Some(identity))) = &origin.identity {
        write(out, name.as_str(), identity.as_bytes());
    }
}

/// Writes a field as HTTP/1.1 has it. Neither a [`HeaderName`] nor a [`HeaderValue`] can have a
/// line's end in it.
pub(super) fn write(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// `X-Forwarded-*` but for those that are written anew, spelled as those who read it expect.
fn is_other_claim(name: &str) -> bool {
    name.strip_prefix("x-forwarded-")
        .is_some_and(|what| !matches!(what, "for" | "host" | "proto") && !what.contains('_'))
}

fn forward_trusted(headers: &HeaderMap, origin: &Origin<'_>, out: &mut Vec<u8>) {
    let only = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none())
    };
    let scheme = match only(&X_FORWARDED_PROTO).map(HeaderValue::as_bytes) {
        Some(b"https") => "https",
        Some(b"http") => "http",
        _ => origin.peer.scheme(),
    };
    let host = only(&X_FORWARDED_HOST)
        .filter(|host| is_host(host.as_bytes()))
        .or(origin.host);
    let (client, peer) = (origin.client, origin.peer.address());
    let chain: &[IpAddr] = if client == peer {
        &[peer]
    } else {
        &[client, peer]
    };
    write_chain(chain, host, scheme, out);
}

/// Writes by whom a request came, the client first, and what it was asked by.
pub(super) fn write_chain(
    chain: &[IpAddr],
    host: Option<&HeaderValue>,
    scheme: &str,
    out: &mut Vec<u8>,
) {
    let addresses: Vec<String> = chain.iter().map(ToString::to_string).collect();
    write(
        out,
        X_FORWARDED_FOR.as_str(),
        addresses.join(", ").as_bytes(),
    );
    write(out, X_FORWARDED_PROTO.as_str(), scheme.as_bytes());
    if let Some(host) = host {
        write(out, X_FORWARDED_HOST.as_str(), host.as_bytes());
    }
    write(
        out,
        FORWARDED.as_str(),
        forwarded(chain, host, scheme).as_bytes(),
    );
}

/// The field `Forwarded` (RFC 7239).
fn forwarded(chain: &[IpAddr], host: Option<&HeaderValue>, scheme: &str) -> String {
    let elements: Vec<String> = chain
        .iter()
        .map(|address| match address {
            IpAddr::V4(address) => format!("for={address}"),
            IpAddr::V6(address) => format!("for=\"[{address}]\""),
        })
        .collect();
    let mut text = elements.join(", ");
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        text.push_str(";host=\"");
        text.extend(host.chars().flat_map(|c| {
            let escape = matches!(c, '"' | '\\').then_some('\\');
            escape.into_iter().chain([c])
        }));
        text.push('"');
    }
    text.push_str(";proto=");
    text.push_str(scheme);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::open::Slot;

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn forward(headers: HeaderMap, origin: &Origin<'_>) -> HeaderMap {
        let mut request = http::Request::new(());
        *request.headers_mut() = headers;
        let mut text = Vec::new();
        forward_request(&request.into_parts().0, origin, |_| false, &mut text);
        text.extend(b"\r\n");
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let parsed = httparse::parse_headers(&text, &mut fields).unwrap();
        let (length, fields) = parsed.unwrap();
        assert_eq!(length, text.len());
        let text = |field: &httparse::Header<'_>| String::from_utf8(field.value.into()).unwrap();
        let fields: Vec<_> = fields.iter().map(|it| (it.name, text(it))).collect();
        let fields: Vec<_> = fields.iter().map(|(name, it)| (*name, &**it)).collect();
        self::headers(&fields)
    }

    fn untrusted<'a>(peer: &'a Peer, host: Option<&'a HeaderValue>) -> Origin<'a> {
        Origin {
            client: peer.address(),
            peer,
            trusted: false,
            named: None,
            host,
            identity: None,
        }
    }

    fn peer(address: &str) -> Peer {
        Peer::new(address.parse().unwrap(), false, Slot::default())
    }

    #[test]
    fn b137_connection_takes_away_nothing_that_the_gateway_writes() {
        let given = headers(&[
            ("connection", "close, X-Forwarded-For, X-Real-IP, X-User-Id"),
            ("connection", "x-ratelimit-tier"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-port", "1"),
            ("x_forwarded_for", "1.1.1.1"),
            ("x_forwarded-port", "1"),
            ("forwarded", "for=1.1.1.1"),
            ("x-real-ip", "1.1.1.1"),
            ("x_real_ip", "1.1.1.1"),
            ("x-user-id", "admin"),
            ("x-ratelimit-tier", "gold"),
            ("te", "trailers, deflate"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic x"),
            ("proxy-connection", "keep-alive"),
            ("upgrade", "h2c"),
            ("transfer-encoding", "chunked"),
            ("accept", "*/*"),
        ]);
        let host = HeaderValue::from_static("a.example");
        let peer = peer("203.0.113.9");
        assert_eq!(
            forward(given, &untrusted(&peer, Some(&host))),
            headers(&[
                ("accept", "*/*"),
                ("te", "trailers"),
                ("x-forwarded-for", "203.0.113.9"),
                ("x-forwarded-proto", "http"),
                ("x-forwarded-host", "a.example"),
                ("forwarded", "for=203.0.113.9;host=\"a.example\";proto=http"),
                ("via", "1.1 tollgate"),
            ])
        );
    }

    #[test]
    fn addresses_and_hosts_are_quoted_where_they_must_be() {
        let forwarded = |peer: &str, host: &str| {
            let (peer, host) = (self::peer(peer), host.parse().ok());
            let given = forward(HeaderMap::new(), &untrusted(&peer, host.as_ref()));
            given[FORWARDED].to_str().unwrap().to_owned()
        };
        assert_eq!(
            forwarded("2001:db8::1", "h:1"),
            r#"for="[2001:db8::1]";host="h:1";proto=http"#
        );
        assert_eq!(
            forwarded("::ffff:1.2.3.4", r#"a"b\"#),
            r#"for=1.2.3.4;host="a\"b\\";proto=http"#
        );
    }

    #[test]
    fn b137_a_trusted_proxy_is_believed_as_far_as_it_was_asked() {
        let peer = peer("10.0.0.5");
        let host = HeaderValue::from_static("inner.example");
        let given = headers(&[
            ("connection", "x-forwarded-for"),
            ("x-forwarded-for", "6.6.6.6, 203.0.113.9"),
            ("forwarded", "for=6.6.6.6"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.example"),
            ("x-forwarded-port", "443"),
            ("x_forwarded_port", "1"),
            ("x-real-ip", "6.6.6.6"),
        ]);
        let origin = Origin {
            client: [203, 0, 113, 9].into(),
            trusted: true,
            ..untrusted(&peer, Some(&host))
        };
        assert_eq!(
            forward(given, &origin),
            headers(&[
                ("x-forwarded-for", "203.0.113.9, 10.0.0.5"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "shop.example"),
                ("x-forwarded-port", "443"),
                (
                    "forwarded",
                    "for=203.0.113.9, for=10.0.0.5;host=\"shop.example\";proto=https"
                ),
                ("via", "1.1 tollgate"),
            ])
        );
    }

    #[test]
    fn a_field_of_ones_own_is_dropped_from_those_who_may_not_write_it() {
        let peer = peer("192.0.2.1");
        let name = HeaderName::from_static("cf-connecting-ip");
        let origin = Origin {
            named: Some(&name),
            ..untrusted(&peer, None)
        };
        let given = forward(headers(&[("cf-connecting-ip", "6.6.6.6")]), &origin);
        assert!(!given.contains_key(name));
        assert_eq!(given[&X_FORWARDED_FOR], "192.0.2.1");
    }

    #[test]
    fn whom_a_request_counts_for_is_said_by_nobody_else_in_any_spelling() {
        let peer = peer("192.0.2.1");
        let name = HeaderName::from_static("x-user-id");
        for said in [Some("key:1"), None] {
            let value = said.map(|said| Box::new(HeaderValue::from_static(said)));
            let origin = Origin {
                identity: Some((&name, value)),
                ..untrusted(&peer, None)
            };
            let given = headers(&[
                ("x-user-id", "admin"),
                ("x_user-id", "admin"),
                ("x_user_id", "admin"),
                ("x-user-ids", "stays"),
            ]);
            let given = forward(given, &origin);
            let all: Vec<_> = given.get_all(&name).iter().collect();
            assert_eq!(all, said.as_slice());
            assert_eq!(given["x-user-ids"], "stays");
            assert!(!given.keys().any(|name| name.as_str().contains('_')));
        }
    }
}
