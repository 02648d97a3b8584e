//! How a backend is connected.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{BackendError, DEFAULT_PREFIX, ErrorKind};

use crate::MemcachedBackend;
use crate::store::MemcachedStore;
use crate::url::{Address, Target};

/// Connects a [`MemcachedBackend`].
///
/// What is set here goes before the options of the URL.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate_memcached::MemcachedBackend;
///
/// # async fn example() -> Result<(), tollgate_core::BackendError> {
/// let backend = MemcachedBackend::builder("memcached://10.0.0.1,10.0.0.2?pool=8")
///     .prefix("shop")
///     .timeout(Duration::from_millis(100))
///     .connect()
///     .await?;
/// assert_eq!(backend.to_string(), "memcached://10.0.0.1:11211,10.0.0.2:11211");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it connects only when told"]
pub struct Builder {
    url: String,
    prefix: String,
    timeout: Duration,
    connect_timeout: Option<Duration>,
    pool: Option<u64>,
    memory: Option<u64>,
    item_limit: Option<u64>,
}

impl Builder {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: DEFAULT_PREFIX.into(),
            timeout: Duration::from_millis(500),
            connect_timeout: None,
            pool: None,
            memory: None,
            item_limit: None,
        }
    }

    /// Before every key; `tollgate` by default. Printable ASCII without spaces.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a call may take, with all its trips and the wait for a connection; 500 ms by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long connecting may take, names included; 1 s by default. A call that ends earlier does
    /// not end the attempt.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// How many connections there are to each server at most; 16 by default.
    pub fn pool(mut self, connections: u64) -> Self {
        self.pool = Some(connections);
        self
    }

    /// How many bytes the memory of what was written last may take; 32 MiB by default, which is some
    /// 150,000 keys. A key that is in it, and that nobody else writes, costs one trip instead of two.
    /// 0: there is none.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// How many bytes a record may have; 1,000,000 by default, which fits a server whose items may
    /// have 1 MiB (`-I 1m`). Only sliding logs come near it.
    pub fn item_limit(mut self, bytes: u64) -> Self {
        self.item_limit = Some(bytes);
        self
    }

    /// Connects to all servers and writes to each, to see that it is one that will do.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for settings that cannot be used,
    /// [`Unsupported`](ErrorKind::Unsupported) for a server without the meta protocol or with `-C`
    /// (no compare and swap); and whatever keeps one from answering within the connect timeout.
    pub async fn connect(self) -> Result<MemcachedBackend, BackendError> {
        let backend = self.build()?;
        backend.warm_up().await?;
        Ok(backend)
    }

    /// Connects if the servers can be reached, and starts without them, with a warning in the log, if
    /// not: calls then fail until they are there.
    ///
    /// # Errors
    /// What waiting does not mend: [`Config`](ErrorKind::Config),
    /// [`Unsupported`](ErrorKind::Unsupported).
    pub async fn connect_or_degrade(self) -> Result<MemcachedBackend, BackendError> {
        let backend = self.build()?;
        if let Err(error) = backend.warm_up().await {
            if !error.is_transient() {
                return Err(error);
            }
            tracing::warn!(store = %backend, %error, "starting without the store");
        }
        Ok(backend)
    }

    /// Whether the URL and the other settings can be used, without a connection.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config).
    pub fn check(self) -> Result<(), BackendError> {
        self.build().map(drop)
    }

    fn build(self) -> Result<MemcachedBackend, BackendError> {
        let target = Target::parse(&self.url)?;
        if self.prefix.is_empty() || !self.prefix.bytes().all(|b| matches!(b, b'!'..=b'~')) {
            return Err(bad(
                "the prefix of the keys must be printable ASCII without spaces",
            ));
        }
        let pool = self.pool.or(target.pool).unwrap_or(16);
        let connect_timeout = self.connect_timeout.or(target.connect_timeout);
        let connect_timeout = connect_timeout.unwrap_or(Duration::from_secs(1));
        let settings = Settings {
            servers: target.servers,
            pool: usize::try_from(pool)
                .ok()
                .filter(|pool| (1..=4_096).contains(pool))
                .ok_or_else(|| {
                    bad(format!(
                        "pool is {pool}, where 1 to 4096 connections can be: 16 is a good number"
                    ))
                })?,
            connect_timeout,
            memory: self.memory.or(target.memory).unwrap_or(32 << 20),
            item_limit: self.item_limit.or(target.item_limit).unwrap_or(1_000_000),
        };
        for (name, timeout) in [
            ("timeout", self.timeout),
            ("connect_timeout", connect_timeout),
        ] {
            if timeout.is_zero() {
                return Err(bad(format!(
                    "{name} is 0, in which nothing is done: 500ms is a good value"
                )));
            }
        }
        if settings.item_limit < 1_024 {
            return Err(bad(format!(
                "item_limit is {} bytes, where 1024 is the least: 1000000 suits a server that was started without -I",
                settings.item_limit
            )));
        }
        let store = MemcachedStore::new(Arc::new(settings));
        Ok(MemcachedBackend::of_store(store, self.prefix, self.timeout))
    }
}

fn bad(why: impl Into<std::borrow::Cow<'static, str>>) -> BackendError {
    BackendError::new(ErrorKind::Config, why)
}

/// What a store is made with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<Address>,
    pub(crate) pool: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) memory: u64,
    pub(crate) item_limit: u64,
}
