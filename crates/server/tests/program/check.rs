//! `tollgate check`.

use serde_json::{Value, json};

use crate::process::{program, run, text};

fn check(arguments: &[&str]) -> (i32, Value) {
    let mut all = vec!["check", "--backend", "memory://", "--key", "alice"];
    all.extend(arguments);
    let output = run(&all);
    let printed = text(&output.stdout);
    assert!(printed.is_empty() || printed.ends_with('\n') && printed.lines().count() == 1);
    let value = serde_json::from_str(printed).unwrap_or_else(|_| json!(text(&output.stderr)));
    (output.status.code().unwrap(), value)
}

#[test]
fn one_decision_is_one_line_of_json() {
    let output = run(&[
        "check",
        "--backend",
        "memory://",
        "--key",
        "a",
        "--quota",
        "5/10s",
    ]);
    assert_eq!(
        text(&output.stdout),
        "{\"allowed\":true,\"granted\":1,\"remaining\":4,\"limit\":5,\"retry_after_us\":null,\
         \"reset_after_us\":2000000,\"origin\":\"shared\"}\n"
    );
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn a_refusal_is_1() {
    let (code, answer) = check(&["--quota", "5/10s", "--cost", "6"]);
    assert_eq!(code, 1);
    assert_eq!(
        answer,
        json!({"allowed": false, "granted": 0, "remaining": 5, "limit": 5,
               "retry_after_us": null, "reset_after_us": 0, "origin": "shared"})
    );
}

#[test]
fn a_peek_charges_nothing_and_a_reset_says_nothing() {
    let (code, answer) = check(&["--quota", "5/10s burst=7", "--peek"]);
    assert_eq!(
        (code, &answer["granted"], &answer["remaining"]),
        (0, &json!(0), &json!(7))
    );
    assert_eq!(answer["limit"], 7);
    assert_eq!(check(&["--quota", "5/10s", "--reset"]), (0, Value::Null));
    assert_eq!(check(&["--quota", "5/10s", "--reset", "--peek"]).0, 2);
}

#[test]
fn several_quotas_answer_each() {
    let (code, answer) = check(&["--quota", "5/10s, 100/h", "--cost", "6"]);
    assert_eq!(code, 1);
    let one = |allowed: bool, limit: u64| {
        json!({"allowed": allowed, "granted": 0, "remaining": limit, "limit": limit,
               "retry_after_us": null, "reset_after_us": 0})
    };
    assert_eq!(
        answer,
        json!({"allowed": false, "retry_after_us": null, "origin": "shared",
               "each": [one(false, 5), one(true, 100)]})
    );
}

#[test]
fn b33_a_negative_cost_is_a_clear_error() {
    for cost in [&["--cost", "-1"][..], &["--cost=-1"], &["--cost", "-5"]] {
        let mut all = vec!["--quota", "5/60s"];
        all.extend(cost);
        let (code, message) = check(&all);
        assert_eq!(code, 2, "{cost:?}");
        let message = message.as_str().unwrap();
        let value = cost.last().unwrap().trim_start_matches("--cost=");
        assert!(
            message.contains("--cost") && message.contains(value),
            "it says what is wrong: {message}"
        );
    }
}

#[test]
fn what_cannot_be_asked_is_2() {
    for arguments in [
        &["--quota", "5"][..],
        &["--quota", "0/s"],
        &["--quota", ""],
        &["--quota", "5/s", "--cost", "0"],
        &["--quota", "5/s", "--cost", "-1"],
        &["--quota", "5/s", "--policy", "na\u{ef}ve"],
        &["--quota", "5/s", "--timeout", "0s"],
        &["--quota", "5/s", "--reset", "--cost", "3"],
        &["--quota", "5/s", "--peek", "--reset"],
        &[],
    ] {
        assert_eq!(check(arguments).0, 2, "{arguments:?}");
    }
    let (_, message) = check(&["--quota", "4503599627370497/s"]);
    assert!(
        message
            .as_str()
            .unwrap()
            .contains("--quota: \"4503599627370497/s\": limit: "),
        "{message}"
    );
}

#[test]
fn wrong_arguments_are_told_by_their_flag_and_value() {
    let line = |more: &[&str]| {
        let mut all = vec!["check", "--backend", "memory://", "--key", "a"];
        all.extend(more);
        let output = run(&all);
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        text(&output.stderr).to_owned()
    };
    for (arguments, message) in [
        (
            &["--quota", "1/s", "--cost", "-1"][..],
            "--cost: \"-1\": write a whole number",
        ),
        (
            &["--quota", "1/s", "--cost", "many"],
            "--cost: \"many\": write a whole number",
        ),
        (
            &["--quota", "1/s", "--timeout", "-1s"],
            "--timeout: \"-1s\": write a whole number and a unit",
        ),
        (
            &["--quota", "1/s, 10/x"],
            "--quota: \"1/s, 10/x\": quota 2 of 2: \"x\" is no unit of time",
        ),
        (
            &["--quota", "-1/s"],
            "--quota: \"-1/s\": \"-1\" is no limit",
        ),
        (&["--quota", "1/s", "--policy", ""], "--policy: "),
        (
            &[],
            "--quota: it is not given; write --quota or set TOLLGATE_QUOTA",
        ),
    ] {
        let told = line(arguments);
        assert!(
            told.contains(message) && told.lines().count() == 1,
            "{arguments:?}: {told}"
        );
    }
    let told = run(&["check", "--quota", "1/s", "--key", "a"]);
    assert_eq!(told.status.code(), Some(2));
    assert!(
        text(&told.stderr)
            .contains("--backend: it is not given; write --backend or set TOLLGATE_BACKEND")
    );
    // What is missing is told at once.
    let told = run(&["check", "--key", "a"]);
    let told = text(&told.stderr);
    assert!(
        told.contains("--backend: it is not given") && told.contains("--quota: it is not given"),
        "{told}"
    );
}

#[test]
fn the_environment_stands_for_the_flags() {
    let check = |environment: &[(&str, &str)], flags: &[&str]| {
        let mut program = program();
        program.args(["check", "--key", "-a"]).args(flags);
        let output = program.envs(environment.iter().copied()).output().unwrap();
        (
            output.status.code(),
            text(&output.stdout).to_owned(),
            text(&output.stderr).to_owned(),
        )
    };
    let backend = ("TOLLGATE_BACKEND", "memory://");
    let (code, answer, _) = check(
        &[backend, ("TOLLGATE_QUOTA", "7/s"), ("TOLLGATE_PREFIX", "")],
        &[],
    );
    assert!(
        code == Some(0) && answer.contains("\"limit\":7"),
        "{answer}"
    );
    let (_, answer, _) = check(&[backend, ("TOLLGATE_QUOTA", "7/s")], &["--quota", "8/s"]);
    assert!(answer.contains("\"limit\":8"), "{answer}");
    // An empty variable is none.
    let (code, _, told) = check(&[backend, ("TOLLGATE_QUOTA", "")], &[]);
    assert!(
        code == Some(2) && told.contains("--quota: it is not given"),
        "{told}"
    );
    let (code, _, told) = check(
        &[backend, ("TOLLGATE_TIMEOUT", "soon")],
        &["--quota", "8/s"],
    );
    assert_eq!(code, Some(2));
    assert!(
        told.contains("environment variable TOLLGATE_TIMEOUT: \"soon\""),
        "{told}"
    );
}
