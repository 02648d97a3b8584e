//! Real servers for tests: single, in a cluster, under Sentinel.
//!
//! Each test that breaks its server starts one of its own; a test that only needs a store calls
//! [`shared_redis`] and keeps to keys of its own. Where a server comes from:
//! 1. for [`shared_redis`], an address in `TOLLGATE_TEST_REDIS_URL`;
//! 2. a container, where a test asks for one because it needs an address that can be cut off (feature
//!    `containers`);
//! 3. a child process on a free port: the binary that the [`Flavor`]'s variable names, and for plain
//!    Redis else `redis-server` or `valkey-server` in `PATH`. It starts in 20 ms where a container
//!    takes 500, and never outlives the test.
//!
//! [`MemcachedServer`] is the same for memcached.
//!
//! None found is a panic that says what to do, on CI and off it: a test that did not run proves
//! nothing.

mod builder;
mod client;
mod cluster;
#[cfg(feature = "containers")]
mod container;
#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(all(feature = "containers", feature = "dynamodb"))]
mod dynamodb_container;
mod memcached;
#[cfg(feature = "containers")]
mod memcached_container;
mod process;
mod sentinel;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::OnceCell;

pub use builder::{Flavor, RedisBuilder};
pub use client::RedisClient;
pub use cluster::RedisCluster;
#[cfg(feature = "containers")]
pub use container::RedisContainer;
#[cfg(feature = "dynamodb")]
pub use dynamodb::{DynamoFlavor, DynamoServer, LocalDynamo};
#[cfg(all(feature = "containers", feature = "dynamodb"))]
pub use dynamodb_container::DynamoContainer;
pub use memcached::{Entry, MemcachedServer, SharedMemcached, shared_memcached};
#[cfg(feature = "containers")]
pub use memcached_container::MemcachedContainer;
pub use process::Process;
pub use sentinel::Sentinel;

use crate::Reply;

/// How long a server may take to start, or to notice a change.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server of the test's own, which the test may stop, kill and freeze. It ends with this value,
/// and with the process of the test however that ends.
///
/// ```no_run
/// # async fn example() {
/// use tollgate_testkit::RedisServer;
///
/// let mut server = RedisServer::start().await;
/// server.command(&["SET", "k", "v"]).await;
/// server.kill();
/// server.restart().await; // on the same port
/// assert_eq!(server.command(&["EXISTS", "k"]).await.integer(), Some(0));
/// # }
/// ```
#[derive(Debug)]
pub struct RedisServer {
    builder: RedisBuilder,
    port: u16,
    tls_port: Option<u16>,
    folder: tempfolder::TempFolder,
    process: Process,
}

mod tempfolder;

impl RedisServer {
    /// A plain server with nothing set.
    ///
    /// # Panics
    /// When there is no server to start, or it does not start.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A server with settings.
    #[must_use]
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// Its port on 127.0.0.1; it stays the same over restarts.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens without TLS.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// `redis://`, with the password that was set.
    #[must_use]
    pub fn url(&self) -> String {
        self.builder.url_of(self.port)
    }

    /// `redis+unix://` and the path of its socket.
    ///
    /// # Panics
    /// When it was started without.
    #[must_use]
    pub fn unix_url(&self) -> String {
        assert!(self.builder.unix_socket, "started without a unix socket");
        format!(
            "redis+unix://{}",
            self.folder.path().join("redis.sock").display()
        )
    }

    /// `rediss://localhost`, whose certificate [`tls_authority`](Self::tls_authority) signed.
    ///
    /// # Panics
    /// When it was started without TLS.
    #[must_use]
    pub fn tls_url(&self) -> String {
        let port = self.tls_port.expect("started without TLS");
        self.builder
            .url_of(port)
            .replacen("redis://", "rediss://", 1)
            .replacen("127.0.0.1", "localhost", 1)
    }

    /// The file with the certificate of the authority that a client has to trust.
    ///
    /// # Panics
    /// When it was started without TLS.
    #[must_use]
    pub fn tls_authority(&self) -> PathBuf {
        assert!(self.tls_port.is_some(), "started without TLS");
        self.folder.path().join("ca.pem")
    }

    /// Runs one command over a connection of its own; what the server answers.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn command(&self, words: &[&str]) -> Reply {
        let answered = async { self.client().await?.call(words).await };
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => panic!("{words:?} on {self:?}: {error}"),
            Err(_) => panic!("{words:?} on {self:?}: no answer within {PATIENCE:?}"),
        }
    }

    /// A connection that has introduced itself.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn client(&self) -> std::io::Result<RedisClient> {
        RedisClient::connect(self.address(), self.builder.password.as_deref()).await
    }

    /// How often a command of this name ran since the start, also from scripts.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn calls(&self, name: &str) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]).await;
        let stats = stats.text().unwrap_or_default();
        let prefix = format!("cmdstat_{}:calls=", name.to_ascii_lowercase());
        let calls = stats.lines().find_map(|line| line.strip_prefix(&prefix));
        calls
            .and_then(|rest| rest.split(',').next())
            .and_then(|calls| calls.parse().ok())
            .unwrap_or(0)
    }

    /// The names of all keys that match a pattern.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn keys(&self, pattern: &str) -> Vec<String> {
        match self.command(&["KEYS", pattern]).await {
            Reply::Array(keys) => keys.iter().filter_map(Reply::text).collect(),
            other => panic!("KEYS answered {other:?}"),
        }
    }

    /// Freezes it (SIGSTOP): connections stay open, and nothing answers.
    pub fn pause(&mut self) {
        self.process.signal("STOP");
    }

    /// Ends a freeze.
    pub fn resume(&mut self) {
        self.process.signal("CONT");
    }

    /// Kills it (SIGKILL): connections break, and nobody listens.
    pub fn kill(&mut self) {
        self.process.signal("KILL");
    }

    /// Asks it to end (SIGTERM), and returns when it has.
    pub fn stop(&mut self) {
        self.process.signal("TERM");
        self.process.wait();
    }

    /// Starts it again on the same port, killing it if it runs. Nothing was saved, so it is empty.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn restart(&mut self) {
        self.kill();
        self.process = self
            .builder
            .spawn(self.port, self.tls_port, self.folder.path());
        let started = builder::ready(&self.builder, self.port, &mut self.process).await;
        assert!(
            started,
            "{self:?} does not start again:\n{}",
            self.process.log()
        );
    }
}

/// One plain server for all tests of a process that only need keys of their own.
#[derive(Clone, Debug)]
pub struct SharedRedis {
    url: String,
}

impl SharedRedis {
    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// The shared server: that of `TOLLGATE_TEST_REDIS_URL`, else one that is started at the first
/// call. Nobody may stop, flush or reconfigure it.
///
/// # Panics
/// When there is no server to start, or it does not start.
pub async fn shared_redis() -> &'static SharedRedis {
    static SHARED: OnceCell<(SharedRedis, Option<RedisServer>)> = OnceCell::const_new();
    let start = || async {
        if let Some(url) = variable("TOLLGATE_TEST_REDIS_URL") {
            return (SharedRedis { url }, None);
        }
        let server = RedisServer::start().await;
        (SharedRedis { url: server.url() }, Some(server))
    };
    &SHARED.get_or_init(start).await.0
}

/// A variable that is set to something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
