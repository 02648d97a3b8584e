//! What every backend must answer.

use tollgate_dynamodb::MAX_LOG;
use tollgate_testkit::conformance::Options;
use tollgate_testkit::{conformance, lease_conformance};

use super::{backend, shared};

const BOUNDED: Options = Options {
    remembers_refusals: false,
    largest_log: Some(MAX_LOG),
};

conformance!(dynamodb, backend(&shared().await).await, BOUNDED);
lease_conformance!(leases, backend(&shared().await).await);
