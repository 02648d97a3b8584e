//! A function of the request as a source.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;

use http::request::Parts;

use super::{Identified, Identifying, Identity, IdentitySource};

/// What a function may answer: a value, or nothing; or an [`Identified`] of its own.
pub trait IntoIdentified {
    /// As the answer of the source `source`.
    fn into_identified(self, source: &str) -> Identified;
}

/// Nothing and the empty value are the same.
impl<V: AsRef<[u8]>> IntoIdentified for Option<V> {
    fn into_identified(self, source: &str) -> Identified {
        match self {
            Some(value) if !value.as_ref().is_empty() => {
                Identified::As(Identity::new(source.to_owned(), value))
            }
            _ => Identified::Unknown,
        }
    }
}

impl IntoIdentified for Identified {
    fn into_identified(self, _: &str) -> Identified {
        self
    }
}

/// A source that is a function. `name` keeps its identities apart from those of others.
///
/// ```
/// use tollgate_http::{Identified, IdentitySource, identify_by};
///
/// let by_host = identify_by("host", |parts| parts.uri.host().map(str::to_owned));
/// let (parts, ()) = http::Request::builder().uri("http://a.example/").body(()).unwrap().into_parts();
/// assert!(matches!(by_host.identify_now(&parts), Some(Identified::As(_))));
/// ```
pub fn identify_by<F, A>(name: impl Into<Cow<'static, str>>, f: F) -> IdentifyBy<F>
where
    F: Fn(&Parts) -> A + Send + Sync + 'static,
    A: IntoIdentified,
{
    IdentifyBy {
        name: name.into(),
        f,
    }
}

/// A source that is an async function. It takes from the request what it needs, and then waits.
///
/// ```
/// use tollgate_http::{IdentitySource, identify_by_async};
///
/// let by_session = identify_by_async("session", |parts| {
///     let session = parts.headers.get("x-session").cloned();
///     async move {
///         // Here a store would be asked.
///         session.map(|session| session.as_bytes().to_vec())
///     }
/// });
/// let (parts, ()) = http::Request::new(()).into_parts();
/// assert!(by_session.identify_now(&parts).is_none());
/// ```
pub fn identify_by_async<F, A>(name: impl Into<Cow<'static, str>>, f: F) -> IdentifyByAsync<F>
where
    F: Fn(&Parts) -> A + Send + Sync + 'static,
    A: Future<Output: IntoIdentified> + Send + 'static,
{
    IdentifyByAsync {
        name: name.into(),
        f,
    }
}

/// Made by [`identify_by`].
#[derive(Clone)]
pub struct IdentifyBy<F> {
    name: Cow<'static, str>,
    f: F,
}

impl<F, A> IdentitySource for IdentifyBy<F>
where
    F: Fn(&Parts) -> A + Send + Sync + 'static,
    A: IntoIdentified,
{
    fn identify_now(&self, request: &Parts) -> Option<Identified> {
        Some((self.f)(request).into_identified(&self.name))
    }
}

/// Made by [`identify_by_async`].
#[derive(Clone)]
pub struct IdentifyByAsync<F> {
    name: Cow<'static, str>,
    f: F,
}

impl<F, A> IdentitySource for IdentifyByAsync<F>
where
    F: Fn(&Parts) -> A + Send + Sync + 'static,
    A: Future<Output: IntoIdentified> + Send + 'static,
{
    fn identify_now(&self, _: &Parts) -> Option<Identified> {
        None
    }

    fn identify<'a>(&'a self, request: &'a Parts) -> Identifying<'a> {
        let answer = (self.f)(request);
        Box::pin(async move { answer.await.into_identified(&self.name) })
    }
}

impl<F> fmt::Debug for IdentifyBy<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentifyBy({:?})", self.name)
    }
}

impl<F> fmt::Debug for IdentifyByAsync<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentifyByAsync({:?})", self.name)
    }
}
