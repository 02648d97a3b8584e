//! Problem documents (RFC 9457): why a request was refused, or what failed.

mod limits;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use tollgate_core::{Decision, NoSlot, Policy, Timestamp};

use crate::BodyStyle;
use crate::json::Object;
use limits::Limits;

/// What the `type` of a library's refusal says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProblemType {
    /// `about:blank`: the status says it all.
    #[default]
    Blank,
    /// Those of the IETF draft, with `violated-policies`: `quota-exceeded`, and where the slots of all
    /// clients are taken `temporary-reduced-capacity`.
    QuotaExceeded,
}

impl ProblemType {
    const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    const REDUCED_CAPACITY: &str =
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
}

/// A problem document.
///
/// It never holds what only the operator should know: no address of a store, no key, no cause.
///
/// ```
/// use http::StatusCode;
/// use tollgate_http::{BodyStyle, Problem};
///
/// let problem = Problem::new(StatusCode::BAD_GATEWAY, "The upstream did not answer")
///     .with_instance("/orders")
///     .with_request_id("01JD");
/// assert_eq!(
///     String::from_utf8(problem.to_json(BodyStyle::Problem)).unwrap(),
///     r#"{"type":"about:blank","title":"Bad Gateway","status":502,"#.to_owned()
///         + r#""detail":"The upstream did not answer","instance":"/orders","request_id":"01JD"}"#,
/// );
/// assert_eq!(problem.to_json(BodyStyle::Plain), br#"{"detail":"The upstream did not answer"}"#);
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    #[serde(serialize_with = "number")]
    status: StatusCode,
    detail: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(flatten)]
    limits: Limits,
}

/// What a refusal of the gateway tells where no quota made it.
///
/// ```
/// use http::StatusCode;
/// use tollgate_http::{BodyStyle, GatewayNumbers, Problem};
///
/// let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "Blocked").with_gateway_numbers(
///     GatewayNumbers { limit: Some(0), remaining: Some(0), ..GatewayNumbers::default() },
/// );
/// assert_eq!(
///     problem.to_json(BodyStyle::Plain),
///     br#"{"detail":"Blocked","limit":0,"remaining":0,"retry_after":null}"#,
/// );
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GatewayNumbers {
    /// The limit, where there is one.
    pub limit: Option<u64>,
    /// What is left of it.
    pub remaining: Option<u64>,
    /// When nothing is used any more.
    pub reset_at: Option<Timestamp>,
    /// How long until the same would be admitted.
    pub retry_after: Option<Duration>,
}

impl Problem {
    /// A problem of a status. `detail` is for the client to read.
    #[must_use]
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status,
            detail: detail.into(),
            instance: None,
            request_id: None,
            limits: Limits::None {},
        }
    }

    /// A refusal as a library tells it: 429, or 503 where the policy refuses because the store did
    /// not answer. `retry_after` is the integer of the header, `retry_after_ms` the exact wait.
    #[must_use]
    pub fn refusal(policy: &Policy, decision: &Decision, kind: ProblemType) -> Self {
        let mut problem = if limits::is_closed(decision) {
            Self::closed()
        } else {
            Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                limits::detail(policy, decision),
            )
        };
        let violated = kind == ProblemType::QuotaExceeded && !limits::is_closed(decision);
        if violated {
            problem.kind = ProblemType::QUOTA_EXCEEDED;
            problem.title = "Quota exceeded";
        }
        problem.limits = Limits::of_library(policy, decision, violated);
        problem
    }

    /// That there is no slot of the limit `name`: 503, or 429 if it is one of each client; 503 too
    /// where the store does not answer.
    #[must_use]
    pub fn no_slot(name: &str, no_slot: &NoSlot, kind: ProblemType) -> Self {
        let NoSlot::Full {
            slots, per_client, ..
        } = no_slot
        else {
            let detail = "Slots cannot be taken at the moment";
            let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, detail);
            problem.limits = Limits::of_slots(None, no_slot, None);
            return problem;
        };
        let mut problem = if *per_client {
            let detail = format!("This client has all of its {slots} slot(s) in use.");
            Self::new(StatusCode::TOO_MANY_REQUESTS, detail)
        } else {
            let detail = format!("All {slots} slot(s) are in use.");
            Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        };
        let violated = kind == ProblemType::QuotaExceeded;
        if violated {
            (problem.kind, problem.title) = match per_client {
                true => (ProblemType::QUOTA_EXCEEDED, "Quota exceeded"),
                false => (
                    ProblemType::REDUCED_CAPACITY,
                    "Temporarily reduced capacity",
                ),
            };
        }
        problem.limits = Limits::of_slots(Some(*slots), no_slot, violated.then_some(name));
        problem
    }

    /// A refusal as the gateway tells it: `detail`, `limit`, `remaining`, `reset_at` (second of
    /// the epoch) and `retry_after` (seconds; `null` where waiting never helps), the last two with
    /// their fractions. [`BodyStyle::Plain`] is exactly these. A refusal that was not enforced (one
    /// that this process alone counted) has no `remaining` and no `reset_at`, as in the headers.
    #[must_use]
    pub fn gateway_refusal(policy: &Policy, decision: &Decision, now: Timestamp) -> Self {
        let mut problem = if limits::is_closed(decision) {
            Self::closed()
        } else {
            Self::new(StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded")
        };
        problem.limits = Limits::of_gateway(policy, decision, now);
        problem
    }

    /// With the members of [`gateway_refusal`](Self::gateway_refusal), for a refusal that no quota
    /// made: slots that are all taken, a client that is blocked.
    #[must_use]
    pub fn with_gateway_numbers(mut self, numbers: GatewayNumbers) -> Self {
        self.limits = Limits::of_numbers(numbers);
        self
    }

    /// Of several limits: names every quota that refuses, not only those of the one that speaks.
    pub(crate) fn violating<'a>(
        mut self,
        all: impl Iterator<Item = (&'a Policy, &'a Decision)>,
    ) -> Self {
        self.limits.name_violated(all);
        self
    }

    fn closed() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Rate limits cannot be checked at the moment",
        )
    }

    /// With the path of the request, as it came.
    #[must_use]
    pub fn with_instance(mut self, path: impl Into<String>) -> Self {
        self.instance = Some(path.into());
        self
    }

    /// With the id under which the request was logged.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// The status that the response must have, too.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// What the client reads.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The document.
    #[must_use]
    pub fn to_json(&self, style: BodyStyle) -> Vec<u8> {
        let (instance, request_id) = (self.instance.as_deref(), self.request_id.as_deref());
        self.finish_json(self.begin(style, instance, request_id))
    }

    /// The document of one request: [`to_json`](Self::to_json) with the path and the id that are
    /// given here, in place of any that were before.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate_http::{BodyStyle, Problem};
    ///
    /// let problem = Problem::new(StatusCode::BAD_GATEWAY, "The upstream did not answer");
    /// let style = BodyStyle::Problem;
    /// assert_eq!(
    ///     problem.to_json_of("/orders", "01JD", style),
    ///     problem.with_instance("/orders").with_request_id("01JD").to_json(style),
    /// );
    /// ```
    #[must_use]
    pub fn to_json_of(&self, instance: &str, request_id: &str, style: BodyStyle) -> Vec<u8> {
        self.finish_json(self.begin_json_of(instance, request_id, style))
    }

    /// The beginning of this document, up to when there will be more: all that is the same for
    /// refusals of one request with the same status and detail, limit and remainder.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate_http::{BodyStyle, Problem};
    ///
    /// let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded");
    /// let begun = problem.begin_json_of("/orders", "01JD", BodyStyle::Plain);
    /// assert_eq!(begun, br#"{"detail":"Rate limit exceeded","#);
    /// assert_eq!(problem.finish_json(begun), br#"{"detail":"Rate limit exceeded"}"#);
    /// ```
    #[must_use]
    pub fn begin_json_of(&self, instance: &str, request_id: &str, style: BodyStyle) -> Vec<u8> {
        self.begin(style, Some(instance), Some(request_id))
    }

    /// A whole document behind whatever stands before its [beginning](Self::begin_json_of).
    #[must_use]
    pub fn finish_json(&self, begun: Vec<u8>) -> Vec<u8> {
        let mut json = Object::after(begun);
        self.limits.write_waits(&mut json);
        json.finish()
    }

    /// What serialising gives, in one pass, up to the waits.
    fn begin(&self, style: BodyStyle, instance: Option<&str>, request_id: Option<&str>) -> Vec<u8> {
        let mut json = Object::new();
        let whole = style == BodyStyle::Problem;
        if whole {
            json.text("\"type\":", self.kind);
            json.text("\"title\":", self.title);
            json.integer("\"status\":", self.status.as_u16().into());
        }
        json.text("\"detail\":", &self.detail);
        if let Some(path) = instance.filter(|_| whole) {
            json.text("\"instance\":", path);
        }
        if let Some(id) = request_id.filter(|_| whole) {
            json.text("\"request_id\":", id);
        }
        self.limits.write_counts(&mut json);
        json.begun()
    }
}

fn number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}
