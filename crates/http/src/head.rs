//! What a request says before its body.

use http::{Extensions, HeaderMap, Method, Request, Uri, request};

/// The parts of a request that is not taken apart, which would move it twice.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) extensions: &'a Extensions,
}

impl<'a, B> From<&'a Request<B>> for Head<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'a> From<&'a request::Parts> for Head<'a> {
    fn from(request: &'a request::Parts) -> Self {
        Self {
            method: &request.method,
            uri: &request.uri,
            headers: &request.headers,
            extensions: &request.extensions,
        }
    }
}
