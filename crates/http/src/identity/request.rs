//! Sources that only look at the request: extensions, headers, cookies.

use http::header::{AsHeaderName, COOKIE, HeaderMap, HeaderName};
use http::request::Parts;

use super::{Identified, Identity, IdentitySource};

/// The verified subject of the request, as an extension: what a service's own authentication
/// inserts. As a source, it is the identity.
///
/// ```
/// use tollgate_http::{Identified, IdentitySource, Subject};
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Subject::new("alice"));
/// let (parts, ()) = request.into_parts();
/// assert!(matches!(Subject::source().identify_now(&parts), Some(Identified::As(_))));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Subject(pub String);

/// The tenant of the request, as an extension: what a service's own middleware resolved. As a
/// source, everybody of the tenant shares one identity.
///
/// ```
/// use tollgate_http::{Identified, IdentitySource, Tenant};
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Tenant::new("acme"));
/// let (parts, ()) = request.into_parts();
/// assert!(matches!(Tenant::source().identify_now(&parts), Some(Identified::As(_))));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Tenant(pub String);

macro_rules! extension {
    ($name:ident, $source:ident, $label:literal) => {
        impl $name {
            /// With this value. The empty one is as good as none.
            pub fn new(value: impl Into<String>) -> Self {
                Self(value.into())
            }

            /// The source that reads this extension.
            #[must_use]
            pub const fn source() -> $source {
                $source(())
            }
        }

        /// Identities are not printed.
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }

        #[doc = concat!("Reads [`", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug)]
        pub struct $source(());

        impl IdentitySource for $source {
            fn identify_now(&self, request: &Parts) -> Option<Identified> {
                let value = request.extensions.get::<$name>();
                Some(known($label, value.map(|it| it.0.as_bytes())))
            }
        }
    };
}

extension!(Subject, SubjectSource, "subject");
extension!(Tenant, TenantSource, "tenant");

/// A value that is there and not empty identifies.
fn known(source: impl Into<std::borrow::Cow<'static, str>>, value: Option<&[u8]>) -> Identified {
    match value {
        Some(value) if !value.is_empty() => Identified::As(Identity::new(source, value)),
        _ => Identified::Unknown,
    }
}

/// The bytes of a header, as they came. Missing and empty are the same; several fields of the
/// name are invalid, since which one the service itself would read is anybody's guess.
///
/// Anybody can write a header: use it where something in front of the service sets it.
///
/// ```
/// use http::Request;
/// use tollgate_http::{Header, Identified, IdentitySource};
///
/// let (parts, ()) = Request::builder().header("x-user", "alice").body(()).unwrap().into_parts();
/// let source = Header::new("X-User").unwrap();
/// assert!(matches!(source.identify_now(&parts), Some(Identified::As(it)) if it.source() == "header:x-user"));
/// ```
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
    source: String,
}

impl Header {
    /// The header of this name, in any case. `None`: it is no name of a header.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let source = format!("header:{name}");
        Some(Self { name, source })
    }

    /// A header that carries API keys which something upstream has verified: the source
    /// `api_key`. For keys that nobody has verified see [`ApiKeys`](crate::ApiKeys).
    #[must_use]
    pub fn api_key(name: &str) -> Option<Self> {
        Some(Self {
            source: super::API_KEY.into(),
            ..Self::new(name)?
        })
    }
}

impl IdentitySource for Header {
    fn identify_now(&self, request: &Parts) -> Option<Identified> {
        Some(match only(&request.headers, &self.name) {
            Ok(value) => known(self.source.clone(), value),
            Err(Several) => Identified::Invalid("a header that identifies is there more than once"),
        })
    }
}

/// More than one field of a name.
pub(super) struct Several;

/// The value of a field that must be there once at most.
pub(super) fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Result<Option<&[u8]>, Several> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(http::HeaderValue::as_bytes);
    match values.next() {
        None => Ok(first),
        Some(_) => Err(Several),
    }
}

/// A cookie, by its name. The first of several counts, as in most servers.
///
/// ```
/// use http::Request;
/// use tollgate_http::{Cookie, Identified, IdentitySource};
///
/// let (parts, ()) =
///     Request::builder().header("cookie", "theme=dark; session=abc").body(()).unwrap().into_parts();
/// let answer = Cookie::new("session").identify_now(&parts);
/// assert!(matches!(answer, Some(Identified::As(it)) if it.source() == "cookie:session"));
/// ```
#[derive(Clone, Debug)]
pub struct Cookie {
    name: String,
    source: String,
}

impl Cookie {
    /// The cookie of this name; names are case-sensitive.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let source = format!("cookie:{name}");
        Self { name, source }
    }
}

impl IdentitySource for Cookie {
    fn identify_now(&self, request: &Parts) -> Option<Identified> {
        let value = cookie(&request.headers, &self.name);
        Some(known(self.source.clone(), value))
    }
}

/// The value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let lines = headers.get_all(COOKIE).iter();
    let mut pairs = lines.flat_map(|line| line.as_bytes().split(|b| *b == b';'));
    let value = pairs.find_map(|pair| {
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|b| *b == b'=')?;
        (&pair[..equals] == name.as_bytes()).then_some(&pair[equals + 1..])
    });
    value.map(bare)
}

/// A cookie's value may stand in quotes, which are no part of it.
fn bare(value: &[u8]) -> &[u8] {
    let inside = value
        .strip_prefix(b"\"")
        .and_then(|it| it.strip_suffix(b"\""));
    inside.unwrap_or(value)
}
