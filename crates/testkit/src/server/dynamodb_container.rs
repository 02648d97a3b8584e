//! A DynamoDB in a container.

use std::net::SocketAddr;

use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

use super::dynamodb::answers;
use super::{PATIENCE, variable};
use crate::{port, wait_until};

/// A `dynoxide` in a container; like [`RedisContainer`](super::RedisContainer) it belongs to the
/// runtime that started it, and goes with its value. What was written is there again after a restart.
#[derive(Debug)]
pub struct DynamoContainer {
    container: ContainerAsync<GenericImage>,
    port: u16,
}

impl DynamoContainer {
    /// The image, if one was built: `TOLLGATE_DYNAMODB_IMAGE` (`name:tag`).
    #[must_use]
    pub fn image() -> Option<String> {
        variable("TOLLGATE_DYNAMODB_IMAGE")
    }

    /// Starts one, and returns when it answers. `None` where there is no image.
    ///
    /// # Panics
    /// When there is an image, and it does not start.
    pub async fn start() -> Option<Self> {
        let image = Self::image()?;
        let (name, tag) = image.rsplit_once(':').unwrap_or((&image, "latest"));
        // A port that the engine chooses is another one after a restart.
        let port = port::free();
        let container = GenericImage::new(name, tag)
            .with_wait_for(WaitFor::Nothing)
            .with_mapped_port(port, 8000.tcp())
            .with_cmd([
                "serve",
                "--host",
                "0.0.0.0",
                "--port",
                "8000",
                "--db-path",
                "/data/db",
            ])
            .start()
            .await
            .unwrap_or_else(|error| panic!("{image} does not start: {error}"));
        let server = Self { container, port };
        server.ready().await;
        Some(server)
    }

    async fn ready(&self) {
        let limit = std::time::Duration::from_secs(1);
        let ready = async || {
            let asked = answers(self.address());
            tokio::time::timeout(limit, asked).await == Ok(true)
        };
        wait_until("an answer from the container", PATIENCE, ready).await;
    }

    /// Where it listens; the same over restarts.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// `http://` and the address.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
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
        let resumed = self.container.unpause().await;
        resumed.expect("the engine resumes it");
    }

    /// Kills it.
    ///
    /// # Panics
    /// When the engine does not do it.
    pub async fn kill(&self) {
        let killed = self.container.stop_with_timeout(Some(0)).await;
        killed.expect("the engine kills it");
    }

    /// Starts it again, on the same port.
    ///
    /// # Panics
    /// When the engine does not do it, or nothing answers.
    pub async fn restart(&self) {
        self.container.start().await.expect("the engine starts it");
        self.ready().await;
    }
}
