//! Limits on the way out: a layer around a client, which waits instead of refusing.

mod pauses;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode, request};
use std::task::{Context, Poll};
use tokio::time::Instant;
use tollgate_core::{Decision, Key};
use tower_layer::Layer;
use tower_service::Service;

use crate::layer::Charge;
use crate::{BodyStyle, Limit, LimitError, Limited, Problem, ProblemType, ResponseBody};
use pauses::Pauses;

type KeyOf = Arc<dyn Fn(&request::Parts) -> Key<'static> + Send + Sync>;
type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Keeps a client within a limit that it shares with every process, and within what servers ask for.
///
/// Each request charges one of the limit, by the host it goes to, and waits until it fits. When a
/// server answers 429 or 503 with `Retry-After` (seconds, or a date), later requests to that host
/// wait until then; the answer itself is passed on, so that a retry, which belongs outside of this
/// layer, waits too. Up to 10,000 hosts that said so are remembered, in this process.
///
/// A wait that is longer than [`max_wait`](Self::max_wait) (10 s unless told otherwise) is not
/// begun: the answer is then a 429 of this layer's own, with `Retry-After`, a problem document, and
/// [`Limited`] among its extensions. An error of the client is passed on as it is.
///
/// It sleeps in the time of the tokio runtime.
///
/// ```
/// use std::time::Duration;
/// use tollgate_http::{Limit, outbound::WaitLayer};
///
/// fn polite<L: Limit + Clone>(limit: &L) -> WaitLayer {
///     WaitLayer::new(limit).max_wait(Duration::from_secs(30))
/// }
/// ```
///
/// # Cancellation
/// A request that is dropped while it waits has charged nothing.
#[derive(Clone)]
pub struct WaitLayer(Arc<Settings>);

#[derive(Clone)]
struct Settings {
    limit: Option<Arc<dyn Limit>>,
    cost: u64,
    key: KeyOf,
    max_wait: Duration,
    pauses: Arc<Pauses>,
}

impl WaitLayer {
    /// Within this limit.
    #[must_use]
    pub fn new<L: Limit + Clone>(limit: &L) -> Self {
        Self::with_limit(Some(Arc::new(limit.clone())))
    }

    /// Only as servers ask for.
    #[must_use]
    pub fn polite() -> Self {
        Self::with_limit(None)
    }

    fn with_limit(limit: Option<Arc<dyn Limit>>) -> Self {
        Self(Arc::new(Settings {
            limit,
            cost: 1,
            key: Arc::new(host),
            max_wait: Duration::from_secs(10),
            pauses: Arc::default(),
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The longest wait. 0 never waits.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|it| it.max_wait = max_wait)
    }

    /// Charges so much for each request.
    #[must_use]
    pub fn cost(self, cost: u64) -> Self {
        self.with(|it| it.cost = cost)
    }

    /// Counts, and pauses, by this instead of the host: an account, or all together.
    #[must_use]
    pub fn key(
        self,
        key: impl Fn(&request::Parts) -> Key<'static> + Send + Sync + 'static,
    ) -> Self {
        self.with(|it| it.key = Arc::new(key))
    }
}

/// The host and port that a request goes to, in lower case.
fn host(request: &request::Parts) -> Key<'static> {
    let authority = request.uri.authority().map(|it| it.as_str().as_bytes());
    let host = authority.or_else(|| request.headers.get("host").map(HeaderValue::as_bytes));
    Key::from_parts([
        b"host".to_vec(),
        host.unwrap_or_default().to_ascii_lowercase(),
    ])
}

impl<S> Layer<S> for WaitLayer {
    type Service = Wait<S>;

    fn layer(&self, inner: S) -> Wait<S> {
        Wait {
            inner,
            settings: Arc::clone(&self.0),
        }
    }
}

/// A client whose requests wait. [`WaitLayer`] makes it.
#[derive(Clone)]
pub struct Wait<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S, A, B> Service<Request<A>> for Wait<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    A: Send + 'static,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = Boxed<Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // The service that was polled is the one that must be called.
        let service = self.inner.clone();
        let mut service = std::mem::replace(&mut self.inner, service);
        let settings = Arc::clone(&self.settings);
        let (parts, body) = request.into_parts();
        let key = (settings.key)(&parts);
        Box::pin(async move {
            if let Some(refused) = settings.wait(&key).await {
                return Ok(settings.refusal(&refused, parts.uri.path()));
            }
            let response = service.call(Request::from_parts(parts, body)).await?;
            settings.listen(&key, &response);
            Ok(response.map(ResponseBody::service))
        })
    }
}

/// Why a request is not sent.
enum Unsent {
    Refused(Decision),
    Paused(Duration),
    Failed(LimitError),
}

impl Settings {
    /// Waits until the request may be sent; or says why it is not.
    async fn wait(&self, key: &Key<'_>) -> Option<Unsent> {
        let end = Instant::now() + self.max_wait;
        loop {
            while let Some(until) = self.pauses.until(key, Instant::now()) {
                if until > end {
                    return Some(Unsent::Paused(until - Instant::now()));
                }
                tokio::time::sleep_until(until).await;
            }
            let limit = self.limit.as_ref()?;
            let decision = match limit.charge_now(key, self.cost) {
                Some(answer) => answer,
                None => limit.charge(key, self.cost).await,
            };
            let decision = match decision {
                Ok(decision) => decision,
                Err(error) => return Some(Unsent::Failed(error)),
            };
            if decision.allowed() {
                return None;
            }
            let left = end.saturating_duration_since(Instant::now());
            match decision.retry_after() {
                Some(wait) if wait <= left => tokio::time::sleep(wait).await,
                _ => return Some(Unsent::Refused(decision)),
            }
        }
    }

    /// Remembers what the server asks for.
    fn listen<B>(&self, key: &Key<'_>, response: &Response<B>) {
        let status = response.status();
        if status != StatusCode::TOO_MANY_REQUESTS && status != StatusCode::SERVICE_UNAVAILABLE {
            return;
        }
        let wait = response.headers().get(RETRY_AFTER).and_then(pauses::wait);
        if let Some(wait) = wait {
            self.pauses.pause(key, Instant::now(), wait);
        }
    }

    /// The answer of this layer's own.
    fn refusal<B>(&self, unsent: &Unsent, path: &str) -> Response<ResponseBody<B>> {
        let (problem, wait) = match unsent {
            Unsent::Refused(decision) => {
                let policy = self.limit.as_ref().map(|limit| limit.policy());
                let problem =
                    policy.map(|policy| Problem::refusal(policy, decision, ProblemType::Blank));
                (problem, crate::retry_after_seconds(decision))
            }
            Unsent::Paused(wait) => {
                let asked = "The server asked for a pause.";
                let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, asked);
                (Some(problem), Some(crate::seconds::ceil(*wait).max(1)))
            }
            Unsent::Failed(error) => {
                tracing::warn!(%error, "a request was not sent");
                (None, None)
            }
        };
        let problem = problem.unwrap_or_else(|| {
            let unknown = "The limit of this client cannot be checked";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, unknown)
        });
        let json = problem
            .clone()
            .with_instance(path)
            .to_json(BodyStyle::Problem);
        let mut response = Response::new(ResponseBody::own(Bytes::from(json)));
        *response.status_mut() = problem.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, BodyStyle::Problem.content_type());
        if let Some(seconds) = wait {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let (Unsent::Refused(decision), Some(limit)) = (unsent, &self.limit) {
            let refusal = Charge::of_nobody(limit.policy().clone(), decision.clone());
            response
                .extensions_mut()
                .insert(Limited::new(Arc::new(refusal)));
        }
        response
    }
}

impl fmt::Debug for WaitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitLayer")
            .field("limit", &self.0.limit)
            .field("max_wait", &self.0.max_wait)
            .finish_non_exhaustive()
    }
}

impl<S: fmt::Debug> fmt::Debug for Wait<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait")
            .field("inner", &self.inner)
            .field("max_wait", &self.settings.max_wait)
            .finish_non_exhaustive()
    }
}
