//! From a URL to a store.

mod error;
mod url;

use std::time::Duration;

use tollgate_core::SharedBackend;

pub use error::ConnectError;

/// The store that a URL names, with default settings; see [`Connect`].
///
/// # Errors
/// When the URL names no store that this build knows, its settings are wrong, or the store refuses
/// us for good: a wrong password, an unsupported version. A store that cannot be reached is no
/// error: the limiter starts degraded, says so, and uses the store once it is there.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let backend = tollgate::connect("memory://?max_keys=10000").await.unwrap();
/// assert!(backend.to_string().starts_with("memory://"));
///
/// let error = tollgate::connect("etcd://127.0.0.1").await.unwrap_err();
/// assert!(error.to_string().contains("etcd"));
/// # }
/// ```
pub async fn connect(url: &str) -> Result<SharedBackend, ConnectError> {
    Connect::new(url).connect().await
}

/// How to reach a store.
///
/// | scheme | feature | store |
/// |---|---|---|
/// | `memory://` | `memory` | this process; `?max_keys=` bounds it |
/// | `redis://`, `valkey://` | `redis` | one server: `redis://user:password@host:port/db` |
/// | `redis+unix://`, `redis+cluster://`, `redis+sentinel://`, and with `valkey` | `redis` | a socket, a cluster, behind sentinels |
/// | `rediss://` and the like | `redis-tls` | the same, encrypted |
/// | `dynamodb://` | `dynamodb` | a table: `dynamodb://table?region=eu-west-1` |
/// | `memcached://` | `memcached` | one server or several: `memcached://a:11211,b:11211` |
///
/// ```
/// use tollgate::Connect;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = Connect::new("memory://").max_keys(10_000).connect().await?;
/// assert!(backend.to_string().starts_with("memory://"));
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is connected until `connect` is called"]
pub struct Connect<'a> {
    url: &'a str,
    prefix: Option<String>,
    require: bool,
    max_keys: Option<u64>,
    timeout: Option<Duration>,
}

impl<'a> Connect<'a> {
    /// A store by its URL.
    pub const fn new(url: &'a str) -> Self {
        Self {
            url,
            prefix: None,
            require: false,
            max_keys: None,
            timeout: None,
        }
    }

    /// What the keys in a shared store begin with. Default: `tollgate`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Whether a store that cannot be reached now is an error. Default: no.
    pub const fn require(mut self, require: bool) -> Self {
        self.require = require;
        self
    }

    /// How many keys this process keeps at most, where it counts itself. The URL's `max_keys` goes
    /// before.
    pub const fn max_keys(mut self, max: u64) -> Self {
        self.max_keys = Some(max);
        self
    }

    /// How long the store's client lets a call take, and keeps its place for the answer; it should
    /// not be below the timeout of the limiter. Default: the client's own (Redis: 500 ms).
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Reaches it.
    ///
    /// # Errors
    /// See [`connect`].
    pub async fn connect(self) -> Result<SharedBackend, ConnectError> {
        let scheme = url::scheme(self.url)?;
        match scheme.as_str() {
            "memory" => self.memory(),
            "dynamodb" => self.dynamodb().await,
            // The second is refused there, and told why.
            "memcached" | "memcacheds" => self.memcached().await,
            redis if url::is_redis(redis) => self.redis(redis).await,
            _ => Err(ConnectError::Unknown { scheme }),
        }
    }

    /// Whether the URL and the prefix can be used, without a connection.
    ///
    /// # Errors
    /// When the URL names no store that this build knows, or the settings are wrong.
    pub fn check(self) -> Result<(), ConnectError> {
        let scheme = url::scheme(self.url)?;
        match scheme.as_str() {
            "memory" => self.memory().map(drop),
            #[cfg(feature = "dynamodb")]
            "dynamodb" => Ok(self.dynamodb_builder().check()?),
            #[cfg(not(feature = "dynamodb"))]
            "dynamodb" => Err(ConnectError::disabled("dynamodb", "dynamodb")),
            #[cfg(feature = "memcached")]
            "memcached" | "memcacheds" => Ok(self.memcached_builder().check()?),
            #[cfg(not(feature = "memcached"))]
            "memcached" | "memcacheds" => Err(ConnectError::disabled("memcached", "memcached")),
            #[cfg(feature = "redis")]
            redis if url::is_redis(redis) => {
                url::require_tls(redis)?;
                Ok(self.redis_builder().check()?)
            }
            #[cfg(not(feature = "redis"))]
            redis if url::is_redis(redis) => {
                Err(ConnectError::disabled(redis, url::redis_feature(redis)))
            }
            _ => Err(ConnectError::Unknown { scheme }),
        }
    }

    #[cfg(feature = "memory")]
    fn memory(self) -> Result<SharedBackend, ConnectError> {
        let mut backend = tollgate_memory::MemoryBackend::builder();
        if let Some(max) = url::max_keys(self.url)?.or(self.max_keys) {
            backend = backend.max_keys(max);
        }
        Ok(SharedBackend::new(backend.build()))
    }

    #[cfg(not(feature = "memory"))]
    #[expect(
        clippy::unused_self,
        reason = "the same call with and without the feature"
    )]
    fn memory(self) -> Result<SharedBackend, ConnectError> {
        Err(ConnectError::disabled("memory", "memory"))
    }

    #[cfg(feature = "redis")]
    fn redis_builder(self) -> tollgate_redis::Builder {
        let mut backend = tollgate_redis::RedisBackend::builder(self.url);
        if let Some(prefix) = self.prefix {
            backend = backend.prefix(prefix);
        }
        if let Some(limit) = self.timeout {
            backend = backend.timeout(limit);
        }
        backend
    }

    #[cfg(feature = "redis")]
    async fn redis(self, scheme: &str) -> Result<SharedBackend, ConnectError> {
        url::require_tls(scheme)?;
        let require = self.require;
        let backend = self.redis_builder();
        let backend = if require {
            backend.connect().await?
        } else {
            backend.connect_or_degrade().await?
        };
        Ok(SharedBackend::new(backend))
    }

    #[cfg(feature = "dynamodb")]
    fn dynamodb_builder(self) -> tollgate_dynamodb::Builder {
        let mut backend = tollgate_dynamodb::DynamoBackend::builder(self.url);
        if let Some(prefix) = self.prefix {
            backend = backend.prefix(prefix);
        }
        if let Some(limit) = self.timeout {
            backend = backend.timeout(limit);
        }
        backend
    }

    #[cfg(feature = "dynamodb")]
    async fn dynamodb(self) -> Result<SharedBackend, ConnectError> {
        let require = self.require;
        let backend = self.dynamodb_builder();
        let backend = if require {
            backend.connect().await?
        } else {
            backend.connect_or_degrade().await?
        };
        Ok(SharedBackend::new(backend))
    }

    #[cfg(not(feature = "dynamodb"))]
    #[expect(
        clippy::unused_async,
        reason = "the same call with and without the feature"
    )]
    async fn dynamodb(self) -> Result<SharedBackend, ConnectError> {
        Err(ConnectError::disabled("dynamodb", "dynamodb"))
    }

    #[cfg(feature = "memcached")]
    fn memcached_builder(self) -> tollgate_memcached::Builder {
        let mut backend = tollgate_memcached::MemcachedBackend::builder(self.url);
        if let Some(prefix) = self.prefix {
            backend = backend.prefix(prefix);
        }
        if let Some(limit) = self.timeout {
            backend = backend.timeout(limit);
        }
        backend
    }

    #[cfg(feature = "memcached")]
    async fn memcached(self) -> Result<SharedBackend, ConnectError> {
        let require = self.require;
        let backend = self.memcached_builder();
        let backend = if require {
            backend.connect().await?
        } else {
            backend.connect_or_degrade().await?
        };
        Ok(SharedBackend::new(backend))
    }

    #[cfg(not(feature = "memcached"))]
    #[expect(
        clippy::unused_async,
        reason = "the same call with and without the feature"
    )]
    async fn memcached(self) -> Result<SharedBackend, ConnectError> {
        Err(ConnectError::disabled("memcached", "memcached"))
    }

    #[cfg(not(feature = "redis"))]
    #[expect(
        clippy::unused_async,
        reason = "the same call with and without the feature"
    )]
    async fn redis(self, scheme: &str) -> Result<SharedBackend, ConnectError> {
        Err(ConnectError::disabled(scheme, url::redis_feature(scheme)))
    }
}

/// Without the URL: it may hold a password.
impl std::fmt::Debug for Connect<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connect")
            .field("scheme", &url::scheme(self.url).ok())
            .field("prefix", &self.prefix)
            .field("require", &self.require)
            .field("max_keys", &self.max_keys)
            .field("timeout", &self.timeout)
            .finish()
    }
}
