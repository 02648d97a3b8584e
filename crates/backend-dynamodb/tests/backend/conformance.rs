//! What every backend must answer.

use tollgate_testkit::conformance;

use super::{backend, shared};

conformance!(dynamodb, backend(&shared().await).await);

#[tokio::test]
async fn leases_answer_as_the_traces_say() {
    conformance::lease_vectors(&backend(&shared().await).await).await;
}
