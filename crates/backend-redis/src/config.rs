//! How a backend is connected.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_core::{BackendError, DEFAULT_PREFIX, ErrorKind};

use crate::RedisBackend;
use crate::client::Client;
use crate::stream::Encryption;
use crate::url::Target;

/// Connects a [`RedisBackend`].
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate_redis::RedisBackend;
///
/// # async fn example() -> Result<(), tollgate_core::BackendError> {
/// let backend = RedisBackend::builder("redis://:secret@10.0.0.1:6379/1")
///     .prefix("shop")
///     .timeout(Duration::from_millis(100))
///     .connect()
///     .await?;
/// assert_eq!(backend.to_string(), "redis://***@10.0.0.1:6379/1");
/// # Ok(())
/// # }
/// ```
#[must_use = "it connects only when told"]
pub struct Builder {
    url: String,
    prefix: String,
    timeout: Duration,
    connect_timeout: Duration,
}

impl Builder {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: DEFAULT_PREFIX.into(),
            timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(1),
        }
    }

    /// Before every key; `tollgate` by default. Printable ASCII without spaces.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a call may take, waiting for a connection included; 500 ms by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long connecting and logging in may take, which happens beside the calls; 1 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for a URL that cannot be used, [`Auth`](ErrorKind::Auth) for
    /// a wrong password, [`Unsupported`](ErrorKind::Unsupported) for a server older than 6.2; and
    /// whatever keeps the server from answering within the connect timeout.
    pub async fn connect(self) -> Result<RedisBackend, BackendError> {
        let (client, prefix) = self.client()?;
        client.warm_up().await?;
        Ok(RedisBackend::of_client(client, prefix))
    }

    /// Connects if the server can be reached, and starts without it, with a warning in the log, if
    /// it cannot: calls then fail until it is there. It is checked once it comes up.
    ///
    /// # Errors
    /// What waiting does not mend: [`Config`](ErrorKind::Config), [`Auth`](ErrorKind::Auth),
    /// [`Unsupported`](ErrorKind::Unsupported).
    pub async fn connect_or_degrade(self) -> Result<RedisBackend, BackendError> {
        let (client, prefix) = self.client()?;
        if let Err(error) = client.warm_up().await {
            if !error.is_transient() {
                return Err(error);
            }
            tracing::warn!(store = %client, %error, "starting without the store");
        }
        Ok(RedisBackend::of_client(client, prefix))
    }

    /// Whether the URL and the other settings can be used, without a connection.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config).
    pub fn check(self) -> Result<(), BackendError> {
        self.client().map(drop)
    }

    fn client(self) -> Result<(Client, String), BackendError> {
        let target = Target::parse(&self.url)?;
        if self.prefix.is_empty() || !self.prefix.bytes().all(|b| matches!(b, b'!'..=b'~')) {
            return Err(BackendError::new(
                ErrorKind::Config,
                "the prefix of the keys must be printable ASCII without spaces",
            ));
        }
        let encryption = match &target.tls {
            None => None,
            #[cfg(feature = "tls")]
            Some(files) => Some(Encryption::new(files)?),
            #[cfg(not(feature = "tls"))]
            Some(_) => {
                return Err(BackendError::new(
                    ErrorKind::Config,
                    "encrypted connections need the feature `tls` of tollgate-redis (`redis-tls` of tollgate)",
                ));
            }
        };
        let settings = Settings {
            target,
            encryption,
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            warnings: Arc::default(),
        };
        Ok((Client::new(Arc::new(settings)), self.prefix))
    }
}

/// Without the URL, which may hold a password.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

/// What every connection of a client is made with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) target: Target,
    pub(crate) encryption: Option<Encryption>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) warnings: Arc<Mutex<Vec<String>>>,
}
