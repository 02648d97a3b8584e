//! A key set that is fetched, kept, and fetched again within bounds.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::Header;
use jsonwebtoken::jwk::Jwk;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate_core::{Clock, SystemClock, Timestamp};

use super::key::{JwtAlgorithm, JwtKey, candidates};

/// The largest document, in bytes.
pub(super) const MAX_DOCUMENT: usize = 256 << 10;
/// The most keys that are kept of one.
const MAX_KEYS: usize = 100;

/// Why a key set could not be fetched. It is logged; clients do not see it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FetchError(String);

impl FetchError {
    /// With this reason, which must not hold a secret.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// A document on its way.
pub type Fetching = Pin<Box<dyn Future<Output = Result<Vec<u8>, FetchError>> + Send>>;

/// Fetches the document of a key set. A function that gives such a future is one, and
/// [`HttpFetch`](crate::HttpFetch), with the feature `jwks`.
pub trait FetchJwks: Send + Sync + 'static {
    /// The document: JSON, at most 256 KiB.
    fn fetch(&self) -> Fetching;
}

impl<F, R> FetchJwks for F
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = Result<Vec<u8>, FetchError>> + Send + 'static,
{
    fn fetch(&self) -> Fetching {
        Box::pin(self())
    }
}

/// The keys of an issuer, as it publishes them (JWKS).
///
/// - They are fetched when a token first needs them, and again when they are older than
///   [`refresh`](Self::refresh), or a token names a key that is not among them; but never sooner
///   than [`pause`](Self::pause) after the last attempt, whatever tokens say, and one at a time.
/// - One attempt takes at most [`timeout`](Self::timeout). It goes on when the request that needed
///   it goes away, and ends when the last clone of this is dropped.
/// - When it fails, that is logged, and the keys that are there stay in use for a day. With none
///   at all tokens can not be verified, which is an error of the service (500), not of the client.
/// - At most 256 KiB and 100 keys are read. Secrets (`oct`), keys for encryption and algorithms
///   that are not allowed are passed over.
///
/// ```
/// use tollgate_http::{Jwks, Jwt};
///
/// let keys = Jwks::new(|| async { Ok(br#"{"keys":[]}"#.to_vec()) });
/// let source = Jwt::new("https://issuer.example", "orders", keys);
/// ```
#[derive(Clone)]
pub struct Jwks(Arc<Inner>);

struct Inner {
    settings: Settings,
    fetch: Arc<dyn FetchJwks>,
    kept: Arc<Kept>,
    running: Mutex<Option<Running>>,
}

#[derive(Clone)]
struct Settings {
    allowed: Arc<[JwtAlgorithm]>,
    refresh: Duration,
    pause: Duration,
    timeout: Duration,
    stale: Duration,
    clock: Arc<dyn Clock>,
}

/// What a fetch leaves behind.
struct Kept {
    state: Mutex<State>,
    /// How many attempts have ended.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    keys: Arc<[JwtKey]>,
    fetched: Option<Timestamp>,
    tried: Option<Timestamp>,
    running: bool,
}

/// An attempt under way, which ends with its owner.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Jwks {
    /// Keys that `fetch` gives.
    #[must_use]
    pub fn new(fetch: impl FetchJwks) -> Self {
        Self::of(
            Arc::new(fetch),
            Settings {
                allowed: JwtAlgorithm::ALL.into(),
                refresh: Duration::from_secs(600),
                pause: Duration::from_secs(30),
                timeout: Duration::from_secs(5),
                stale: Duration::from_secs(86_400),
                clock: Arc::new(SystemClock),
            },
        )
    }

    fn of(fetch: Arc<dyn FetchJwks>, settings: Settings) -> Self {
        Self(Arc::new(Inner {
            settings,
            fetch,
            kept: Arc::new(Kept {
                state: Mutex::default(),
                ended: watch::Sender::new(0),
            }),
            running: Mutex::new(None),
        }))
    }

    fn with(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.0.settings.clone();
        change(&mut settings);
        Self::of(Arc::clone(&self.0.fetch), settings)
    }

    /// Only these algorithms; all that have public keys by default. Settings start without keys,
    /// so make them first.
    #[must_use]
    pub fn algorithms(self, allowed: &[JwtAlgorithm]) -> Self {
        self.with(|it| it.allowed = allowed.into())
    }

    /// When keys are fetched again; 10 minutes.
    #[must_use]
    pub fn refresh(self, after: Duration) -> Self {
        self.with(|it| it.refresh = after)
    }

    /// The least time between two attempts; 30 seconds.
    #[must_use]
    pub fn pause(self, pause: Duration) -> Self {
        self.with(|it| it.pause = pause)
    }

    /// How long an attempt may take; 5 seconds.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|it| it.timeout = timeout)
    }

    /// Another clock than the system's, for tests.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        self.with(|it| it.clock = Arc::new(clock))
    }

    /// The keys that are kept, if they are enough to decide about a token now. `None`: they have
    /// to be fetched first.
    pub(super) fn kept(&self, header: &Header) -> Option<Arc<[JwtKey]>> {
        let now = self.0.settings.clock.now();
        let state = self.0.kept.state.lock();
        let since = |at: Timestamp| now.saturating_since(at);
        let fresh = state
            .fetched
            .is_some_and(|at| since(at) < self.0.settings.refresh);
        let tried = state
            .tried
            .is_some_and(|at| since(at) < self.0.settings.pause);
        // Old keys serve while new ones are fetched. For a key that is not there an attempt is
        // made, too, and waited for, but with the pause between.
        let enough = if candidates(&state.keys, header).is_empty() {
            tried && !state.running
        } else {
            fresh || tried || state.running
        };
        let usable = state
            .fetched
            .is_some_and(|at| since(at) < self.0.settings.stale);
        (enough && usable).then(|| Arc::clone(&state.keys))
    }

    /// The keys for a token, fetched if need be. `None`: there are none.
    pub(super) async fn keys(&self, header: &Header) -> Option<Arc<[JwtKey]>> {
        if let Some(keys) = self.kept(header) {
            return Some(keys);
        }
        let mut ended = self.0.kept.ended.subscribe();
        if self.start() {
            // The attempt bounds itself, and tells when it has ended, unless its runtime is gone.
            let most = self.0.settings.timeout + Duration::from_secs(1);
            let _ = tokio::time::timeout(most, ended.changed()).await;
        }
        let now = self.0.settings.clock.now();
        let state = self.0.kept.state.lock();
        let age = now.saturating_since(state.fetched?);
        (age < self.0.settings.stale).then(|| Arc::clone(&state.keys))
    }

    /// Starts an attempt unless one is under way or was just made. Whether one is under way.
    fn start(&self) -> bool {
        let mut running = self.0.running.lock();
        let settings = self.0.settings.clone();
        {
            let now = settings.clock.now();
            let mut state = self.0.kept.state.lock();
            if state.running && running.as_ref().is_some_and(|it| !it.0.is_finished()) {
                return true;
            }
            if state
                .tried
                .is_some_and(|at| now.saturating_since(at) < settings.pause)
            {
                return false;
            }
            state.tried = Some(now);
            state.running = true;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return false;
        };
        let fetch = self.0.fetch.fetch();
        let kept = Arc::clone(&self.0.kept);
        *running = Some(Running(runtime.spawn(async move {
            let document = tokio::time::timeout(settings.timeout, fetch).await;
            let document = document.unwrap_or_else(|_| Err(FetchError::new("it took too long")));
            let read = document.and_then(|it| read(&it, &settings.allowed));
            if let Err(error) = &read {
                tracing::warn!(%error, "the keys that tokens are verified with were not fetched");
            }
            {
                let mut state = kept.state.lock();
                state.running = false;
                if let Ok(keys) = read {
                    state.keys = keys;
                    state.fetched = Some(settings.clock.now());
                }
            }
            kept.ended
                .send_modify(|count| *count = count.wrapping_add(1));
        })));
        true
    }
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

fn read(document: &[u8], allowed: &[JwtAlgorithm]) -> Result<Arc<[JwtKey]>, FetchError> {
    if document.len() > MAX_DOCUMENT {
        return Err(FetchError::new("the document is larger than 256 KiB"));
    }
    let document: Document = serde_json::from_slice(document)
        .map_err(|_| FetchError::new("the document is no JSON with a list of keys"))?;
    let keys = document.keys.into_iter().filter_map(|key| {
        let jwk: Jwk = serde_json::from_value(key).ok()?;
        JwtKey::of_set(&jwk, allowed)
    });
    Ok(keys.take(MAX_KEYS).collect())
}

impl fmt::Debug for Jwks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.kept.state.lock();
        f.debug_struct("Jwks")
            .field("keys", &state.keys)
            .field("fetched", &state.fetched)
            .finish_non_exhaustive()
    }
}
