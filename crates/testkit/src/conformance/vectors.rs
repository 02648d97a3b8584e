//! The traces, every step of which has one right answer.

use tollgate_core::CounterBackend;
use tollgate_core::trace::{Answer, RunError, Trace};

use super::Lab;

/// Each runs one file: 120 traces.
macro_rules! files {
    ($($case:ident = $file:literal;)*) => { $(
        #[expect(missing_docs, reason = "the name says it")]
        pub async fn $case<B: CounterBackend>(lab: &Lab<B>) {
            run_file(lab, include_str!(concat!("../../vectors/", $file))).await;
        }
    )* };
}

files! {
    vectors_token_bucket = "token_bucket.jsonl";
    vectors_sliding_window = "sliding_window.jsonl";
    vectors_fixed_window = "fixed_window.jsonl";
    vectors_sliding_log = "sliding_log.jsonl";
    vectors_multi = "multi.jsonl";
}

async fn run_file<B: CounterBackend>(lab: &Lab<B>, file: &str) {
    let traces = Trace::parse_lines(file).expect("the vectors are traces");
    assert_eq!(traces.len(), 120, "a vector file was cut");
    let mut ran = 0;
    let mut wrong = Vec::new();
    for trace in &traces {
        if lab.options.remembers_refusals && trace.clock_moves_back() {
            continue;
        }
        let differences = if lab.options.remembers_refusals {
            remembering(lab, trace).await
        } else {
            exactly(lab, trace).await
        };
        lab.count(trace.steps().len() as u64);
        ran += 1;
        let differences = differences.unwrap_or_else(|error| vec![error.to_string()]);
        wrong.extend(
            differences
                .iter()
                .map(|text| format!("{}: {text}", trace.name())),
        );
    }
    assert!(ran >= 80, "only {ran} traces ran");
    assert!(
        wrong.is_empty(),
        "{} differences in {ran} traces, the first of them:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
}

async fn exactly<B: CounterBackend>(lab: &Lab<B>, trace: &Trace) -> Result<Vec<String>, RunError> {
    let answers = trace.run(&*lab.backend).await?;
    let differences = trace.differences(&answers);
    Ok(differences.iter().map(ToString::to_string).collect())
}

/// The same `allowed` and `granted`, and a wait that is never shorter than the true one.
async fn remembering<B: CounterBackend>(
    lab: &Lab<B>,
    trace: &Trace,
) -> Result<Vec<String>, RunError> {
    let decisions = trace.decisions(&*lab.backend).await?;
    let mut wrong = Vec::new();
    for (number, (step, decision)) in trace.steps().iter().zip(&decisions).enumerate() {
        let right = match step.expect.as_ref() {
            Some(Answer::Counted(one)) => Some((one.allowed, one.granted, one.retry_after_us)),
            Some(Answer::Several(all)) => Some((all.allowed, all.granted, all.retry_after_us)),
            _ => None,
        };
        let got = decision.as_ref().map(|decision| {
            let wait = decision.retry_after().map(|wait| wait.as_micros() as u64);
            (decision.allowed(), decision.granted(), wait)
        });
        let same = match (right, got) {
            (Some(right), Some(got)) => {
                (right.0, right.1, right.2.is_some()) == (got.0, got.1, got.2.is_some())
                    && got.2 >= right.2
                    && decision.as_ref().is_some_and(|d| d.origin().is_enforced())
            }
            (None, None) => true,
            _ => false,
        };
        if !same {
            wrong.push(format!(
                "step {number}: expected (allowed, granted, wait of at least) {right:?}, got {got:?}"
            ));
        }
    }
    Ok(wrong)
}
