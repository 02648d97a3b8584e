//! The traces of leases.

use tollgate_core::LeaseBackend;
use tollgate_core::trace::Trace;

/// Runs the traces of leases on a store that holds them; panics at the first difference.
///
/// # Panics
/// When an answer is not the right one, or the store fails.
pub async fn vectors<B: LeaseBackend>(backend: &B) {
    let file = include_str!("../../vectors/leases.jsonl");
    let traces = Trace::parse_lines(file).expect("the vectors are traces");
    assert_eq!(traces.len(), 120, "the vector file was cut");
    for trace in &traces {
        let answers = trace.run_leases(backend).await;
        let answers = answers.unwrap_or_else(|error| panic!("{}: {error}", trace.name()));
        assert_eq!(trace.differences(&answers), [], "{}", trace.name());
    }
}
