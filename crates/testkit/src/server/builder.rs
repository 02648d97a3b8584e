//! How a server is to be started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::tempfolder::TempFolder;
use super::{PATIENCE, Process, RedisClient, RedisServer, variable};
use crate::{Reply, port};

/// Which server, by what the test needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// `TOLLGATE_REDIS_SERVER`, else `redis-server` or `valkey-server` in `PATH`: whatever the
    /// system has.
    #[default]
    Redis,
    /// `TOLLGATE_REDIS62_SERVER`: the oldest that is supported.
    Redis62,
    /// `TOLLGATE_REDIS8_SERVER`.
    Redis8,
    /// `TOLLGATE_VALKEY_SERVER`.
    Valkey,
    /// `TOLLGATE_VALKEY8_SERVER`.
    Valkey8,
}

impl Flavor {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Redis,
        Self::Redis62,
        Self::Redis8,
        Self::Valkey,
        Self::Valkey8,
    ];

    /// The variable that names the binary.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Redis => "TOLLGATE_REDIS_SERVER",
            Self::Redis62 => "TOLLGATE_REDIS62_SERVER",
            Self::Redis8 => "TOLLGATE_REDIS8_SERVER",
            Self::Valkey => "TOLLGATE_VALKEY_SERVER",
            Self::Valkey8 => "TOLLGATE_VALKEY8_SERVER",
        }
    }

    /// The binary, if there is one. `None` is for tests that walk over all flavors that a machine
    /// has; on CI all must be there, so it is a panic.
    ///
    /// # Panics
    /// With `CI` set, when there is none.
    #[must_use]
    pub fn binary(self) -> Option<PathBuf> {
        let found = variable(self.variable()).map(PathBuf::from).or_else(|| {
            let names = ["redis-server", "valkey-server"];
            names
                .iter()
                .filter(|_| self == Self::Redis)
                .find_map(|name| in_path(name))
        });
        let on_ci = variable("CI").is_some_and(|ci| ci != "0" && ci != "false");
        assert!(
            found.is_some() || !on_ci,
            "{} is not set, which CI must not pass over: run scripts/servers",
            self.variable()
        );
        found
    }
}

pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Settings of a server; [`RedisServer::builder`] makes one.
#[derive(Clone, Debug, Default)]
pub struct RedisBuilder {
    flavor: Flavor,
    pub(super) password: Option<String>,
    pub(super) unix_socket: bool,
    tls: bool,
    settings: Vec<String>,
}

impl RedisBuilder {
    /// Another server than whatever the system has.
    #[must_use]
    pub const fn flavor(mut self, flavor: Flavor) -> Self {
        self.flavor = flavor;
        self
    }

    /// Clients have to give this password (as the user `default`).
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self.set("requirepass", password)
    }

    /// Another user: its name and its ACL rules, for example `on >secret ~* &* +@all`.
    #[must_use]
    pub fn user(mut self, name: &str, rules: &str) -> Self {
        self.settings.extend(["--user".into(), name.into()]);
        self.settings.extend(rules.split(' ').map(str::to_owned));
        self
    }

    /// Listens on a unix socket besides.
    #[must_use]
    pub const fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Listens on a port with TLS besides, with a fresh certificate for `localhost`. Needs feature
    /// `tls`, and a server that was built with TLS: the distribution's is.
    #[cfg(feature = "tls")]
    #[must_use]
    pub const fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// A line of the configuration, for example `("maxmemory", "2mb")`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.extend([format!("--{name}"), value.into()]);
        self
    }

    /// Follows the server on this port of 127.0.0.1.
    #[must_use]
    pub fn replica_of(mut self, port: u16) -> Self {
        let words = ["--replicaof", "127.0.0.1"].map(str::to_owned);
        self.settings.extend(words);
        self.settings.push(port.to_string());
        self
    }

    /// Starts it, and returns when it answers.
    ///
    /// # Panics
    /// When there is no such server on this machine, or it does not start.
    pub async fn start(self) -> RedisServer {
        let mut log = String::new();
        // A port can be taken between finding it free and using it.
        for _ in 0..5 {
            let folder = TempFolder::new();
            let port = port::free();
            let tls_port = self.tls.then(port::free);
            #[cfg(feature = "tls")]
            if self.tls {
                super::tls::write_certificates(folder.path());
            }
            let mut process = self.spawn(port, tls_port, folder.path());
            if ready(&self, port, &mut process).await {
                return RedisServer {
                    builder: self,
                    port,
                    tls_port,
                    folder,
                    process,
                };
            }
            log = process.log();
        }
        panic!("{:?} does not start:\n{log}", self.flavor);
    }

    pub(super) fn url_of(&self, port: u16) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{port}"),
            None => format!("redis://127.0.0.1:{port}"),
        }
    }

    pub(super) fn spawn(&self, port: u16, tls_port: Option<u16>, folder: &Path) -> Process {
        let mut arguments: Vec<String> =
            ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
                .map(str::to_owned)
                .into();
        let path = |name: &str| folder.join(name).display().to_string();
        arguments.extend(["--port".into(), port.to_string(), "--dir".into(), path("")]);
        // Without, the first synchronisation of a replica waits 5 s for others.
        arguments.extend(["--repl-diskless-sync-delay".into(), "0".into()]);
        if self.unix_socket {
            arguments.extend(["--unixsocket".into(), path("redis.sock")]);
        }
        if let Some(port) = tls_port {
            let options = [
                ("--tls-port", port.to_string()),
                ("--tls-cert-file", path("cert.pem")),
                ("--tls-key-file", path("key.pem")),
                ("--tls-ca-cert-file", path("ca.pem")),
                ("--tls-auth-clients", "no".into()),
            ];
            arguments.extend(
                options
                    .into_iter()
                    .flat_map(|(name, v)| [name.to_owned(), v]),
            );
        }
        arguments.extend(self.settings.iter().cloned());
        Process::spawn(&self.program(), &arguments, folder)
    }

    pub(super) fn program(&self) -> PathBuf {
        self.flavor.binary().unwrap_or_else(|| {
            panic!(
                "no server for this test: run scripts/servers, or set {} to the path of one",
                self.flavor.variable()
            )
        })
    }
}

/// Whether the process that was started, and not another one on its port, answers before long.
pub(super) async fn ready(builder: &RedisBuilder, port: u16, process: &mut Process) -> bool {
    let deadline = Instant::now() + PATIENCE;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mine = format!("process_id:{}", process.id());
    while Instant::now() < deadline && process.is_alive() {
        let asked = async {
            let mut client = RedisClient::connect(address, builder.password.as_deref()).await?;
            client.call(&["INFO", "server"]).await
        };
        if let Ok(Ok(Reply::Bulk(info))) = timeout(Duration::from_secs(1), asked).await {
            let info = String::from_utf8_lossy(&info).into_owned();
            return info.lines().any(|line| line.trim_end() == mine);
        }
        sleep(Duration::from_millis(3)).await;
    }
    false
}
