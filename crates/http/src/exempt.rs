//! Which requests a layer leaves alone.

use std::sync::Arc;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::{HeaderMap, Method, request};

use crate::head::Head;

type ExemptIf = Arc<dyn Fn(&request::Parts) -> bool + Send + Sync>;

/// CORS preflights, the paths of probes, and what was said.
#[derive(Clone)]
pub(crate) struct Exempt {
    pub(crate) paths: Vec<Box<str>>,
    pub(crate) methods: Vec<Method>,
    pub(crate) tests: Vec<ExemptIf>,
}

impl Default for Exempt {
    fn default() -> Self {
        Self {
            paths: ["/health", "/ready", "/metrics"].map(Into::into).into(),
            methods: Vec::new(),
            tests: Vec::new(),
        }
    }
}

impl Exempt {
    pub(crate) fn is(&self, request: &request::Parts) -> bool {
        self.is_by_head(request.into()) || self.is_by_test(request)
    }

    /// Without those that the service tells by itself.
    pub(crate) fn is_by_head(&self, head: Head<'_>) -> bool {
        let path = head.uri.path();
        (*head.method == Method::OPTIONS && is_preflight(head.headers))
            || self.paths.iter().any(|it| **it == *path)
            || self.methods.contains(head.method)
    }

    /// Only those.
    pub(crate) fn is_by_test(&self, request: &request::Parts) -> bool {
        self.tests.iter().any(|test| test(request))
    }
}

fn is_preflight(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}
