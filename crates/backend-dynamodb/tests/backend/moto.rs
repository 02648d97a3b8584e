//! The traces on another implementation of DynamoDB, by other people in another language.
//!
//! One request at a time: it checks the condition and writes in two steps, so that of concurrent
//! writers more get through than may (seen: 110 of 100). What else differs is in
//! `docs/dynamodb.md`.

use tollgate_core::trace::Trace;
use tollgate_dynamodb::{DynamoBackend, describe_table};
use tollgate_testkit::{DynamoFlavor, DynamoServer};

use super::{PATIENCE, table, url};

/// Every step of every `nth` trace of a file.
async fn run(backend: &DynamoBackend, file: &str, nth: usize) -> usize {
    let traces = Trace::parse_lines(file).unwrap();
    let mut steps = 0;
    for trace in traces.iter().step_by(nth) {
        let answers = trace.run(backend).await.unwrap();
        assert_eq!(trace.differences(&answers), [], "{}", trace.name());
        steps += trace.steps().len();
    }
    steps
}

#[tokio::test]
async fn all_kinds_of_traces_pass_on_another_implementation() {
    let server = DynamoServer::start(DynamoFlavor::Moto).await;
    table(&server.endpoint()).await;
    let described = describe_table(&url(&server.endpoint()), PATIENCE)
        .await
        .unwrap();
    assert!(described.problems.is_empty(), "{described}");
    let builder = DynamoBackend::builder(url(&server.endpoint())).timeout(PATIENCE);
    let backend = builder.connect().await.unwrap();
    // All of them with TOLLGATE_TEST_ALL set: it answers some 300 requests a second.
    let nth = if std::env::var_os("TOLLGATE_TEST_ALL").is_some() {
        1
    } else {
        12
    };
    let mut steps = 0;
    for file in [
        include_str!("../../../testkit/vectors/token_bucket.jsonl"),
        include_str!("../../../testkit/vectors/sliding_window.jsonl"),
        include_str!("../../../testkit/vectors/fixed_window.jsonl"),
        include_str!("../../../testkit/vectors/sliding_log.jsonl"),
        include_str!("../../../testkit/vectors/multi.jsonl"),
    ] {
        steps += run(&backend, file, nth).await;
    }
    assert!(steps > 1_000, "only {steps} steps ran");
    println!("{steps} steps, no difference");
    let leases = Trace::parse_lines(include_str!("../../../testkit/vectors/leases.jsonl")).unwrap();
    for trace in leases.iter().step_by(nth) {
        let answers = trace.run_leases(&backend).await.unwrap();
        assert_eq!(trace.differences(&answers), [], "{}", trace.name());
    }
}
