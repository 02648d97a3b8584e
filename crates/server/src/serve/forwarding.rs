//! What changes in the headers of a message that is passed on.

use std::net::IpAddr;

use http::header::{
    CONNECTION, COOKIE, FORWARDED, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};

use super::peer::Peer;
use super::validity::{VIA_NAME, is_host};

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields of one connection, which end here (RFC 9110, 7.6.1), besides those that `Connection`
/// names.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    TE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What a field is to somebody who passes a message on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// Of the message: it stays.
    Message,
    /// Of one connection: the number of it in the list.
    Hop(u8),
    /// It says who sent the message on.
    Claim,
}

/// Looks at every field once; most are told by their length and first letter.
fn field(name: &str) -> Field {
    match name {
        "connection" => Field::Hop(0),
        "te" => Field::Hop(1),
        "keep-alive" => Field::Hop(2),
        "proxy-connection" => Field::Hop(3),
        "proxy-authenticate" => Field::Hop(4),
        "proxy-authorization" => Field::Hop(5),
        "transfer-encoding" => Field::Hop(6),
        "upgrade" => Field::Hop(7),
        "forwarded" => Field::Claim,
        _ if name.starts_with('x') && is_claim(name.as_bytes()) => Field::Claim,
        _ => Field::Message,
    }
}

/// `X-Forwarded-*` and `X-Real-IP`. Many an upstream reads `_` as `-`: CGI makes one variable of
/// them.
fn is_claim(name: &[u8]) -> bool {
    let begins = |with: &[u8]| {
        name.get(..with.len()).is_some_and(|name| {
            name.iter()
                .zip(with)
                .all(|(a, b)| a == b || (*a, *b) == (b'_', b'-'))
        })
    };
    begins(b"x-forwarded-") || (name.len() == 9 && begins(b"x-real-ip"))
}

/// The fields of a message that end here, found in one pass.
#[derive(Default)]
struct Ending {
    /// A bit for each of the list.
    hops: u8,
    trailers: bool,
    /// Others; nearly always none.
    names: Vec<HeaderName>,
}

impl Ending {
    fn of(headers: &HeaderMap, also: impl Fn(&HeaderName) -> bool) -> Self {
        let mut ending = Self::default();
        for name in headers.keys() {
            match field(name.as_str()) {
                Field::Hop(number) => ending.hops |= 1 << number,
                Field::Claim if also(name) => ending.names.push(name.clone()),
                Field::Claim | Field::Message => {}
            }
        }
        if ending.hops & 0b01 != 0 {
            let named = tokens(headers, &CONNECTION)
                .filter(|token| !is_usual(token))
                .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok());
            ending.names.extend(named);
        }
        ending.trailers = ending.hops & 0b10 != 0
            && tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
        ending
    }

    fn remove(self, headers: &mut HeaderMap) {
        for (number, name) in HOP_BY_HOP.iter().enumerate() {
            if self.hops & (1 << number) != 0 {
                headers.remove(name);
            }
        }
        for name in &self.names {
            headers.remove(name);
        }
        if self.trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
}

/// What `Connection` says that is the name of no field that is left.
fn is_usual(token: &str) -> bool {
    ["keep-alive", "close", "te", "upgrade"]
        .iter()
        .any(|usual| token.eq_ignore_ascii_case(usual))
}

/// Removes what belongs to the connection the message came by. `TE` stays if it says `trailers`,
/// which this program passes on.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    Ending::of(headers, |_| false).remove(headers);
}

/// The comma-separated words of all fields of a name.
pub(super) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Whether somebody says that the request was sent on to here.
pub(super) fn claims_forwarding(headers: &HeaderMap) -> bool {
    headers
        .keys()
        .any(|name| field(name.as_str()) == Field::Claim)
}

/// Makes one field of the several that HTTP/2 may send cookies in (RFC 9113, 8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(COOKIE).iter();
    if let (Some(_), Some(_)) = (cookies.next(), cookies.next()) {
        let cookies: Vec<_> = headers.get_all(COOKIE).iter().collect();
        let cookies: Vec<_> = cookies.into_iter().map(HeaderValue::as_bytes).collect();
        let joined = HeaderValue::from_bytes(&cookies.join(&b"; "[..]));
        headers.insert(
            COOKIE,
            joined.expect("parts of values, and what may be in one"),
        );
    }
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

/// Makes the headers of a client's request those of the request that is sent on.
///
/// What is said about who sent the request on is dropped and written anew: the client that is
/// limited, and the trusted peer after it. Of what a trusted peer says, the host and the scheme
/// that it was asked by stay, and other `X-Forwarded-*`. All is written last: a client that names
/// one of these fields in `Connection` takes nothing away.
pub(super) fn forward_request(headers: &mut HeaderMap, origin: &Origin<'_>) {
    let ending = Ending::of(headers, |name| {
        !origin.trusted
            || *name == FORWARDED
            || *name == X_FORWARDED_FOR
            || !is_other_claim(name.as_str())
    });
    ending.remove(headers);
    if let Some(name) = origin.named.filter(|_| !origin.trusted) {
        headers.remove(name);
    }
    if let Some((name, _)) = &origin.identity {
        remove_any_spelling(headers, name);
    }
    // All at once, or the map grows twice.
    headers.reserve(8);
    if origin.trusted {
        forward_trusted(headers, origin);
    } else {
        let (peer, host) = (origin.peer, origin.host);
        headers.insert(&X_FORWARDED_FOR, peer.text().clone());
        headers.insert(&X_FORWARDED_PROTO, HeaderValue::from_static(peer.scheme()));
        let forwarded = match host {
            Some(host) => {
                headers.insert(&X_FORWARDED_HOST, host.clone());
                peer.forwarded(host)
            }
            None => forwarded(&[peer.address()], None, peer.scheme()),
        };
        headers.insert(FORWARDED, forwarded);
    }
    headers.append(VIA, HeaderValue::from_static(VIA_NAME));
    if let Some((name, Some(identity))) = &origin.identity {
        headers.insert(*name, (**identity).clone());
    }
}

/// Removes a field, also with `_` in the place of `-`: many an upstream reads them as one.
fn remove_any_spelling(headers: &mut HeaderMap, name: &HeaderName) {
    let dashed = |name: &HeaderName| name.as_str().replace('_', "-");
    let wanted = dashed(name);
    let all: Vec<_> = headers
        .keys()
        .filter(|it| dashed(it) == wanted)
        .cloned()
        .collect();
    for name in all {
        headers.remove(name);
    }
}

/// `X-Forwarded-*` but for the address, spelled as those who read it expect.
fn is_other_claim(name: &str) -> bool {
    name.starts_with("x-forwarded-") && !name.contains('_')
}

fn forward_trusted(headers: &mut HeaderMap, origin: &Origin<'_>) {
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
        .or(origin.host)
        .cloned();
    let (client, peer) = (origin.client, origin.peer.address());
    let chain: &[IpAddr] = if client == peer {
        &[peer]
    } else {
        &[client, peer]
    };
    let addresses: Vec<String> = chain.iter().map(ToString::to_string).collect();
    headers.insert(&X_FORWARDED_FOR, value(&addresses.join(", ")));
    headers.insert(&X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    headers.insert(FORWARDED, forwarded(chain, host.as_ref(), scheme));
    match host {
        Some(host) => headers.insert(&X_FORWARDED_HOST, host),
        None => headers.remove(&X_FORWARDED_HOST),
    };
}

/// The field `Forwarded` (RFC 7239) of a request that came by this way, the client first.
pub(super) fn forwarded(chain: &[IpAddr], host: Option<&HeaderValue>, scheme: &str) -> HeaderValue {
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
    value(&text)
}

/// Text of ours as the value of a header.
pub(super) fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("made of addresses and of a header's own text")
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

    fn forward(headers: &mut HeaderMap, peer: &str, host: Option<&HeaderValue>) {
        let peer = Peer::new(peer.parse().unwrap(), false, Slot::default());
        forward_request(
            headers,
            &Origin {
                client: peer.address(),
                peer: &peer,
                trusted: false,
                named: None,
                host,
                identity: None,
            },
        );
    }

    #[test]
    fn b137_connection_takes_away_nothing_that_the_gateway_writes() {
        let mut given = headers(&[
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
        forward(&mut given, "203.0.113.9", Some(&host));
        assert_eq!(
            given,
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
            let mut given = HeaderMap::new();
            forward(&mut given, peer, host.parse().ok().as_ref());
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
    fn a_response_keeps_its_own_fields() {
        let mut given = headers(&[
            ("connection", "x-secret"),
            ("x-secret", "1"),
            ("etag", "\"a\""),
            ("transfer-encoding", "chunked"),
        ]);
        strip_hop_by_hop(&mut given);
        assert_eq!(given, headers(&[("etag", "\"a\"")]));
    }

    #[test]
    fn b137_a_trusted_proxy_is_believed_as_far_as_it_was_asked() {
        let peer = Peer::new([10, 0, 0, 5].into(), false, Slot::default());
        let host = HeaderValue::from_static("inner.example");
        let mut given = headers(&[
            ("connection", "x-forwarded-for"),
            ("x-forwarded-for", "6.6.6.6, 203.0.113.9"),
            ("forwarded", "for=6.6.6.6"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.example"),
            ("x-forwarded-port", "443"),
            ("x_forwarded_port", "1"),
            ("x-real-ip", "6.6.6.6"),
        ]);
        forward_request(
            &mut given,
            &Origin {
                peer: &peer,
                client: [203, 0, 113, 9].into(),
                trusted: true,
                named: None,
                host: Some(&host),
                identity: None,
            },
        );
        assert_eq!(
            given,
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
        let peer = Peer::new([192, 0, 2, 1].into(), false, Slot::default());
        let name = HeaderName::from_static("cf-connecting-ip");
        let mut given = headers(&[("cf-connecting-ip", "6.6.6.6")]);
        forward_request(
            &mut given,
            &Origin {
                peer: &peer,
                client: peer.address(),
                trusted: false,
                named: Some(&name),
                host: None,
                identity: None,
            },
        );
        assert!(!given.contains_key(name));
        assert_eq!(given[&X_FORWARDED_FOR], "192.0.2.1");
    }
}
