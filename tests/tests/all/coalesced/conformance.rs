//! Every rule of the conformance suite through `Coalesced`, over each store.

use tollgate::{Coalesced, SharedBackend};
use tollgate_dynamodb::MAX_LOG;
use tollgate_testkit::conformance::Options;
use tollgate_testkit::{conformance, shared_memcached, shared_redis};

use crate::support::{connect, dynamodb};

async fn over(url: &str) -> Coalesced<SharedBackend> {
    Coalesced::new(connect(url).await)
}

const BOUNDED: Options = Options {
    remembers_refusals: false,
    largest_log: Some(MAX_LOG),
};

conformance!(over_redis, over(shared_redis().await.url()).await);
conformance!(over_memcached, over(shared_memcached().await.url()).await);
conformance!(over_dynamodb, over(&dynamodb().await).await, BOUNDED);
