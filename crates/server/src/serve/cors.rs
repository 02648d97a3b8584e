//! Cross-origin requests of browsers (the Fetch standard's CORS protocol): preflights are answered
//! here and not limited, and every answer, a refusal too, can be read by the pages that may ask.

use std::collections::HashSet;
use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN,
    VARY,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};

use super::body::Body;

/// What a page may read of an answer, besides what every page may.
const EXPOSED: &str = "ratelimit, ratelimit-policy, ratelimit-limit, ratelimit-remaining, \
    ratelimit-reset, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, retry-after, \
    x-request-id";

/// Which pages may ask, and what.
#[derive(Clone, Debug)]
pub(crate) struct Cors {
    /// `None`: all, and then without credentials.
    origins: Option<HashSet<HeaderValue>>,
    methods: HeaderValue,
    /// `None`: whatever is asked for.
    headers: Option<HeaderValue>,
    credentials: bool,
    max_age: Duration,
}

impl Cors {
    pub(crate) const fn new(
        origins: Option<HashSet<HeaderValue>>,
        methods: HeaderValue,
        headers: Option<HeaderValue>,
        credentials: bool,
        max_age: Duration,
    ) -> Self {
        Self {
            origins,
            methods,
            headers,
            credentials,
            max_age,
        }
    }

    /// Whether a browser asks if it may ask.
    pub(super) fn is_preflight(parts: &Parts) -> bool {
        parts.method == Method::OPTIONS
            && parts.headers.contains_key(ORIGIN)
            && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// The answer to that. An origin that may not ask gets one without permission.
    pub(super) fn preflight(&self, request: &HeaderMap) -> Response<Body> {
        let mut response = Response::new(Body::whole(&b""[..]));
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        for name in [
            ORIGIN,
            ACCESS_CONTROL_REQUEST_METHOD,
            ACCESS_CONTROL_REQUEST_HEADERS,
        ] {
            headers.append(VARY, HeaderValue::from(name));
        }
        let Some(origin) = self.allowed(request.get(ORIGIN)) else {
            return response;
        };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone());
        let allowed = self.headers.as_ref();
        if let Some(allowed) = allowed.or_else(|| request.get(ACCESS_CONTROL_REQUEST_HEADERS)) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed.clone());
        }
        let seconds = HeaderValue::from(self.max_age.as_secs());
        headers.insert(ACCESS_CONTROL_MAX_AGE, seconds);
        self.write_credentials(headers);
        response
    }

    /// Writes who may read the answer to a request of this origin, in place of what an upstream
    /// says of it.
    pub(super) fn write(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if self.origins.is_some() {
            // Caches must know, for requests without an origin, too.
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
        match self.allowed(origin) {
            Some(origin) => {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                let exposed = HeaderValue::from_static(EXPOSED);
                headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
                self.write_credentials(headers);
            }
            None => {
                headers.remove(ACCESS_CONTROL_ALLOW_ORIGIN);
                headers.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
            }
        }
    }

    fn write_credentials(&self, headers: &mut HeaderMap) {
        if self.credentials {
            let yes = HeaderValue::from_static("true");
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
        } else {
            headers.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
        }
    }

    /// How an origin is told that it may.
    fn allowed(&self, origin: Option<&HeaderValue>) -> Option<HeaderValue> {
        let origin = origin?;
        match &self.origins {
            None => Some(HeaderValue::from_static("*")),
            Some(origins) => origins.contains(origin).then(|| origin.clone()),
        }
    }
}
