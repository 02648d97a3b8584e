//! `tollgate dynamodb`, and the other commands on its table.

use std::process::Output;

use tollgate_testkit::LocalDynamo;

use crate::process::{program, text};

fn run(arguments: &[&str]) -> Output {
    program()
        .args(arguments)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_REGION", "eu-west-1")
        .output()
        .unwrap()
}

#[test]
fn a_table_is_made_shown_and_counted_in() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(LocalDynamo::start());
    let url = format!("dynamodb://limits?endpoint={}", server.endpoint());

    let missing = run(&["dynamodb", "describe", &url]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        text(&missing.stderr).contains("create-table"),
        "{missing:?}"
    );

    // Again is no error.
    for _ in 0..2 {
        let made = run(&["dynamodb", "create-table", &url]);
        assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
        assert!(
            text(&made.stdout).contains("capacity  on demand"),
            "{made:?}"
        );
    }
    let shown = run(&["dynamodb", "describe", &url]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    assert!(
        text(&shown.stdout).starts_with("table     limits\n"),
        "{shown:?}"
    );

    let check = ["check", "--backend", &url, "--quota", "1/h", "--key", "k"];
    assert_eq!(run(&check).status.code(), Some(0));
    assert_eq!(run(&check).status.code(), Some(1));

    let half = run(&["dynamodb", "create-table", &url, "--read-units", "5"]);
    assert_eq!(half.status.code(), Some(2));
    assert!(text(&half.stderr).contains("--write-units"), "{half:?}");
}
