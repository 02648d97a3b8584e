//! `tollgate dynamodb`, and the other commands on its table.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use tollgate_testkit::LocalDynamo;

use crate::config::Folder;
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

/// Keys of a profile that a command prints: whose they are is in the request.
#[test]
fn credentials_come_from_the_command_of_a_profile() {
    let folder = Folder::new("credentials");
    let printed = r#"{"Version":1,"AccessKeyId":"OFACOMMAND","SecretAccessKey":"secret"}"#;
    let command = format!("[default]\ncredential_process = printf '%s' '{printed}'\n");
    let profile = folder.write("config", &command);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap();
    let (told, heard) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        told.send(head.join("\n")).unwrap();
    });
    let mut child = program()
        .args(["dynamodb", "describe"])
        .arg(format!("dynamodb://limits?endpoint=http://{endpoint}"))
        .env("AWS_CONFIG_FILE", &profile)
        .env("AWS_REGION", "eu-west-1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let head = heard.recv_timeout(Duration::from_secs(20));
    let _ = child.kill();
    child.wait().unwrap();
    let head = head.unwrap();
    assert!(head.contains("Credential=OFACOMMAND/"), "{head}");
}
