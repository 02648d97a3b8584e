//! Reading each kind of setting from its text. A failure says what to write instead.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Uri};
use tokio_rustls::rustls::pki_types::ServerName;
use tollgate::{FailurePolicy, MAX_QUOTAS, Quota};
use tollgate_http::{
    AddressPrefixes, BodyStyle, ForwardedBy, HeaderStyle, JwtAlgorithm, TrustedProxies,
};

use super::TraceParent;
use crate::cli::LogFormat;
use crate::duration;
use crate::identity::{IdentityType, UnknownIdentityType};
use crate::log::Level;

/// Where admitted requests go: a scheme, an authority, and a path that goes before theirs.
///
/// ```
/// use tollgate_server::config::Upstream;
///
/// let upstream: Upstream = "http://10.0.0.7:3000/v1/".parse().unwrap();
/// assert_eq!(upstream.to_string(), "http://10.0.0.7:3000/v1");
/// let error = "ftp://example.com".parse::<Upstream>().unwrap_err();
/// assert!(error.contains("http://"), "{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    encrypted: bool,
    authority: Authority,
    base: String,
}

impl Upstream {
    /// Host and port.
    #[must_use]
    pub const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What goes into `Host`.
    pub(crate) fn host(&self) -> HeaderValue {
        HeaderValue::from_str(self.authority.as_str()).expect("an authority is plain ASCII")
    }

    /// Whether it is reached by TLS.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// What its certificate must be for, if it needs one.
    pub(crate) fn server_name(&self) -> Option<ServerName<'static>> {
        let host = self.authority.host();
        let host = host.strip_prefix('[').unwrap_or(host);
        let host = host.strip_suffix(']').unwrap_or(host);
        let name = ServerName::try_from(host.to_owned()).ok();
        name.filter(|_| self.encrypted)
    }

    /// Where to connect to, with the port of its scheme.
    pub(crate) fn address(&self) -> Uri {
        let port = if self.encrypted { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(port);
        let authority = format!("{}:{port}", self.authority.host());
        Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(authority)
            .path_and_query("/")
            .build()
            .expect("these are all parts of a URL")
    }

    /// Writes what a request for this is asked for at the upstream: its path, and nothing else of a
    /// URL. Whether that is not too long.
    pub(crate) fn write_target(&self, uri: &Uri, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let path = uri.path();
        if path != "*" {
            out.extend_from_slice(self.base.as_bytes());
        }
        out.extend_from_slice(path.as_bytes());
        if let Some(query) = uri.query() {
            out.push(b'?');
            out.extend_from_slice(query.as_bytes());
        }
        out.len() - start < usize::from(u16::MAX)
    }
}

impl FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FIX: &str = "write http://host[:port][/path] or https://..";
        let uri: Uri = text.parse().map_err(|_| format!("it is no URL; {FIX}"))?;
        let encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(format!("it does not begin with http:// or https://; {FIX}")),
        };
        let authority = uri
            .authority()
            .ok_or_else(|| format!("it has no host; {FIX}"))?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(format!("it has a user or no host; {FIX}"));
        }
        let port = authority.as_str().strip_prefix(authority.host());
        if port != Some("") && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(format!("its port is no number from 1 to 65535; {FIX}"));
        }
        if uri.query().is_some() || text.contains('#') {
            return Err(format!("it has a query or a fragment; {FIX}"));
        }
        if encrypted && ServerName::try_from(authority.host().trim_matches(['[', ']'])).is_err() {
            return Err(format!(
                "its host is no name that a certificate can be for; {FIX}"
            ));
        }
        Ok(Self {
            encrypted,
            authority: authority.clone(),
            base: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.base)
    }
}

pub(crate) fn upstream(text: &str) -> Result<Upstream, String> {
    text.parse()
}

pub(crate) fn text(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty; leave it out for the default".into()),
        text => Ok(text.into()),
    }
}

/// At least as long as cannot be tried out.
pub(crate) fn secret(text: &str) -> Result<String, String> {
    match text.len() {
        16.. => Ok(text.into()),
        _ => Err("it is short; use 16 bytes or more, such as openssl rand -hex 32 prints".into()),
    }
}

/// What can be in a header.
pub(crate) fn token(text: &str) -> Result<String, String> {
    match text.bytes().all(|b| b.is_ascii_graphic()) && !text.is_empty() {
        true => Ok(text.into()),
        false => Err("write letters, digits and signs of ASCII without spaces".into()),
    }
}

pub(crate) fn level(text: &str) -> Result<Level, String> {
    text.parse()
}

pub(crate) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("write text or json".into()),
    }
}

pub(crate) fn header_name(text: &str) -> Result<HeaderName, String> {
    text.parse()
        .map_err(|_| "write the name of a header, such as X-API-Key".into())
}

/// A header that means nothing to whoever passes a message on.
pub(crate) fn own_header(text: &str) -> Result<HeaderName, String> {
    const OTHERS: [&str; 12] = [
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "forwarded",
        "host",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
        "via",
        "x-request-id",
    ];
    let name = header_name(text)?;
    let taken = OTHERS.contains(&name.as_str()) || name.as_str().starts_with("x-forwarded-");
    match taken {
        true => Err("it has a meaning of its own; write one such as X-User-Id".into()),
        false => Ok(name),
    }
}

pub(crate) fn identity_order(text: &str) -> Result<Vec<IdentityType>, String> {
    let mut order = Vec::new();
    for name in text.split(',').map(str::trim) {
        let kind: IdentityType = name
            .parse()
            .map_err(|error: UnknownIdentityType| error.to_string())?;
        if order.contains(&kind) {
            return Err(format!("{name} is there twice; leave one out"));
        }
        order.push(kind);
    }
    Ok(order)
}

/// What becomes of a credential that is not valid.
pub(crate) fn skip_invalid(text: &str) -> Result<bool, String> {
    match text {
        "refuse" => Ok(false),
        "skip" => Ok(true),
        _ => Err("write refuse or skip".into()),
    }
}

pub(crate) fn jwt_algorithms(text: &str) -> Result<Vec<JwtAlgorithm>, String> {
    let names = text.split(',').map(str::trim);
    let read = |name: &str| {
        let found = JwtAlgorithm::ALL.iter().find(|it| it.as_str() == name);
        found
            .copied()
            .ok_or_else(|| format!("{name:?} is no algorithm; write such as RS256 or ES256"))
    };
    names.map(read).collect()
}

/// A path, or one that ends with `/*`.
pub(crate) fn path_pattern(text: &str) -> Result<String, String> {
    let fixed = text.strip_suffix("/*").unwrap_or(text);
    match text.starts_with('/') && !fixed.contains('*') && !text.contains(['?', '#']) {
        true => Ok(text.into()),
        false => Err("write a path such as /orders, or /orders/* for all below it".into()),
    }
}

pub(crate) fn host(text: &str) -> Result<String, String> {
    let authority: Option<Authority> = text.parse().ok();
    match authority {
        Some(it) if it.host() == text => Ok(text.to_ascii_lowercase()),
        _ => Err("write a host without a port, such as api.example.com".into()),
    }
}

pub(crate) fn listen(text: &str) -> Result<String, String> {
    let port = text
        .rsplit_once(':')
        .map(|(host, port)| (host.is_empty(), port.parse::<u16>()));
    match port {
        Some((false, Ok(_))) => Ok(text.into()),
        _ => Err("write an address and a port, such as 127.0.0.1:8000 or [::]:8000".into()),
    }
}

pub(crate) fn quotas(text: &str) -> Result<Vec<Quota>, String> {
    let quotas = Quota::parse_list(text).map_err(|error| error.to_string())?;
    match quotas.len() {
        0..=MAX_QUOTAS => Ok(quotas),
        count => Err(format!(
            "{count} quotas are too many; use {MAX_QUOTAS} or fewer"
        )),
    }
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    duration::parse_positive(text).map_err(Into::into)
}

/// How long a slot may be held without a sign of its holder.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
    let ttl = duration(text)?;
    let most = Some(ttl).filter(|ttl| *ttl <= YEAR);
    most.ok_or_else(|| "write 365 days (8760h) or less".into())
}

pub(crate) fn delay(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(Into::into)
}

pub(crate) fn on_failure(text: &str) -> Result<FailurePolicy, String> {
    match text {
        "open" => Ok(FailurePolicy::Open),
        "closed" => Ok(FailurePolicy::Closed),
        "local" => Ok(FailurePolicy::Local),
        _ => Err("write open, closed or local".into()),
    }
}

pub(crate) fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("write true or false".into()),
    }
}

/// A number that is not zero.
pub(crate) fn count<N: FromStr>(text: &str) -> Result<N, String> {
    let number = text.parse::<N>().ok();
    // Digits only: parse takes a sign, too.
    let positive = text.bytes().all(|b| b.is_ascii_digit()) && text.bytes().any(|b| b != b'0');
    number
        .filter(|_| positive)
        .ok_or_else(|| "write a whole number of 1 or more".into())
}

/// A small number of times, which may be none.
pub(crate) fn few(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number <= 10);
    number.ok_or_else(|| "write a whole number from 0 to 10".into())
}

/// A part of a whole.
pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "write a number from 0 to 1, such as 0.1".into())
}

pub(crate) fn trace_parent(text: &str) -> Result<TraceParent, String> {
    match text {
        "trusted" => Ok(TraceParent::Trusted),
        "all" => Ok(TraceParent::All),
        "none" => Ok(TraceParent::None),
        _ => Err("write trusted, all or none".into()),
    }
}

/// Networks and addresses of proxies, or how many of them there are.
pub(crate) fn proxies(text: &str) -> Result<TrustedProxies, String> {
    match text.parse() {
        Ok(hops @ 1..=16) => Ok(TrustedProxies::hops(hops)),
        Ok(_) => Err("write 1 to 16 proxies, or their networks such as 10.0.0.0/8".into()),
        Err(_) => TrustedProxies::networks(text.split(',').map(str::trim))
            .map_err(|error| error.to_string()),
    }
}

pub(crate) fn forwarded_by(text: &str) -> Result<ForwardedBy, String> {
    ForwardedBy::header(text).map_err(|error| error.to_string())
}

/// Origins of pages. `None` is all.
pub(crate) fn origins(text: &str) -> Result<Option<HashSet<HeaderValue>>, String> {
    if text == "*" {
        return Ok(None);
    }
    let origins = text.split(',').map(str::trim).map(|origin| {
        let uri: Option<Uri> = origin.parse().ok();
        let plain = uri.is_some_and(|uri| {
            uri.scheme().is_some() && uri.path() == "/" && uri.query().is_none()
        });
        let value = HeaderValue::from_str(origin).ok();
        value
            .filter(|_| plain && !origin.ends_with('/'))
            .ok_or_else(|| {
                format!("{origin:?} is no origin; write such as https://shop.example, or * alone")
            })
    });
    origins.collect::<Result<_, _>>().map(Some)
}

/// Words of a header, joined by commas.
pub(crate) fn words(text: &str) -> Result<HeaderValue, String> {
    let names = text.split(',').map(str::trim);
    let names: Result<Vec<&str>, String> = names
        .map(|name| match name.parse::<HeaderName>() {
            Ok(_) => Ok(name),
            Err(_) => Err(format!(
                "{name:?} cannot be in it; write names joined by commas"
            )),
        })
        .collect();
    HeaderValue::from_str(&names?.join(", ")).map_err(|error| error.to_string())
}

pub(crate) fn headers(text: &str) -> Result<HeaderStyle, String> {
    text.parse()
        .map_err(|error: tollgate_http::HeaderStyleError| error.to_string())
}

pub(crate) fn body(text: &str) -> Result<BodyStyle, String> {
    match text {
        "problem" => Ok(BodyStyle::Problem),
        "plain" => Ok(BodyStyle::Plain),
        _ => Err("write problem or plain".into()),
    }
}

pub(crate) fn ipv4_prefix(text: &str) -> Result<u8, String> {
    let bits = text.parse().ok();
    bits.filter(|bits| AddressPrefixes::new(*bits, 64).is_ok())
        .ok_or_else(|| "write a number of bits from 1 to 32".into())
}

pub(crate) fn ipv6_prefix(text: &str) -> Result<u8, String> {
    let bits = text.parse().ok();
    bits.filter(|bits| AddressPrefixes::new(32, *bits).is_ok())
        .ok_or_else(|| "write a number of bits from 1 to 128".into())
}

/// Bytes, or a number of KiB, MiB or GiB.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit: Option<u64> = match unit {
        "" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    number
        .parse::<u64>()
        .ok()
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .ok_or_else(|| "write a number of bytes, or of KiB, MiB or GiB, such as 10MiB".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_keep_their_path() {
        let target = |upstream: &str, path: &str| {
            let upstream: Upstream = upstream.parse().unwrap();
            let uri = path.parse().unwrap();
            let mut target = Vec::new();
            assert!(upstream.write_target(&uri, &mut target));
            String::from_utf8(target).unwrap()
        };
        assert_eq!(target("http://h", "/a?b=c"), "/a?b=c");
        assert_eq!(target("http://h", "http://other/a?b"), "/a?b");
        assert_eq!(target("http://h:1/x/", "/a?b"), "/x/a?b");
        assert_eq!(target("http://h:1/x/", "*"), "*");
        assert_eq!(target("http://h/x", "http://other?b"), "/x/?b");
        let long: Uri = format!("/{}", "a".repeat(65_533)).parse().unwrap();
        let write = |upstream: &str| {
            let upstream: Upstream = upstream.parse().unwrap();
            upstream.write_target(&long, &mut Vec::new())
        };
        assert!(write("http://h") && !write("http://h/x"));
        for wrong in [
            "",
            "h:1",
            "https://",
            "https://a_b:443x",
            "http://",
            "http://u:p@h",
            "http://h?x=1",
            "http://h/#x",
            "http://h:",
            "http://h:0",
            "http://h:99999",
            "http://[::1]:x",
            "unix:/x",
        ] {
            assert!(wrong.parse::<Upstream>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_addresses() {
        assert_eq!(size("10MiB"), Ok(10 << 20));
        assert_eq!(size("512"), Ok(512));
        assert!(
            size("10MB").is_err() && size("MiB").is_err() && size("99999999999999GiB").is_err()
        );
        assert!(listen("[::1]:0").is_ok() && listen("localhost:80").is_ok());
        assert!(
            listen(":80").is_err() && listen("127.0.0.1").is_err() && listen("h:99999").is_err()
        );
    }
}
