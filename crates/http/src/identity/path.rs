//! A parameter of the path as a source.

use http::request::Parts;

use super::{Identified, Identity, IdentitySource};

/// A parameter of the path, such as `id` of `/tenants/{id}/items`.
///
/// ```
/// use http::Request;
/// use tollgate_http::{Identified, IdentitySource, PathParam};
///
/// let source = PathParam::in_template("id", "/tenants/{id}/items");
/// let ask = |path: &str| {
///     let (parts, ()) = Request::builder().uri(path).body(()).unwrap().into_parts();
///     source.identify_now(&parts)
/// };
/// assert!(matches!(ask("/tenants/acme/items"), Some(Identified::As(it)) if it.source() == "path:id"));
/// assert!(matches!(ask("/health"), Some(Identified::Unknown)));
/// ```
#[derive(Clone, Debug)]
pub struct PathParam {
    name: String,
    source: String,
    template: Option<String>,
}

impl PathParam {
    /// The parameter as axum matched it. The layer must be on the route or inside of the router
    /// (`.layer(..)`, `.route_layer(..)`), since nothing is matched before.
    #[cfg(feature = "axum")]
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self::of(name.into(), None)
    }

    /// The parameter of paths that look like this: segments in braces match one segment, `{*rest}`
    /// what remains. The value is percent-decoded.
    #[must_use]
    pub fn in_template(name: impl Into<String>, template: impl Into<String>) -> Self {
        Self::of(name.into(), Some(template.into()))
    }

    fn of(name: String, template: Option<String>) -> Self {
        let source = format!("path:{name}");
        Self {
            name,
            source,
            template,
        }
    }

    fn value(&self, request: &Parts) -> Option<Vec<u8>> {
        match &self.template {
            Some(template) => find(template, request.uri.path(), &self.name),
            #[cfg(feature = "axum")]
            None => matched(request, &self.name),
            #[cfg(not(feature = "axum"))]
            None => None,
        }
    }
}

impl IdentitySource for PathParam {
    fn identify_now(&self, request: &Parts) -> Option<Identified> {
        Some(match self.value(request) {
            Some(value) if !value.is_empty() => {
                Identified::As(Identity::new(self.source.clone(), value))
            }
            _ => Identified::Unknown,
        })
    }
}

/// What the router found. Its extractor wants the parts for itself, so it gets a copy of what it
/// looks at; it never waits.
#[cfg(feature = "axum")]
fn matched(request: &Parts, name: &str) -> Option<Vec<u8>> {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use axum::extract::{FromRequestParts as _, RawPathParams};

    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.extensions = request.extensions.clone();
    let mut found = pin!(RawPathParams::from_request_parts(&mut parts, &()));
    match found.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(all)) => all
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.as_bytes().to_vec()),
        _ => None,
    }
}

fn find(template: &str, path: &str, name: &str) -> Option<Vec<u8>> {
    let mut rest = Some(path.strip_prefix('/')?);
    let mut found = None;
    for part in template.strip_prefix('/')?.split('/') {
        let here = rest?;
        if let Some(all) = part.strip_prefix("{*").and_then(|it| it.strip_suffix('}')) {
            let value = (all == name).then(|| decoded(here));
            return value.or(found);
        }
        let (segment, after) = match here.split_once('/') {
            Some((segment, after)) => (segment, Some(after)),
            None => (here, None),
        };
        match part.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
            Some(_) if segment.is_empty() => return None,
            Some(parameter) if parameter == name => found = Some(decoded(segment)),
            Some(_) => {}
            None if part == segment => {}
            None => return None,
        }
        rest = after;
    }
    if rest.is_some() { None } else { found }
}

/// `%41` is `A`; what is no such escape stays as it is.
fn decoded(text: &str) -> Vec<u8> {
    let hex = |byte: Option<&u8>| byte.and_then(|byte| (*byte as char).to_digit(16));
    let bytes = text.as_bytes();
    let (mut at, mut all) = (0, Vec::with_capacity(bytes.len()));
    while let Some(byte) = bytes.get(at) {
        match (byte, hex(bytes.get(at + 1)), hex(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                all.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                all.push(*byte);
                at += 1;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_match_whole_paths() {
        let id = |template: &str, path: &str| {
            find(template, path, "id").map(|it| String::from_utf8(it).unwrap())
        };
        for (template, path, value) in [
            ("/t/{id}", "/t/a", Some("a")),
            ("/t/{id}", "/t/a%2Fb", Some("a/b")),
            ("/t/{id}", "/t/%4", Some("%4")),
            ("/t/{id}", "/t/a/b", None),
            ("/t/{id}", "/t/", None),
            ("/t/{id}", "/t", None),
            ("/t/{id}/x", "/t/a/x", Some("a")),
            ("/t/{id}/x", "/t/a/y", None),
            ("/{other}/{id}", "/a/b", Some("b")),
            ("/{other}", "/a", None),
            ("/files/{*id}", "/files/a/b", Some("a/b")),
            ("t/{id}", "/t/a", None),
        ] {
            assert_eq!(id(template, path).as_deref(), value, "{template} {path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_path_is_read_without_a_panic(path in "/[ -~]{0,30}", template in "/[ab/{}*]{0,12}") {
            let _ = find(&template, &path, "a");
        }
    }
}
