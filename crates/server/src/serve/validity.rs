//! Requests that mean one thing to one reader and another to the next. They are refused here, so
//! that the upstream never has to choose.

use http::header::{HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING, VIA};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, StatusCode, Version};

use super::answer::Failure;

/// What this program calls itself where a message names those who passed it on.
pub(super) const VIA_NAME: &str = "1.1 tollgate";

/// A request that has passed so many of us is going round in circles.
const MOST_GATEWAYS: usize = 8;

const HOST_UNCLEAR: Failure = Failure(
    StatusCode::BAD_REQUEST,
    "The request needs one Host, which is a name or an address and perhaps a port",
);
const TARGET_UNCLEAR: Failure = Failure(
    StatusCode::BAD_REQUEST,
    "The target of the request is no path and no http URL",
);
const CODING_UNKNOWN: Failure = Failure(
    StatusCode::NOT_IMPLEMENTED,
    "The only transfer coding that is understood is chunked",
);
const LOOP: Failure = Failure(
    StatusCode::LOOP_DETECTED,
    "The request comes back to where it was forwarded from",
);

/// The host that a request asks for: none only where HTTP/1.0 leaves it out. `known` says of a
/// host whether it was found to be one before.
pub(super) fn host(
    request: &Parts,
    known: impl Fn(&HeaderValue) -> bool,
) -> Result<Option<HeaderValue>, Failure> {
    if !is_plain_chunked(&request.headers) {
        return Err(CODING_UNKNOWN);
    }
    if gateways(&request.headers) >= MOST_GATEWAYS {
        tracing::warn!("requests come back here: does the upstream lead to this gateway?");
        return Err(LOOP);
    }
    let mut hosts = request.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) if request.version <= Version::HTTP_10 => None,
        // HTTP/2 says it in the target.
        (None, _) if request.version >= Version::HTTP_2 => None,
        // Empty is how a client says that the target has no host.
        (Some(host), None) if host.is_empty() || known(host) || is_host(host.as_bytes()) => {
            Some(host.clone())
        }
        _ => return Err(HOST_UNCLEAR),
    };
    let uri = &request.uri;
    match (uri.scheme_str(), uri.authority()) {
        (None, None) if uri.path() != "*" || request.method == Method::OPTIONS => Ok(host),
        (Some("http" | "https"), Some(authority)) if is_host(authority.as_str().as_bytes()) => {
            if request.version >= Version::HTTP_2
                && host.is_some_and(|host| host != authority.as_str())
            {
                // One request must not have two (RFC 9113, 8.3.1).
                return Err(HOST_UNCLEAR);
            }
            // It goes before the header (RFC 9112, 3.2.2).
            HeaderValue::from_str(authority.as_str())
                .map(Some)
                .map_err(|_| TARGET_UNCLEAR)
        }
        _ => Err(TARGET_UNCLEAR),
    }
}

/// Whether the body of a message is framed in a way that this program undoes whole. Any other
/// coding would be taken for the content once its name is stripped.
fn is_plain_chunked(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

/// A name or an address, and perhaps a port; no user, which only serves to mislead.
pub(super) fn is_host(text: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(text) else {
        return false;
    };
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return false;
    }
    match authority.as_str().strip_prefix(authority.host()) {
        Some("" | ":") => true,
        Some(port) => port.strip_prefix(':').is_some_and(|port| {
            port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok()
        }),
        None => false,
    }
}

/// How many gateways of ours have passed it on.
fn gateways(headers: &HeaderMap) -> usize {
    let values = headers.get_all(VIA).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter(|name| name.trim() == VIA_NAME)
        .count()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(method: &str, target: &str, fields: &[(&str, &str)]) -> Result<String, StatusCode> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        match host(&parts, |_| false) {
            Ok(host) => Ok(host.unwrap().to_str().unwrap().to_owned()),
            Err(Failure(status, _)) => Err(status),
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for host in [
            "a.example",
            "a_b:80",
            "127.0.0.1:8000",
            "[::1]",
            "[::1]:80",
            "h:",
            "",
        ] {
            assert_eq!(of("GET", "/", &[("host", host)]), Ok(host.into()));
        }
        for host in [
            "a b", "a, b", "a\"b", "u@h", "u:p@h", "h:x", "h:99999", "h:+80", "h::80", "h/",
            "h:1:2", ":80", "\u{ff}",
        ] {
            let got = of("GET", "/", &[("host", host)]);
            assert_eq!(got, Err(StatusCode::BAD_REQUEST), "{host}");
        }
        let both = [("host", "a"), ("host", "a")];
        assert_eq!(of("GET", "/", &both), Err(StatusCode::BAD_REQUEST));
        assert_eq!(of("GET", "/", &[]), Err(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn a_target_is_a_path_or_an_http_url() {
        let of = |method, target| of(method, target, &[("host", "h")]);
        assert_eq!(of("GET", "//evil/x"), Ok("h".into()));
        assert_eq!(of("GET", "http://other/x"), Ok("other".into()));
        assert_eq!(of("OPTIONS", "*"), Ok("h".into()));
        for (method, target) in [
            ("GET", "*"),
            ("GET", "other"),
            ("GET", "other:80"),
            ("GET", "ftp://other/"),
            ("GET", "http://u:p@other/"),
        ] {
            assert_eq!(of(method, target), Err(StatusCode::BAD_REQUEST), "{target}");
        }
    }

    #[test]
    fn codings_other_than_chunked_and_loops_are_refused() {
        let of = |name, values: &[&str]| {
            let fields: Vec<_> = values.iter().map(|value| (name, *value)).collect();
            of("GET", "/", &[&[("host", "h")], &*fields].concat())
        };
        assert_eq!(of("transfer-encoding", &["Chunked"]), Ok("h".into()));
        for codings in [
            &["gzip, chunked"][..],
            &["gzip", "chunked"],
            &["chunked", "chunked"],
        ] {
            let got = of("transfer-encoding", codings);
            assert_eq!(got, Err(StatusCode::NOT_IMPLEMENTED), "{codings:?}");
        }
        assert_eq!(of("via", &[VIA_NAME; 7]), Ok("h".into()));
        assert_eq!(of("via", &[VIA_NAME; 8]), Err(StatusCode::LOOP_DETECTED));
    }
}
