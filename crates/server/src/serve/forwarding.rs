//! What changes in the headers of a message that is passed on.

use std::net::IpAddr;

use http::header::{
    CONNECTION, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};

use super::validity::VIA_NAME;

/// Fields of one connection, which end here (RFC 9110, 7.6.1), besides those that `Connection`
/// names.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Removes what belongs to the connection the message came by. `TE` stays if it says `trailers`,
/// which this program passes on.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let trailers = tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// The comma-separated words of all fields of a name.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Whether somebody says that the request was sent on to here.
pub(super) fn claims_forwarding(headers: &HeaderMap) -> bool {
    [FORWARDED, X_FORWARDED_FOR, X_REAL_IP]
        .iter()
        .any(|name| headers.contains_key(name))
}

/// Makes the headers of a client's request those of the request that is sent on.
///
/// What the client says about who sent the request on is dropped, since no proxy is trusted, and
/// written anew from the connection. That happens last: a client that names one of these fields in
/// `Connection` takes nothing away.
pub(super) fn forward_request(headers: &mut HeaderMap, peer: IpAddr, host: Option<&HeaderValue>) {
    strip_hop_by_hop(headers);
    let claimed: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            // Many an upstream reads both the same: CGI makes one variable of them.
            let name = name.as_str().replace('_', "-");
            name.starts_with("x-forwarded-") || FORWARDED == *name || X_REAL_IP == *name
        })
        .cloned()
        .collect();
    for name in claimed {
        headers.remove(name);
    }
    // The client library writes the upstream's own.
    headers.remove(HOST);

    let peer = peer.to_canonical();
    let mut forwarded = match peer {
        IpAddr::V4(peer) => format!("for={peer}"),
        IpAddr::V6(peer) => format!("for=\"[{peer}]\""),
    };
    insert(headers, X_FORWARDED_FOR, &peer.to_string());
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    if let Some((value, text)) = host.and_then(|host| Some((host, host.to_str().ok()?))) {
        headers.insert(X_FORWARDED_HOST, value.clone());
        forwarded.push_str(";host=\"");
        forwarded.extend(text.chars().flat_map(|c| {
            let escape = matches!(c, '"' | '\\').then_some('\\');
            escape.into_iter().chain([c])
        }));
        forwarded.push('"');
    }
    forwarded.push_str(";proto=http");
    insert(headers, FORWARDED, &forwarded);
    headers.append(VIA, HeaderValue::from_static(VIA_NAME));
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    let value = HeaderValue::from_str(text).expect("made of addresses and of a header's own text");
    headers.insert(name, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
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
            ("host", "a.example"),
            ("accept", "*/*"),
        ]);
        let host = HeaderValue::from_static("a.example");
        forward_request(&mut given, "203.0.113.9".parse().unwrap(), Some(&host));
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
            forward_request(
                &mut given,
                peer.parse().unwrap(),
                host.parse().ok().as_ref(),
            );
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
}
