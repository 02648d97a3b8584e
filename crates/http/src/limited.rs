//! What was decided about a request, for handlers.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Decision, Policy};

use crate::layer::Charge;
use crate::retry_after_seconds;

/// The decision on a request: in its extensions, and an extractor of axum. Of several layers, the
/// innermost's. Cheap to clone.
///
/// ```
/// use tollgate_http::Limited;
///
/// async fn handler(limited: Limited) -> String {
///     format!("{} left", limited.decision().remaining().unwrap_or_default())
/// }
/// ```
#[derive(Clone)]
pub struct Limited(Arc<Charge>);

impl Limited {
    pub(crate) const fn new(charge: Arc<Charge>) -> Self {
        Self(charge)
    }

    /// The policy; of several, on a refusal the one that speaks, else the first.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        self.0.policy()
    }

    /// The decision; of several limits, all of them as one.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        self.0.decision()
    }

    /// The `Retry-After` of a refusal.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        retry_after_seconds(self.decision())
    }
}

impl fmt::Debug for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited")
            .field("policy", self.policy())
            .field("decision", self.decision())
            .finish()
    }
}

#[cfg(feature = "axum")]
mod extract {
    use axum::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::StatusCode;
    use http::request::Parts;

    use super::Limited;

    /// 500 for a route that has no layer. Extract an `Option` where that may be.
    impl<S: Sync> FromRequestParts<S> for Limited {
        type Rejection = (StatusCode, &'static str);

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
            parts.extensions.get::<Self>().cloned().ok_or((
                StatusCode::INTERNAL_SERVER_ERROR,
                "this route is not limited: put a RateLimitLayer around it",
            ))
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for Limited {
        type Rejection = std::convert::Infallible;

        async fn from_request_parts(
            parts: &mut Parts,
            _: &S,
        ) -> Result<Option<Self>, Self::Rejection> {
            Ok(parts.extensions.get::<Self>().cloned())
        }
    }
}
