//! Every rule of the conformance suite.

use std::time::Duration;

use tokio::sync::OnceCell;
use tollgate_memcached::MemcachedBackend;
use tollgate_testkit::{MemcachedServer, conformance, shared_memcached};

/// A backend on the shared server. Each case runs on a runtime of its own, so each has connections of
/// its own.
async fn one(query: &str) -> MemcachedBackend {
    connect(&format!("{}{query}", shared_memcached().await.url())).await
}

/// A backend on three servers, which start once and end with the process.
async fn three() -> MemcachedBackend {
    static SERVERS: OnceCell<[MemcachedServer; 3]> = OnceCell::const_new();
    let start = || async {
        [
            MemcachedServer::start().await,
            MemcachedServer::start().await,
            MemcachedServer::start().await,
        ]
    };
    let servers = SERVERS.get_or_init(start).await;
    let addresses = servers
        .each_ref()
        .map(|server| server.address().to_string());
    connect(&format!("memcached://{}", addresses.join(","))).await
}

async fn connect(url: &str) -> MemcachedBackend {
    MemcachedBackend::builder(url)
        // The cases are about answers, and the machine may be busy.
        .timeout(Duration::from_secs(20))
        .connect_timeout(Duration::from_secs(20))
        .connect()
        .await
        .expect("the server is up")
}

conformance!(one_server, one("").await);
conformance!(without_memory, one("?memory=0").await);
conformance!(with_one_connection, one("?pool=1").await);
conformance!(three_servers, three().await);
