//! Who a request counts for: ordered sources, of which the first that answers wins.

mod api_keys;
mod function;
mod ip;
#[cfg(feature = "jwt")]
mod jwt;
mod list;
mod path;
mod request;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;
use tollgate_core::Key;

pub use api_keys::{ApiKeyOwner, ApiKeys, ApiKeysError};
pub use function::{IdentifyBy, IdentifyByAsync, IntoIdentified, identify_by, identify_by_async};
pub use ip::Ip;
#[cfg(feature = "jwks")]
pub use jwt::HttpFetch;
#[cfg(feature = "jwt")]
pub use jwt::{
    FetchError, FetchJwks, Fetching, Jwks, Jwt, JwtAlgorithm, JwtClaims, JwtKey, JwtKeyError,
    JwtKeys, UnknownJwtAlgorithm,
};
pub use list::{Identities, OnInvalid, OnNobody};
pub use path::PathParam;
pub use request::{Cookie, Header, Subject, SubjectSource, Tenant, TenantSource};

/// The name of both sources of API keys.
const API_KEY: &str = "api_key";

/// Who a request counts for.
///
/// The source is part of the key: a user who calls himself `203.0.113.9` is not that address. What
/// identifies is never printed.
#[derive(Clone)]
pub struct Identity {
    source: Cow<'static, str>,
    key: Key<'static>,
    plan: Option<Arc<str>>,
}

impl Identity {
    /// `value` as the source `source` knows it.
    pub fn new(source: impl Into<Cow<'static, str>>, value: impl AsRef<[u8]>) -> Self {
        let source = source.into();
        let key = Self::key_of(&source, value.as_ref());
        Self {
            source,
            key,
            plan: None,
        }
    }

    /// The key of a `value` as the source `source` knows it.
    fn key_of(source: &str, value: &[u8]) -> Key<'static> {
        Key::from_parts([source.as_bytes(), value])
    }

    /// The same around a [`key_of`](Self::key_of) the source.
    const fn with_key(source: &'static str, key: Key<'static>) -> Self {
        Self {
            source: Cow::Borrowed(source),
            key,
            plan: None,
        }
    }

    /// With the plan that decides which quotas hold: a claim, or what is kept beside a key.
    #[must_use]
    pub fn with_plan(mut self, plan: impl Into<Arc<str>>) -> Self {
        self.plan = Some(plan.into());
        self
    }

    /// Which source answered: `ip`, `subject`, `header:x-user`.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What the limit counts for.
    #[must_use]
    pub const fn key(&self) -> &Key<'static> {
        &self.key
    }

    /// What the limit counts for, taken out.
    #[must_use]
    pub fn into_key(self) -> Key<'static> {
        self.key
    }

    /// The plan, if the source knows one.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }
}

/// With the digest of the key, never the value.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("source", &self.source)
            .field("key", &self.key)
            .field("plan", &self.plan)
            .finish()
    }
}

/// What a source says of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Identified {
    /// It is this one.
    As(Identity),
    /// The source has nothing to say: the next one is asked.
    Unknown,
    /// A credential is there and is not valid: 401, never the next source, unless the source was
    /// told to skip. The text is for the log, and holds nothing of the credential.
    Invalid(&'static str),
    /// What the source needs is missing from the service itself, such as the connection's address
    /// where it was not passed on: a clear 500, never a panic. The text says what to do.
    Misconfigured(&'static str),
}

/// An answer that may take its time.
pub type Identifying<'a> = Pin<Box<dyn Future<Output = Identified> + Send + 'a>>;

/// A way to tell who a request counts for.
pub trait IdentitySource: Any + fmt::Debug + Send + Sync {
    /// The answer, if it takes no waiting: most sources only look at the request. `None`: ask
    /// [`identify`](Self::identify).
    fn identify_now(&self, request: &Parts) -> Option<Identified>;

    /// The answer.
    ///
    /// # Cancellation
    /// A call that is dropped changes nothing.
    fn identify<'a>(&'a self, request: &'a Parts) -> Identifying<'a> {
        let now = self.identify_now(request).unwrap_or(Identified::Unknown);
        Box::pin(std::future::ready(now))
    }
}

impl<T: IdentitySource + ?Sized> IdentitySource for Arc<T> {
    fn identify_now(&self, request: &Parts) -> Option<Identified> {
        (**self).identify_now(request)
    }

    fn identify<'a>(&'a self, request: &'a Parts) -> Identifying<'a> {
        (**self).identify(request)
    }
}
