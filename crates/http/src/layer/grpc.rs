//! Refusals as gRPC tells them: HTTP 200 and nothing but trailers, sent as headers.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) const PERMISSION_DENIED: u8 = 7;
pub(crate) const RESOURCE_EXHAUSTED: u8 = 8;
pub(super) const INTERNAL: u8 = 13;
pub(crate) const UNAVAILABLE: u8 = 14;
pub(super) const UNAUTHENTICATED: u8 = 16;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Whether a request is one of gRPC.
pub(super) fn is(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let rest = value.as_bytes().strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
    })
}

/// Writes a status. `retry`: when the same call would be admitted.
pub(super) fn write(headers: &mut HeaderMap, code: u8, message: &str, retry: Option<Duration>) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(u16::from(code)));
    headers.insert(MESSAGE, percent_encoded(message));
    if let Some(wait) = retry {
        let details = STANDARD_NO_PAD.encode(status(code, message, wait));
        let details = HeaderValue::from_str(&details).expect("base64 is ASCII");
        headers.insert(DETAILS, details);
    }
}

/// Printable ASCII stays, but for `%`.
fn percent_encoded(message: &str) -> HeaderValue {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => text.push(byte.into()),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&text).expect("percent-encoded text is printable ASCII")
}

/// A `google.rpc.Status` with one detail, a `google.rpc.RetryInfo`, as protobuf writes it.
fn status(code: u8, message: &str, wait: Duration) -> Vec<u8> {
    const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
    // The largest that a protobuf duration holds is about ten thousand years.
    let seconds = wait.as_secs().min(315_576_000_000);
    let mut delay = Vec::new();
    number(&mut delay, 1, seconds);
    number(&mut delay, 2, wait.subsec_nanos().into());
    let mut retry_info = Vec::new();
    bytes(&mut retry_info, 1, &delay);
    let mut any = Vec::new();
    bytes(&mut any, 1, RETRY_INFO.as_bytes());
    bytes(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    number(&mut status, 1, code.into());
    bytes(&mut status, 2, message.as_bytes());
    bytes(&mut status, 3, &any);
    status
}

fn number(message: &mut Vec<u8>, field: u64, value: u64) {
    if value > 0 {
        varint(message, field << 3);
        varint(message, value);
    }
}

fn bytes(message: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(message, field << 3 | 2);
    varint(message, value.len() as u64);
    message.extend_from_slice(value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_written_as_protobuf_does() {
        let status = status(8, "no", Duration::from_millis(1_200));
        let mut expected = b"\x08\x08\x12\x02no\x1a\x35\x0a\x28".to_vec();
        expected.extend(b"type.googleapis.com/google.rpc.RetryInfo");
        expected.extend(b"\x12\x09\x0a\x07\x08\x01\x10\x80\x84\xaf\x5f");
        assert_eq!(status, expected);
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(
            percent_encoded("50% of \"a\"\r\né"),
            "50%25 of \"a\"%0D%0A%C3%A9"
        );
    }

    #[test]
    fn only_grpc_is_grpc() {
        let is = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            super::is(&headers)
        };
        assert!(is("application/grpc") && is("application/grpc+proto") && is("application/grpc;a"));
        assert!(!is("application/grpc-web") && !is("application/json") && !is("application/grpcx"));
    }
}
