//! How a backend is connected.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{BackendError, Clock, DEFAULT_PREFIX, ErrorKind};

use crate::DynamoBackend;
use crate::client::Client;
use crate::standing::Standing;
use crate::table::{Problem, inspect};
use crate::url::Target;

/// Connects a [`DynamoBackend`].
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate_dynamodb::DynamoBackend;
///
/// # async fn example() -> Result<(), tollgate_core::BackendError> {
/// let backend = DynamoBackend::builder("dynamodb://limits?region=eu-west-1")
///     .prefix("shop")
///     .timeout(Duration::from_millis(200))
///     .connect()
///     .await?;
/// assert_eq!(backend.to_string(), "dynamodb://limits");
/// # Ok(())
/// # }
/// ```
#[must_use = "it connects only when told"]
#[derive(Clone)]
pub struct Builder {
    url: String,
    pub(crate) prefix: String,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) remember: usize,
}

impl Builder {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: DEFAULT_PREFIX.into(),
            timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(5),
            clock: None,
            remember: 50_000,
        }
    }

    /// Before every key; `tollgate` by default. Printable ASCII without spaces.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a call may take, all its round trips included; 500 ms by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long finding credentials and checking the table at start may take; 5 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Another clock than the system's: for tests and simulations.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Of how many keys to remember what was last seen, which saves a round trip; 50,000 by
    /// default, some 100 bytes each.
    pub fn remember(mut self, keys: usize) -> Self {
        self.remember = keys;
        self
    }

    /// Connects, and checks the table.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for a URL that cannot be used, no region, a missing table, or
    /// one whose key or expiry is not as it must be; [`Auth`](ErrorKind::Auth) for missing
    /// credentials or permissions; and whatever keeps the service from answering within the connect
    /// timeout.
    pub async fn connect(self) -> Result<DynamoBackend, BackendError> {
        let client = self.client().await?;
        let warnings = check(&client, self.connect_timeout).await?;
        let standing = Standing::good(warnings);
        Ok(DynamoBackend::new(client, &self, standing))
    }

    /// Connects if the service can be reached, and starts without it, with a warning in the log, if
    /// it cannot: calls then fail until it is there. The table is checked once it answers; if it
    /// turns out to be wrong, every later call fails with that error.
    ///
    /// # Errors
    /// What waiting does not mend: [`Config`](ErrorKind::Config), [`Auth`](ErrorKind::Auth),
    /// [`Unsupported`](ErrorKind::Unsupported).
    pub async fn connect_or_degrade(self) -> Result<DynamoBackend, BackendError> {
        let client = self.client().await?;
        let standing = match check(&client, self.connect_timeout).await {
            Ok(warnings) => Standing::good(warnings),
            Err(error) if error.is_transient() => {
                tracing::warn!(store = %client, %error, "starting without the store");
                Standing::to_be_checked(client.clone(), self.connect_timeout)
            }
            Err(error) => return Err(error),
        };
        Ok(DynamoBackend::new(client, &self, standing))
    }

    /// Whether the URL and the prefix can be used, without a connection.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config).
    pub fn check(&self) -> Result<(), BackendError> {
        self.target().map(drop)
    }

    /// Where the table is, if the settings are good.
    pub(crate) fn target(&self) -> Result<Target, BackendError> {
        if self.prefix.is_empty()
            || self.prefix.len() > 256
            || !self.prefix.bytes().all(|b| matches!(b, b'!'..=b'~'))
        {
            return Err(BackendError::new(
                ErrorKind::Config,
                "the prefix of the keys must be 1 to 256 bytes of printable ASCII without spaces",
            ));
        }
        Target::parse(&self.url)
    }

    async fn client(&self) -> Result<Client, BackendError> {
        let target = self.target()?;
        let made = Client::new(&target, self.connect_timeout);
        let made = tokio::time::timeout(self.connect_timeout, made).await;
        made.unwrap_or_else(|_| Err(late(self.connect_timeout)))
    }
}

/// What is not wrong but should be known about the table.
pub(crate) async fn check(client: &Client, limit: Duration) -> Result<Vec<String>, BackendError> {
    let inspected = tokio::time::timeout(limit, inspect(client)).await;
    let (_, problems) = inspected.unwrap_or_else(|_| Err(late(limit)))?;
    let (mut wrong, mut warnings) = (Vec::new(), Vec::new());
    for problem in problems {
        match problem {
            Problem::Wrong(text) => wrong.push(text),
            Problem::Unknown(text) => warnings.push(text),
            Problem::NotReady(text) => return Err(BackendError::new(ErrorKind::NotReady, text)),
        }
    }
    if !wrong.is_empty() {
        return Err(BackendError::new(ErrorKind::Config, wrong.join("; ")));
    }
    Ok(warnings)
}

fn late(limit: Duration) -> BackendError {
    BackendError::new(ErrorKind::Timeout, format!("no answer within {limit:?}"))
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("remember", &self.remember)
            .finish_non_exhaustive()
    }
}
