//! The answer to a refusal that a handler met itself.

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use tollgate_core::{Decision, Policy};

use crate::layer::Written;
use crate::{BodyStyle, HeaderStyle, Limit, Problem, ProblemType, RateLimitHeaders};

/// A decision that refuses, as the response of a handler: 429 (503 where the store does not answer)
/// with a problem document, rate limit fields, `Retry-After` and `no-store`.
///
/// A layer around the handler adds its own fields to these.
///
/// ```
/// use tollgate_http::{Limit, Refusal};
/// use tollgate_core::{Key, Decision};
///
/// async fn guess<L: Limit>(accounts: &L, account: &str) -> Result<Decision, Refusal> {
///     match accounts.charge(&Key::from(account), 1).await {
///         Ok(decision) if !decision.allowed() => Err(Refusal::new(accounts, decision)),
///         Ok(decision) => Ok(decision),
///         Err(_) => Err(Refusal::unavailable(accounts)),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Refusal {
    policy: Policy,
    decision: Decision,
    style: HeaderStyle,
}

impl Refusal {
    /// Of this limit.
    #[must_use]
    pub fn new(limit: &impl Limit, decision: Decision) -> Self {
        Self {
            policy: limit.policy().clone(),
            decision,
            style: HeaderStyle::default(),
        }
    }

    /// This limit did not answer, and nobody decided in its place: 503.
    #[must_use]
    pub fn unavailable(limit: &impl Limit) -> Self {
        Self::new(limit, crate::layer::closed())
    }

    /// With these fields.
    #[must_use]
    pub fn headers(mut self, style: HeaderStyle) -> Self {
        self.style = style;
        self
    }

    /// The response.
    #[must_use]
    pub fn response(&self) -> Response<Bytes> {
        let problem = Problem::refusal(&self.policy, &self.decision, ProblemType::Blank);
        let style = BodyStyle::Problem;
        let mut response = Response::new(Bytes::from(problem.to_json(style)));
        *response.status_mut() = problem.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, style.content_type());
        RateLimitHeaders::new(&self.policy, self.style).write(
            &self.decision,
            self.decision.charged_at(),
            headers,
        );
        response.extensions_mut().insert(Written::refused());
        response
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        self.response().map(axum::body::Body::from)
    }
}
