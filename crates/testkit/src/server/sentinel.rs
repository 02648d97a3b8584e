//! A primary and a replica under one Sentinel.

use std::net::SocketAddr;
use std::time::Duration;

use super::tempfolder::TempFolder;
use super::{PATIENCE, Process, RedisBuilder, RedisClient, RedisServer};
use crate::{Reply, port, wait_until};

/// What the group is called.
const NAME: &str = "primary";

/// One Sentinel that alone decides, a primary, and a replica that it promotes about a second after
/// the primary is gone.
#[derive(Debug)]
pub struct Sentinel {
    servers: [RedisServer; 2],
    process: Process,
    port: u16,
    _folder: TempFolder,
}

impl Sentinel {
    /// All three, with the replica in step.
    ///
    /// # Panics
    /// When they do not come up.
    pub async fn start() -> Self {
        Self::start_with(RedisServer::builder()).await
    }

    /// All three, with these settings for the servers.
    ///
    /// # Panics
    /// When they do not come up.
    pub async fn start_with(builder: RedisBuilder) -> Self {
        let primary = builder.clone().start().await;
        let mut follower = builder.clone().replica_of(primary.port());
        if let Some(password) = &builder.password {
            follower = follower.set("masterauth", password);
        }
        let replica = follower.start().await;
        let linked = async || {
            let info = replica.command(&["INFO", "replication"]).await;
            info.text()
                .unwrap_or_default()
                .contains("master_link_status:up")
        };
        wait_until("the replica's first synchronisation", PATIENCE, linked).await;

        let (folder, port) = (TempFolder::new(), port::free());
        let mut lines = vec![
            format!("port {port}"),
            "bind 127.0.0.1".into(),
            format!("dir {}", folder.path().display()),
            format!("sentinel monitor {NAME} 127.0.0.1 {} 1", primary.port()),
            format!("sentinel down-after-milliseconds {NAME} 500"),
            format!("sentinel failover-timeout {NAME} 2000"),
        ];
        if let Some(password) = &builder.password {
            lines.push(format!("sentinel auth-pass {NAME} {password}"));
        }
        // A sentinel rewrites its file.
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, lines.join("\n")).expect("the temporary folder is writable");
        let arguments = [file.display().to_string(), "--sentinel".into()];
        let process = Process::spawn(&builder.program(), &arguments, folder.path());
        let sentinel = Self {
            servers: [primary, replica],
            process,
            port,
            _folder: folder,
        };
        let sees_both = async || {
            let replicas = sentinel.ask(&["SENTINEL", "REPLICAS", NAME]).await;
            matches!(replicas, Some(Reply::Array(replicas)) if replicas.len() == 1)
        };
        wait_until("the sentinel's view of the replica", PATIENCE, sees_both).await;
        sentinel
    }

    async fn ask(&self, words: &[&str]) -> Option<Reply> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let asked = async {
            let mut client = RedisClient::connect(address, None).await?;
            client.call(words).await
        };
        tokio::time::timeout(Duration::from_secs(1), asked)
            .await
            .ok()?
            .ok()
    }

    /// `redis+sentinel://`, the sentinel's address, and the name of the group as its path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{NAME}", self.port)
    }

    /// Where the sentinel listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The name of the group.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        NAME
    }

    /// The port of the server that is the primary now, as the sentinel has it.
    pub async fn primary_port(&self) -> Option<u16> {
        let reply = self
            .ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])
            .await?;
        match reply {
            Reply::Array(parts) => parts.get(1)?.text()?.parse().ok(),
            _ => None,
        }
    }

    /// The server that was started as primary, to kill or freeze.
    #[must_use]
    pub const fn first(&mut self) -> &mut RedisServer {
        &mut self.servers[0]
    }

    /// The server that was started as replica.
    #[must_use]
    pub const fn second(&mut self) -> &mut RedisServer {
        &mut self.servers[1]
    }

    /// Kills the primary and returns when the replica takes writes.
    ///
    /// # Panics
    /// When it is not promoted.
    pub async fn fail_over(&mut self) {
        self.servers[0].kill();
        let promoted = async || {
            let role = self.servers[1].command(&["ROLE"]).await;
            matches!(role, Reply::Array(parts) if parts.first().and_then(Reply::text).as_deref() == Some("master"))
                && self.primary_port().await == Some(self.servers[1].port())
        };
        wait_until("the replica's promotion", PATIENCE, promoted).await;
    }

    /// The sentinel itself, to kill or freeze.
    #[must_use]
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
