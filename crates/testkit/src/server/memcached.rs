//! A memcached of the test's own, and one for all.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout};

use super::tempfolder::TempFolder;
use super::{PATIENCE, Process, builder, variable};
use crate::{MemcachedClient, port};

/// The variable that names the binary.
const VARIABLE: &str = "TOLLGATE_MEMCACHED_SERVER";

/// A server that the test may stop, kill and freeze. It ends with this value, and with the process
/// of the test however that ends.
///
/// ```no_run
/// # async fn example() {
/// use tollgate_testkit::MemcachedServer;
///
/// let mut server = MemcachedServer::start().await;
/// assert_eq!(server.command("ms k 2\r\nhi").await, "HD");
/// server.kill();
/// server.restart().await; // on the same port
/// assert_eq!(server.command("mg k v").await, "EN");
/// # }
/// ```
#[derive(Debug)]
pub struct MemcachedServer {
    arguments: Vec<String>,
    port: u16,
    folder: TempFolder,
    process: Process,
}

/// What is stored under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// How long it has to live; `None`: for ever.
    pub expires_in: Option<Duration>,
}

impl MemcachedServer {
    /// A plain server with nothing set.
    ///
    /// # Panics
    /// When there is no server to start, or it does not start.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A server with arguments, for example `["-m", "8"]`.
    ///
    /// # Panics
    /// When there is no server to start, or it does not start.
    pub async fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.into()).collect();
        let mut log = String::new();
        // A port can be taken between finding it free and using it.
        for _ in 0..5 {
            let folder = TempFolder::new();
            let port = port::free();
            let mut process = spawn(&arguments, port, &folder);
            if ready(port, &mut process).await {
                return Self {
                    arguments,
                    port,
                    folder,
                    process,
                };
            }
            log = process.log();
        }
        panic!("memcached does not start:\n{log}");
    }

    /// Its port on 127.0.0.1; it stays the same over restarts.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// `memcached://` and the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("memcached://{}", self.address())
    }

    /// A connection.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn client(&self) -> std::io::Result<MemcachedClient> {
        MemcachedClient::connect(self.address()).await
    }

    /// Runs one meta command over a connection of its own; what the server answers.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn command(&self, command: &str) -> String {
        let asked = async { self.client().await?.call(command).await };
        match timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => panic!("{command:?} on {self:?}: {error}"),
            Err(_) => panic!("{command:?} on {self:?}: no answer within {PATIENCE:?}"),
        }
    }

    /// A figure of `stats`.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn stat(&self, name: &str) -> u64 {
        let asked = async { self.client().await?.stats().await };
        let stats = match timeout(PATIENCE, asked).await {
            Ok(Ok(stats)) => stats,
            other => panic!("stats of {self:?}: {other:?}"),
        };
        let value = stats.get(name).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("{name} is no figure of stats"))
    }

    /// What is stored. The server passes over entries that are in use at that moment.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn entries(&self) -> Vec<Entry> {
        let asked = async {
            let mut client = self.client().await?;
            let lines = client.lines("lru_crawler metadump all").await?;
            let now = client.stats().await?;
            std::io::Result::Ok((lines, now))
        };
        let (lines, stats) = match timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => answer,
            other => panic!("metadump of {self:?}: {other:?}"),
        };
        let now: i64 = stats["time"].parse().expect("the time is a number");
        lines.iter().map(|line| entry(line, now)).collect()
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

    /// Starts it again on the same port, killing it if it runs. It is empty.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn restart(&mut self) {
        self.kill();
        self.process = spawn(&self.arguments, self.port, &self.folder);
        let started = ready(self.port, &mut self.process).await;
        assert!(
            started,
            "{self:?} does not start again:\n{}",
            self.process.log()
        );
    }
}

/// A line `key=.. exp=.. la=.. ..`. The key is in percent-encoding.
fn entry(line: &str, now: i64) -> Entry {
    let fields: HashMap<&str, &str> = line
        .split(' ')
        .filter_map(|field| field.split_once('='))
        .collect();
    let exp: i64 = fields["exp"].parse().expect("exp is a number");
    Entry {
        key: fields["key"].replace("%3A", ":").replace("%25", "%"),
        expires_in: u64::try_from(exp - now).ok().map(Duration::from_secs),
    }
}

fn binary() -> PathBuf {
    let found = variable(VARIABLE).map(PathBuf::from);
    found
        .or_else(|| builder::in_path("memcached"))
        .unwrap_or_else(|| {
            panic!("no memcached for this test: run scripts/servers, or set {VARIABLE} to one")
        })
}

fn spawn(arguments: &[String], port: u16, folder: &TempFolder) -> Process {
    // As root it must be told to stay so; other users may not say who they are, nor need they.
    let mut all: Vec<String> = ["-l", "127.0.0.1", "-U", "0", "-t", "2", "-u", "root", "-p"]
        .map(str::to_owned)
        .into();
    all.push(port.to_string());
    all.extend_from_slice(arguments);
    Process::spawn(&binary(), &all, folder.path())
}

/// Whether the process that was started, and not another one on its port, answers before long.
async fn ready(port: u16, process: &mut Process) -> bool {
    let deadline = Instant::now() + PATIENCE;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mine = process.id().to_string();
    while Instant::now() < deadline && process.is_alive() {
        let asked = async { MemcachedClient::connect(address).await?.stats().await };
        if let Ok(Ok(stats)) = timeout(Duration::from_secs(1), asked).await {
            return stats.get("pid") == Some(&mine);
        }
        sleep(Duration::from_millis(3)).await;
    }
    false
}

/// One plain server for all tests of a process that only need keys of their own.
#[derive(Clone, Debug)]
pub struct SharedMemcached {
    url: String,
}

impl SharedMemcached {
    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// The shared server: that of `TOLLGATE_TEST_MEMCACHED_URL`, else one that is started at the first
/// call. Nobody may stop or flush it.
///
/// # Panics
/// When there is no server to start, or it does not start.
pub async fn shared_memcached() -> &'static SharedMemcached {
    static SHARED: OnceCell<(SharedMemcached, Option<MemcachedServer>)> = OnceCell::const_new();
    let start = || async {
        if let Some(url) = variable("TOLLGATE_TEST_MEMCACHED_URL") {
            return (SharedMemcached { url }, None);
        }
        let server = MemcachedServer::start().await;
        let url = server.url();
        (SharedMemcached { url }, Some(server))
    };
    &SHARED.get_or_init(start).await.0
}
