//! The answer to a refusal that a handler met itself.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use tollgate_core::{Decision, NoSlot, Policy};

use crate::layer::Written;
use crate::seconds::no_slot_seconds;
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
///
/// Where a handler takes a slot itself, `?` answers for one that it did not get:
///
/// ```
/// use tollgate_http::{Refusal, Slots};
/// use tollgate_core::Key;
///
/// async fn page<S: Slots>(ocr: &S) -> Result<String, Refusal> {
///     let _slot = ocr.take(&Key::from("all")).await?;
///     Ok("the text of a page".into())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Refusal {
    of: Of,
    style: HeaderStyle,
}

#[derive(Clone, Debug)]
enum Of {
    Limit(Policy, Decision),
    Slots(Problem, u64),
}

impl Refusal {
    /// Of this limit.
    #[must_use]
    pub fn new(limit: &impl Limit, decision: Decision) -> Self {
        Self::of(Of::Limit(limit.policy().clone(), decision))
    }

    /// This limit did not answer, and nobody decided in its place: 503.
    #[must_use]
    pub fn unavailable(limit: &impl Limit) -> Self {
        Self::new(limit, crate::layer::closed())
    }

    /// Work was stopped because its slot was lost: 503, to be tried again.
    #[must_use]
    pub fn lost_slot() -> Self {
        let detail = "The work was stopped, because its slot was lost";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        Self::of(Of::Slots(problem, 1))
    }

    fn of(of: Of) -> Self {
        Self {
            of,
            style: HeaderStyle::default(),
        }
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
        let problem = match &self.of {
            Of::Limit(policy, decision) => &Problem::refusal(policy, decision, ProblemType::Blank),
            Of::Slots(problem, _) => problem,
        };
        let style = BodyStyle::Problem;
        let mut response = Response::new(Bytes::from(problem.to_json(style)));
        *response.status_mut() = problem.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, style.content_type());
        match &self.of {
            Of::Limit(policy, decision) => {
                let fields = RateLimitHeaders::new(policy, self.style);
                fields.write(decision, decision.charged_at(), headers);
                response.extensions_mut().insert(Written::refused());
            }
            Of::Slots(_, seconds) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(*seconds));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
        }
        response
    }
}

/// 503 with `Retry-After`; 429 if the slots are the client's own.
impl From<NoSlot> for Refusal {
    fn from(no_slot: NoSlot) -> Self {
        // Its name is in documents of another type only.
        let problem = Problem::no_slot("", &no_slot, ProblemType::Blank);
        Self::of(Of::Slots(problem, no_slot_seconds(&no_slot)))
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        self.response().map(axum::body::Body::from)
    }
}
