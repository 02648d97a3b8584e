//! Every rule of the conformance suite, on every server that Tollgate supports.
//!
//! Each flavour is one server for all of its cases, which count under names of their own.

use tokio::sync::OnceCell;
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Flavor, RedisServer, conformance, lease_conformance};

/// A backend on the server of a flavour, which is started once and ends with the process. Each case
/// runs on a runtime of its own, so each has a connection of its own.
async fn backend(flavor: Flavor, query: &str) -> RedisBackend {
    static SERVERS: [OnceCell<RedisServer>; 5] = [const { OnceCell::const_new() }; 5];
    let index = match flavor {
        Flavor::Redis => 0,
        Flavor::Redis62 => 1,
        Flavor::Redis8 => 2,
        Flavor::Valkey => 3,
        Flavor::Valkey8 => 4,
    };
    let server = SERVERS[index]
        .get_or_init(|| RedisServer::builder().flavor(flavor).start())
        .await;
    RedisBackend::builder(format!("{}{query}", server.url()))
        // The cases are about answers, and the machine may be busy.
        .timeout(std::time::Duration::from_secs(20))
        .connect()
        .await
        .expect("the server is up")
}

conformance!(redis_7, backend(Flavor::Redis, "").await);
conformance!(
    redis_7_resp3,
    backend(Flavor::Redis, "?protocol=resp3").await
);
conformance!(redis_6_2, backend(Flavor::Redis62, "").await);
conformance!(redis_8, backend(Flavor::Redis8, "").await);
conformance!(valkey_9, backend(Flavor::Valkey, "").await);
conformance!(valkey_8, backend(Flavor::Valkey8, "").await);

lease_conformance!(leases_redis_7, backend(Flavor::Redis, "").await);
lease_conformance!(
    leases_redis_7_resp3,
    backend(Flavor::Redis, "?protocol=resp3").await
);
lease_conformance!(leases_redis_6_2, backend(Flavor::Redis62, "").await);
lease_conformance!(leases_redis_8, backend(Flavor::Redis8, "").await);
lease_conformance!(leases_valkey_9, backend(Flavor::Valkey, "").await);
lease_conformance!(leases_valkey_8, backend(Flavor::Valkey8, "").await);
