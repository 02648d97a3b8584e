//! No traces: the program was built without them, and [`Settings`](crate::config::Settings) lets
//! nobody ask for them.

use std::path::Path;

use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use tollgate_http::RequestId;

use crate::{Outcome, config, metrics};

/// Nobody makes spans.
#[derive(Clone, Debug)]
pub(crate) struct Traces;

impl Traces {
    pub(crate) const fn start(_: Option<&config::Traces>, _: Option<&Path>) -> Outcome<Self> {
        Ok(Self)
    }

    pub(crate) const fn are_sent(&self) -> bool {
        false
    }

    pub(crate) fn begin(
        &self,
        _: &mut Parts,
        _: &RequestId,
        _: &'static str,
        _: impl FnOnce() -> bool,
    ) {
    }

    pub(crate) const fn end(&self, _: &Parts, _: StatusCode, _: metrics::Outcome) {}

    pub(crate) fn finish(self) {}
}

pub(crate) const fn decided(_: &Parts, _: &str, _: &'static str) {}

pub(crate) fn pass_on(_: &Parts, _: impl FnMut(&HeaderName, &HeaderValue)) -> bool {
    false
}

pub(crate) const fn is_context(_: &HeaderName) -> bool {
    false
}
