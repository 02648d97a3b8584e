//! `tollgate replay`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::process::{program, run, run_with_input, text};

const BASE: u64 = 1_700_000_000_000_000;

/// A trace of a fixed window of one, whose second step expects `remaining`.
pub(crate) fn trace(name: &str, remaining: u64) -> String {
    format!(
        r#"{{"name":"{name}","quota":{{"algorithm":"fixed_window","limit":1,"period_us":1000000}},"steps":[{{"at_us":{BASE},"op":"acquire","key":"a","cost":1,"expect":{{"allowed":true,"granted":1,"remaining":0,"retry_after_us":null,"reset_after_us":1000000}}}},{{"at_us":{BASE},"op":"acquire","key":"a","cost":1,"expect":{{"allowed":false,"granted":0,"remaining":{remaining},"retry_after_us":1000000,"reset_after_us":1000000}}}},{{"at_us":{BASE},"op":"reset","key":"a","expect":null}}]}}"#
    ) + "\n"
}

const LEASES: &str = r#"{"name":"slots","slots":1,"ttl_us":1000,"steps":[{"at_us":1,"op":"acquire","key":"a","holder":"h","expect":{"ok":true,"in_use":1}}]}
"#;

const ARGUMENTS: [&str; 4] = ["replay", "--backend", "memory://", "-"];

#[test]
fn each_trace_is_answered_by_one_line() {
    let output = run_with_input(
        &ARGUMENTS,
        &(trace("x", 0) + "\n" + LEASES + &trace("x", 7)),
    );
    let answers = r#"{"name":"x","answers":[{"allowed":true,"granted":1,"remaining":0,"retry_after_us":null,"reset_after_us":1000000},{"allowed":false,"granted":0,"remaining":0,"retry_after_us":1000000,"reset_after_us":1000000},null]}"#;
    let lines: Vec<_> = text(&output.stdout).lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        (lines[0], lines[2]),
        (answers, answers),
        "each from nothing, in order"
    );
    assert_eq!(
        lines[1],
        r#"{"name":"slots","answers":[{"ok":true,"in_use":1}]}"#
    );
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

#[test]
fn check_prints_what_differs_and_the_sums() {
    let check = ["replay", "--check", "--backend", "memory://", "-"];
    let right = run_with_input(&check, &(trace("a", 0) + &trace("b", 0)));
    assert_eq!(text(&right.stdout), "2 traces, 6 steps, 0 differences\n");
    assert_eq!(right.status.code(), Some(0));

    let wrong = run_with_input(&check, &(trace("a", 0) + LEASES + &trace("b", 5)));
    let lines: Vec<_> = text(&wrong.stdout).lines().collect();
    assert_eq!(lines.len(), 2);
    let difference: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(
        (&difference["name"], &difference["step"]),
        (&"b".into(), &1.into())
    );
    assert_eq!(
        (
            &difference["expect"]["remaining"],
            &difference["got"]["remaining"]
        ),
        (&5.into(), &0.into())
    );
    assert_eq!(lines[1], "3 traces, 7 steps, 1 differences");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(wrong.stderr.is_empty(), "{}", text(&wrong.stderr));
}

#[test]
fn files_and_standard_input_go_together() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("replay-{}.jsonl", std::process::id()));
    std::fs::write(&path, trace("file", 0)).unwrap();
    let file = path.to_str().unwrap();
    let output = run_with_input(
        &["replay", "--backend", "memory://", file, "-", file],
        &trace("stdin", 0),
    );
    let names: Vec<_> = text(&output.stdout)
        .lines()
        .map(|line| line.split('"').nth(3).unwrap())
        .collect();
    assert_eq!(names, ["file", "stdin", "file"]);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_cannot_be_run_is_2_and_runs_nothing() {
    let quota = r#"{"name":"q","quota":{"algorithm":"token_bucket","limit":0,"period_us":1000000},"steps":[]}"#;
    for input in [quota, "nonsense", "{}"] {
        let output = run_with_input(&ARGUMENTS, &(trace("a", 0) + input));
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        assert!(
            text(&output.stderr).contains("-, line 2: "),
            "{}",
            text(&output.stderr)
        );
    }
    assert_eq!(
        run(&["replay", "--backend", "memory://", "/nowhere.jsonl"])
            .status
            .code(),
        Some(2)
    );
    assert_eq!(
        run(&["replay", "--backend", "memory://"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let mut child = program()
        .args(ARGUMENTS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let writer = std::thread::spawn(move || {
        for _ in 0..2_000 {
            stdin.write_all(trace("x", 0).as_bytes()).unwrap();
        }
    });
    writer.join().unwrap();
    stdout.read_line(&mut String::new()).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn a_step_that_expects_nothing_is_told_as_such() {
    let check = ["replay", "--check", "--backend", "memory://", "-"];
    let bare = format!(
        r#"{{"name":"bare","quota":{{"algorithm":"fixed_window","limit":1,"period_us":1000}},"steps":[{{"at_us":{BASE},"op":"reset","key":"a"}}]}}"#
    );
    let output = run_with_input(&check, &bare);
    assert_eq!(
        text(&output.stdout),
        "{\"name\":\"bare\",\"step\":0,\"expect\":null,\"got\":null,\"why\":\"the step has no \\\"expect\\\"\"}\n\
         1 traces, 1 steps, 1 differences\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let wrong = run_with_input(&check, &trace("wrong", 5));
    assert!(!text(&wrong.stdout).contains("why"));
    assert_eq!(run_with_input(&check, "").status.code(), Some(0));
}

#[test]
fn a_line_that_is_no_trace_is_told_in_words() {
    for (input, message) in [
        ("{\"name\": \"a\",\n \"steps\": []}", "a trace is one line"),
        (
            r#"{"name":"a","quota":"10/s","steps":[]}"#,
            "expected an object with algorithm, limit, period_us and maybe burst",
        ),
        ("5", "expected a trace: an object with name"),
        (
            r#"{"name":"a","quota":{"algorithm":"fixed_window","limit":1,"period_us":1000},"steps":[7]}"#,
            "expected a step: an object with at_us",
        ),
    ] {
        let output = run_with_input(&ARGUMENTS, input);
        assert_eq!(output.status.code(), Some(2));
        let told = text(&output.stderr);
        assert!(
            told.contains("-, line 1: ") && told.contains(message),
            "{told}"
        );
    }
}
