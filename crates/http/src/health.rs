//! Whether limits are enforced, for machines (`/ready`) and for people (JSON with the reason).

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use tollgate_core::Timestamp;

/// What a limiter says of itself. `tollgate::Health` becomes one, with its feature `http`.
///
/// As JSON it holds all of this, for people who look for the reason: no address of a store, no
/// identity and no secret. Do not show it to the public all the same.
///
/// ```
/// use tollgate_core::Timestamp;
/// use tollgate_http::HealthReport;
///
/// let mut report = HealthReport::enforcing(Timestamp::from_micros(1_700_000_000_250_000));
/// report.warnings.push("the store may evict counters".into());
/// assert_eq!(
///     report.to_json(),
///     br#"{"enforcing":true,"detail":"enforcing","since":1700000000.25,"reason":null,"#
///         .iter()
///         .chain(br#""on_failure":null,"unenforced":0,"breaker":null,"#)
///         .chain(br#""warnings":["the store may evict counters"]}"#)
///         .copied()
///         .collect::<Vec<_>>(),
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HealthReport {
    /// Whether the store decides.
    pub enforcing: bool,
    /// One sentence, as `/ready` shows it.
    pub detail: Cow<'static, str>,
    /// Since when that is so: seconds of the epoch.
    #[serde(serialize_with = "seconds")]
    pub since: Timestamp,
    /// The kind of the latest failure, while limits are not enforced.
    pub reason: Option<Cow<'static, str>>,
    /// What is answered meanwhile: `open`, `closed` or `local`.
    pub on_failure: Option<Cow<'static, str>>,
    /// How many decisions were not the store's, since the start.
    pub unenforced: u64,
    /// The state of the circuit breaker.
    pub breaker: Option<Cow<'static, str>>,
    /// What an operator should know although the store works.
    pub warnings: Vec<String>,
}

impl HealthReport {
    /// All is well, since then.
    #[must_use]
    pub const fn enforcing(since: Timestamp) -> Self {
        Self {
            enforcing: true,
            detail: Cow::Borrowed("enforcing"),
            since,
            reason: None,
            on_failure: None,
            unenforced: 0,
            breaker: None,
            warnings: Vec::new(),
        }
    }

    /// Limits are not enforced; `detail` says what happens instead.
    #[must_use]
    pub fn degraded(detail: impl Into<Cow<'static, str>>, since: Timestamp) -> Self {
        Self {
            enforcing: false,
            detail: detail.into(),
            ..Self::enforcing(since)
        }
    }

    /// As a JSON document.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers always serialise")
    }
}

fn seconds<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(at.as_micros() as f64 / 1e6)
}

/// An answer that may take its time.
pub type Reporting<'a> = Pin<Box<dyn Future<Output = HealthReport> + Send + 'a>>;

/// Something that knows whether limits are enforced. `tollgate::Probe` is one, which asks the
/// store: without traffic nobody else would notice a change.
pub trait ReportHealth: fmt::Debug + Send + Sync + 'static {
    /// What holds now.
    ///
    /// # Cancellation
    /// A call that is dropped changes nothing.
    fn report(&self) -> Reporting<'_>;
}

/// The document of `/ready`: 200 while requests should be sent here, 503 while the process is
/// stopping. That limits are not enforced does not stop a service, so it is told and stays 200.
///
/// ```
/// use tollgate_core::Timestamp;
/// use tollgate_http::{HealthReport, ready_document};
///
/// let (status, body) = ready_document(&HealthReport::enforcing(Timestamp::default()), None, false);
/// assert_eq!(status, 200);
/// assert_eq!(
///     body,
///     r#"{"status":"ok","checks":{"ratelimit":{"healthy":true,"critical":false,"#.to_owned()
///         + r#""detail":"enforcing","meta":{"enforcing":true}}}}"#,
/// );
/// ```
///
/// `rules` is what is wrong with a rule file, if anything is: a check of its own.
#[must_use]
pub fn ready_document(
    report: &HealthReport,
    rules: Option<&str>,
    draining: bool,
) -> (StatusCode, String) {
    let (code, status) = match (draining, report.enforcing && rules.is_none()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, true) => (StatusCode::OK, "ok"),
        (false, false) => (StatusCode::OK, "degraded"),
    };
    let document = Document {
        status,
        checks: Checks {
            ratelimit: Check {
                healthy: report.enforcing,
                critical: false,
                detail: &report.detail,
                meta: Some(Meta {
                    enforcing: report.enforcing,
                }),
            },
            rules: rules.map(|detail| Check {
                healthy: false,
                critical: false,
                detail,
                meta: None,
            }),
        },
    };
    let body = serde_json::to_string(&document).expect("texts and flags always serialise");
    (code, body)
}

#[derive(Serialize)]
struct Document<'a> {
    status: &'static str,
    checks: Checks<'a>,
}

#[derive(Serialize)]
struct Checks<'a> {
    ratelimit: Check<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Check<'a>>,
}

#[derive(Serialize)]
struct Check<'a> {
    healthy: bool,
    critical: bool,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
}

#[derive(Serialize)]
struct Meta {
    enforcing: bool,
}

/// The handler of `/ready`. Clones share their state.
///
/// With axum: `Router::new().route("/ready", ready.route())`, or merge [`Ready::router`]. Others
/// call [`response`](Self::response). Call [`drain`](Self::drain) on SIGTERM, before the listener
/// closes.
///
/// ```
/// use tollgate_http::{HealthReport, Ready, ReportHealth, Reporting};
/// # use tollgate_core::Timestamp;
///
/// #[derive(Debug)]
/// struct Fine;
/// impl ReportHealth for Fine {
///     fn report(&self) -> Reporting<'_> {
///         Box::pin(async { HealthReport::enforcing(Timestamp::default()) })
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let ready = Ready::new(Fine);
/// assert_eq!(ready.response().await.status(), 200);
/// ready.drain();
/// assert_eq!(ready.response().await.status(), 503);
/// # }
/// ```
#[derive(Clone)]
pub struct Ready {
    health: Arc<dyn ReportHealth>,
    rules: Option<Arc<Rules>>,
    draining: Arc<AtomicBool>,
}

/// Says what is wrong with the rules, if anything is.
type Rules = dyn Fn() -> Option<String> + Send + Sync;

impl Ready {
    /// Reports what `health` says.
    #[must_use]
    pub fn new(health: impl ReportHealth) -> Self {
        Self {
            health: Arc::new(health),
            rules: None,
            draining: Arc::default(),
        }
    }

    /// With a check `rules`, which is there while `broken` says what is wrong, such as with a file
    /// that was changed. It is asked on every probe.
    #[must_use]
    pub fn with_rules(
        mut self,
        broken: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.rules = Some(Arc::new(broken));
        self
    }

    /// From now on it is 503: the process is stopping.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// The answer to a probe.
    pub async fn response(&self) -> Response<String> {
        let report = self.health.report().await;
        let rules = self.rules.as_ref().and_then(|broken| broken());
        let draining = self.draining.load(Ordering::Relaxed);
        let (code, body) = ready_document(&report, rules.as_deref(), draining);
        json(code, body)
    }

    /// The answer to a person: [`HealthReport`] as JSON, always 200.
    pub async fn report(&self) -> Response<String> {
        let report = self.health.report().await.to_json();
        json(StatusCode::OK, String::from_utf8_lossy(&report).into())
    }

    /// A route for axum that answers GET and HEAD.
    #[cfg(feature = "axum")]
    pub fn route<S: Clone + Send + Sync + 'static>(&self) -> axum::routing::MethodRouter<S> {
        let ready = self.clone();
        axum::routing::get(move || async move { ready.response().await })
    }

    /// A router for axum with `/ready`.
    #[cfg(feature = "axum")]
    pub fn router<S: Clone + Send + Sync + 'static>(&self) -> axum::Router<S> {
        axum::Router::new().route("/ready", self.route())
    }
}

/// The handler of `/ready`, for a router whose state has a [`Ready`].
///
/// ```
/// use axum::extract::FromRef;
/// use axum::{Router, routing::get};
/// use tollgate_http::{Ready, ready};
///
/// #[derive(Clone)]
/// struct App {
///     ready: Ready,
/// }
///
/// impl FromRef<App> for Ready {
///     fn from_ref(app: &App) -> Self {
///         app.ready.clone()
///     }
/// }
///
/// fn router(app: App) -> Router {
///     Router::new().route("/ready", get(ready)).with_state(app)
/// }
/// ```
#[cfg(feature = "axum")]
pub async fn ready(axum::extract::State(ready): axum::extract::State<Ready>) -> Response<String> {
    ready.response().await
}

/// The same for people: [`Ready::report`].
#[cfg(feature = "axum")]
pub async fn health_report(
    axum::extract::State(ready): axum::extract::State<Ready>,
) -> Response<String> {
    ready.report().await
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready")
            .field("health", &self.health)
            .field("draining", &self.draining)
            .finish_non_exhaustive()
    }
}

fn json(code: StatusCode, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "failing open: rate limit backend unreachable, no limit is being enforced";

    #[test]
    fn s28_ready_is_200_and_says_that_nothing_is_enforced() {
        let report = HealthReport::degraded(OPEN, Timestamp::default());
        assert_eq!(
            ready_document(&report, None, false),
            (
                StatusCode::OK,
                r#"{"status":"degraded","checks":{"ratelimit":{"healthy":false,"critical":false,"detail":"failing open: rate limit backend unreachable, no limit is being enforced","meta":{"enforcing":false}}}}"#.into()
            )
        );
    }

    #[test]
    fn s28_a_broken_rule_file_is_a_check_of_its_own() {
        let report = HealthReport::enforcing(Timestamp::default());
        let (code, body) = ready_document(&report, Some("line 3: no limit"), false);
        assert_eq!(code, StatusCode::OK);
        assert_eq!(
            body,
            r#"{"status":"degraded","checks":{"ratelimit":{"healthy":true,"critical":false,"detail":"enforcing","meta":{"enforcing":true}},"rules":{"healthy":false,"critical":false,"detail":"line 3: no limit"}}}"#
        );
    }

    #[test]
    fn while_draining_ready_is_503() {
        for report in [
            HealthReport::enforcing(Timestamp::default()),
            HealthReport::degraded(OPEN, Timestamp::default()),
        ] {
            let (code, body) = ready_document(&report, None, true);
            assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
            assert!(body.starts_with(r#"{"status":"draining","#), "{body}");
        }
    }
}
