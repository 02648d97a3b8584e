//! The rate limit fields on responses, also where one layer is around another.

use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response};
use tollgate_core::Decision;

use super::prepared::Prepared;
use crate::RateLimitHeaders;

const UNENFORCED: HeaderName = HeaderName::from_static("ratelimit-unenforced");

/// A layer below, or a handler that refused by itself, has written fields already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    refused: bool,
    remaining: Option<u64>,
}

impl Written {
    pub(crate) const fn refused() -> Self {
        Self {
            refused: true,
            remaining: None,
        }
    }
}

impl Prepared {
    /// Writes the fields of a decision. `refused`: the response says so; a decision that refuses may
    /// have been overruled.
    pub(super) fn write<B>(
        &self,
        fields: &RateLimitHeaders,
        decision: &Decision,
        refused: bool,
        nested: bool,
        response: &mut Response<B>,
    ) {
        // The time is that of whoever counted, so that it is asked once.
        let now = decision.charged_at();
        let written = response.extensions().get::<Written>().copied();
        let headers = response.headers_mut();
        match written {
            None => fields.write_fields(decision, now, headers),
            Some(written) => {
                // The refusal speaks, else the one with the fewest remaining.
                let speaks = refused
                    || (!written.refused
                        && decision.remaining().is_some_and(|remaining| {
                            written.remaining.is_none_or(|inner| remaining < inner)
                        }));
                fields.add_fields(decision, now, speaks, headers);
            }
        }
        if self.settings.tell_unenforced && !decision.origin().is_enforced() {
            let origin = HeaderValue::from_static(decision.origin().as_str());
            headers.insert(UNENFORCED, origin);
        }
        if refused {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.remove(RETRY_AFTER);
            if let Some(seconds) = crate::retry_after_seconds(decision) {
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
        }
        if nested {
            response.extensions_mut().insert(Written {
                refused,
                remaining: decision.remaining(),
            });
        }
    }
}
