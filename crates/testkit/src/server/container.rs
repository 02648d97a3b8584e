//! A server in a container: a machine of its own, as far as the network goes.

use std::net::SocketAddr;

use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

use super::{Flavor, PATIENCE, RedisClient, variable};
use crate::{Reply, port, wait_until};

/// A server in a container. It is removed with this value, which belongs to the runtime that started
/// it; so no test may share one.
///
/// What it adds to a child process: freezing it freezes all of it at once, and what lies between is
/// a network. A frozen container still accepts connections (the engine does, for it).
#[derive(Debug)]
pub struct RedisContainer {
    container: ContainerAsync<GenericImage>,
    port: u16,
}

impl RedisContainer {
    /// The image of a flavor, if one was built: its variable names it, for example
    /// `TOLLGATE_REDIS_IMAGE` (`name:tag`). `scripts/images` builds them where an engine answers.
    #[must_use]
    pub fn image(flavor: Flavor) -> Option<String> {
        variable(&flavor.variable().replace("_SERVER", "_IMAGE"))
    }

    /// Starts one, and returns when it answers. `None` where there is no image, because no engine
    /// answered when they were to be built: a test then uses a child process.
    ///
    /// # Panics
    /// When there is an image, and it does not start.
    pub async fn start(flavor: Flavor) -> Option<Self> {
        let image = Self::image(flavor)?;
        let (name, tag) = image.rsplit_once(':').unwrap_or((&image, "latest"));
        // A port that the engine chooses is another one after a restart.
        let port = port::free();
        let container = GenericImage::new(name, tag)
            .with_wait_for(WaitFor::message_on_stdout("Ready to accept connections"))
            .with_mapped_port(port, 6379.tcp())
            .with_cmd(["--save", "", "--appendonly", "no", "--protected-mode", "no"])
            .start()
            .await
            .unwrap_or_else(|error| panic!("{image} does not start: {error}"));
        let server = Self { container, port };
        server.ready().await;
        Some(server)
    }

    async fn ready(&self) {
        let answers = async || matches!(self.command(&["PING"]).await, Some(Reply::Text(_)));
        wait_until("an answer from the container", PATIENCE, answers).await;
    }

    /// Where it listens; the same over restarts.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// `redis://` and the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Runs one command; `None` if nobody answers within a second.
    pub async fn command(&self, words: &[&str]) -> Option<Reply> {
        let asked = async {
            let mut client = RedisClient::connect(self.address(), None).await?;
            client.call(words).await
        };
        let limit = std::time::Duration::from_secs(1);
        tokio::time::timeout(limit, asked).await.ok()?.ok()
    }

    /// Freezes it.
    ///
    /// # Panics
    /// When the engine does not do it.
    pub async fn pause(&self) {
        self.container.pause().await.expect("the engine pauses it");
    }

    /// Ends a freeze.
    ///
    /// # Panics
    /// When the engine does not do it.
    pub async fn resume(&self) {
        self.container
            .unpause()
            .await
            .expect("the engine resumes it");
    }

    /// Kills it.
    ///
    /// # Panics
    /// When the engine does not do it.
    pub async fn kill(&self) {
        let now = Some(0);
        self.container
            .stop_with_timeout(now)
            .await
            .expect("the engine kills it");
    }

    /// Starts it again, on the same port; empty.
    ///
    /// # Panics
    /// When the engine does not do it, or nothing answers.
    pub async fn restart(&self) {
        self.container.start().await.expect("the engine starts it");
        self.ready().await;
    }
}
