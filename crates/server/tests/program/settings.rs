//! Flags, environment and file.

use std::path::PathBuf;

use crate::client::get;
use crate::config::{Folder, message};
use crate::process::{Gateway, program, run, text};

/// A file of settings with a name of its own.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn limit(gateway: &Gateway) -> String {
    get(gateway.address, "/")
        .header("x-ratelimit-limit")
        .unwrap()
        .to_owned()
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let file = File::new(
        "order",
        "quota = \"3/s\"\nipv6_prefix = 56\nrequire_backend_at_start = false\n",
    );
    let config = ["--config", file.path()];
    let environment = [("TOLLGATE_QUOTA", "2/s")];
    assert_eq!(limit(&Gateway::start(&[])), "100");
    assert_eq!(limit(&Gateway::start(&config)), "3");
    assert_eq!(limit(&Gateway::start_with(&config, &environment)), "2");
    let flag = [&config[..], &["--quota", "1/s"]].concat();
    assert_eq!(limit(&Gateway::start_with(&flag, &environment)), "1");
    // An empty variable, as compose files produce, is none.
    assert_eq!(
        limit(&Gateway::start_with(&config, &[("TOLLGATE_QUOTA", "")])),
        "3"
    );
    assert_eq!(
        limit(&Gateway::start_with(
            &[],
            &[("TOLLGATE_CONFIG", file.path())]
        )),
        "3"
    );
}

/// Every setting is taken from the environment, too: a wrong value is found there, and named.
#[test]
fn every_setting_has_its_variable_and_its_field() {
    for (field, wrong) in [
        ("listen", "8000"),
        ("upstream", "ftp://h"),
        ("quota", "0/s"),
        ("timeout", "50"),
        ("remember_refusals", "-1s"),
        ("on_failure", "ajar"),
        ("require_backend_at_start", "maybe"),
        ("max_keys", "0"),
        ("headers", "x bad"),
        ("body", "xml"),
        ("ipv4_prefix", "33"),
        ("ipv6_prefix", "0"),
        ("upstream_timeout", "0s"),
        ("max_body", "10MB"),
        ("header_timeout", "-1s"),
        ("max_connections", "many"),
        ("drain_delay", "soon"),
        ("shutdown_timeout", "1d"),
    ] {
        let variable = format!("TOLLGATE_{}", field.to_uppercase());
        let flag = format!("--{}", field.replace('_', "-"));
        let file = File::new(field, &format!("{field} = {wrong:?}"));
        let by_environment = program()
            .arg("serve")
            .env(&variable, wrong)
            .output()
            .unwrap();
        let by_flag = run(&["serve", &flag, wrong]);
        let by_file = run(&["serve", "--config", file.path()]);
        for (output, named) in [
            (by_environment, &*variable),
            (by_flag, &*flag),
            (by_file, &*format!("{}: line 1: field {field}", file.path())),
        ] {
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{message}");
            assert!(message.contains(named), "{named}: {message}");
            assert!(message.contains(wrong), "{wrong}: {message}");
            assert!(
                message.lines().count() == 1 && message.contains(": "),
                "{message}"
            );
        }
    }
}

#[test]
fn a_field_that_is_not_known_is_refused_by_its_name() {
    for (content, named) in [
        ("quota = \"5/s\"\nlimt = 3", "line 2: field limt"),
        ("backnd = \"redis://u:s3cr3t@h\"", "field backnd"),
        ("timeout = 1.5", "line 1: field timeout"),
        ("[serve]\nquota = \"5/s\"", "serve"),
        ("quota", "line 1"),
    ] {
        let file = File::new("unknown", content);
        let output = run(&["serve", "--config", file.path()]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            message.contains(file.path()) && message.contains(named),
            "{named}: {message}"
        );
        assert!(!message.contains("s3cr3t"), "b71: {message}");
    }
    let missing = run(&["serve", "--config", "/nowhere/tollgate.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/nowhere/tollgate.toml"));
}

#[test]
fn help_and_version_are_answers_not_errors() {
    for arguments in [
        &["--help"][..],
        &["serve", "--help"],
        &["check", "--help"],
        &["replay", "--help"],
        &["help", "serve"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("Exit codes"), "{arguments:?}");
    }
    let check = run(&["check", "--help"]);
    for promise in [
        "always starts fresh",
        "keys of another form",
        "TOLLGATE_QUOTA, ",
    ] {
        assert!(text(&check.stdout).contains(promise), "{promise}");
    }
    let serve = run(&["serve", "--help"]);
    assert!(text(&serve.stdout).contains("UPSTREAM_BASE_URL"));
    assert!(text(&run(&["--version"]).stdout).starts_with("tollgate "));
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["serve", "--nonsense"]).status.code(), Some(2));
    assert_eq!(run(&["serve", "--log", "loud"]).status.code(), Some(2));
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let gateway = Gateway::start(&[]);
    let address = gateway.address.to_string();
    let output = run(&["serve", "--listen", &address]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains(&address),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn an_empty_variable_is_none_in_every_setting() {
    let empty = ["LOG_FORMAT", "CONFIG", "BACKEND", "UPSTREAM", "PREFIX"]
        .map(|name| (format!("TOLLGATE_{name}"), ""));
    let empty = empty.each_ref().map(|(name, value)| (&**name, *value));
    let gateway = Gateway::start_with(&[], &empty);
    assert_eq!(get(gateway.address, "/").status, 200);
}

#[test]
fn too_many_quotas_are_told_by_their_flag() {
    let quotas = (1..=17).map(|limit| format!("{limit}/s"));
    let quotas = quotas.collect::<Vec<_>>().join(",");
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--quota", &quotas]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(
        message.contains("--quota") && message.contains("17 quotas"),
        "{message}"
    );
}

#[test]
fn a_line_inside_a_text_is_not_taken_for_a_field() {
    let file = File::new("lines", "backend = \"\"\"\nredis://:hunter=2@h\"\"\" z\n");
    let output = run(&["serve", "--config", file.path()]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(
        message.contains("line 2") && !message.contains("hunter"),
        "{message}"
    );
}

#[test]
fn logs_can_be_json() {
    let gateway = Gateway::start(&["--log-format", "json"]);
    get(gateway.address, "/orders");
    crate::process::eventually("the request is logged", || {
        gateway.log().contains("/orders")
    });
    let mut answered = 0;
    for line in gateway.log().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["level"].is_string() && line["message"].is_string());
        if line["path"] == "/orders" {
            answered += 1;
            assert!(line["millis"].is_u64() && line["status"] == 200, "{line}");
        }
    }
    assert_eq!(answered, 1);
}

#[test]
fn s33_the_upstream_is_known_by_its_bare_name_after_our_own() {
    let file = File::new("bare", "upstream = \"http://file.example\"");
    let config = ["--config", file.path()];
    let bare = ("UPSTREAM_BASE_URL", "http://bare.example");
    let own = ("TOLLGATE_UPSTREAM", "http://own.example");
    let upstream = |arguments: &[&str], environment: &[(&str, &str)]| {
        let gateway = Gateway::start_with(arguments, environment);
        crate::process::eventually("it says where requests go", || {
            gateway.log().contains("listening")
        });
        let log = gateway.log();
        let (_, rest) = log.split_once("upstream=http://").expect(&log);
        rest.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(upstream(&config, &[]), "file.example");
    assert_eq!(
        upstream(&config, &[("UPSTREAM_BASE_URL", "")]),
        "file.example"
    );
    assert_eq!(upstream(&config, &[bare]), "bare.example");
    assert_eq!(upstream(&config, &[bare, own]), "own.example");
    let flag = ["--upstream", "http://flag.example"];
    assert_eq!(upstream(&flag, &[bare, own]), "flag.example");
    let mut wrong = program();
    wrong.arg("serve").env("UPSTREAM_BASE_URL", "ftp://x");
    let output = wrong.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(
        message.contains("environment variable UPSTREAM_BASE_URL: ftp://x: it does not begin"),
        "{message}"
    );
}

#[test]
fn a_list_in_the_file_is_joined() {
    let file = File::new(
        "list",
        "quota = [\"3/s\", \"100/h\"]\nheaders = [\"ietf\", \"x-ratelimit\"]\n",
    );
    let gateway = Gateway::start(&["--config", file.path()]);
    let answer = get(gateway.address, "/");
    let policy = answer.header("ratelimit-policy").unwrap();
    assert_eq!(policy, r#""default.1s";q=3;w=1, "default.1h";q=100;w=3600"#);
    for content in ["quota = [1]", "quota = 5", "listen = [\"127.0.0.1:0\"]"] {
        let file = File::new("no-list", content);
        let output = run(&["serve", "--config", file.path()]);
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(message.contains("line 1: field"), "{message}");
    }
}

#[test]
fn a_variable_that_is_no_setting_is_told_with_the_nearest_that_is() {
    let gateway = Gateway::start_with(
        &[],
        &[
            ("TOLLGATE_QUOTE", "1/s s3cr3t"),
            ("TOLLGATE_PORT", "tcp://10.0.0.1:8000"),
        ],
    );
    assert_eq!(limit(&gateway), "100");
    crate::process::eventually("it warns", || gateway.log().contains("TOLLGATE_QUOTE"));
    let log = gateway.log();
    assert!(
        log.contains("WARN") && log.contains("nearest=\"TOLLGATE_QUOTA\""),
        "{log}"
    );
    assert!(
        !log.contains("TOLLGATE_PORT") && !log.contains("s3cr3t"),
        "{log}"
    );
}

#[test]
fn none_of_the_headers_stands_alone() {
    let output = run(&["serve", "--headers", "none,ietf"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("none stands alone"));
}

/// The documented file is one that works.
#[test]
fn the_sample_file_of_the_documentation_is_read() {
    let page = include_str!("../../../../docs/gateway.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (sample, _) = rest.split_once("```").unwrap();
    assert!(sample.lines().filter(|line| line.contains('=')).count() > 5);
    let file = File::new("sample", sample);
    let backend = ["--backend", "memory://"];
    let arguments = [&["--config", file.path()][..], &backend].concat();
    assert_eq!(
        get(Gateway::start(&arguments).address, "/ready").status,
        200
    );
}

#[test]
fn s65_a_request_is_logged_with_its_id_from_the_level_that_is_set() {
    for (level, logged) in [
        ("INFO", true),
        ("debug", true),
        ("NOTSET", true),
        ("WARNING", false),
        ("CRITICAL", false),
    ] {
        let mut gateway = Gateway::start_with(&["--log-format", "json"], &[("LOG_LEVEL", level)]);
        let answer = crate::client::request(
            gateway.address,
            "GET",
            "/orders",
            "X-Request-Id: mine-1\r\n",
        );
        assert_eq!(answer.header("x-request-id"), Some("mine-1"), "{level}");
        let told = || {
            let log = gateway.log();
            let lines = log.lines().filter(|line| line.contains("/orders"));
            let ids = lines.map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                line["request_id"].as_str().unwrap_or_default().to_owned()
            });
            ids.collect::<Vec<_>>()
        };
        if logged {
            crate::process::eventually("the request is logged", || !told().is_empty());
            let told = told();
            assert!(told.iter().all(|id| id == "mine-1"), "{level}: {told:?}");
        } else {
            gateway.signal("TERM");
            gateway.ended();
            assert!(!gateway.log().contains("/orders"), "{level}");
        }
    }
    let wrong = program()
        .arg("serve")
        .env("LOG_LEVEL", "LOUD")
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let message = text(&wrong.stderr);
    assert!(
        message.contains("LOG_LEVEL: \"LOUD\": it is no level"),
        "{message}"
    );
}

/// What `serve` would find only while it starts is told beforehand, with the rest.
#[test]
fn config_check_looks_at_the_store_and_at_the_files_that_are_named() {
    let folder = Folder::new("named");
    let rules = folder.write("rules.yaml", "- id: a\n  identity_type: ip\n  prio: 3\n");
    let gone = folder.path().join("gone.pem");
    let gone = gone.to_str().unwrap();
    let file = folder.write(
        "named.toml",
        &format!(
            "backend = \"reds://u:s3cr3t@h\"\n\
             timeout = \"50\"\n\
             upstream_ca = \"{gone}\"\n\
             rules.file = \"{rules}\"\n\
             tls.certificate = \"{gone}\"\n\
             tls.key = \"{gone}\"\n\
             jwt.issuer = \"i\"\n\
             jwt.audience = \"a\"\n\
             jwt.key_file = \"{gone}\"\n"
        ),
    );
    let output = run(&["config", "check", &file]);
    let told = message(&output);
    for (line, expected) in [
        (
            1,
            "field backend: reds://***@h: reds:// names no store; this build knows memory://",
        ),
        (2, "field timeout: \"50\": write a whole number and a unit"),
        (3, &*format!("field upstream_ca: \"{gone}\": {gone}: ")),
        (
            4,
            &*format!("field rules.file: \"{rules}\": line 2: [0].identity_type: \"ip\" is none"),
        ),
        (
            9,
            &*format!("field jwt.key_file: \"{gone}\": {gone}: cannot be read"),
        ),
    ] {
        let expected = format!("{file}: line {line}: {expected}");
        assert!(told.contains(&expected), "{expected}\n{told}");
    }
    assert!(
        told.contains(&format!(
            "field tls.key: \"{gone}\": {gone}: it cannot be read"
        )),
        "{told}"
    );
    assert!(
        told.contains("the fields are id, name, identity_type"),
        "{told}"
    );
    assert!(!told.contains("s3cr3t"), "{told}");

    let output = program()
        .args(["config", "check", "--log", "LOUD"])
        .env("TOLLGATE_TLS_KEY", "key.pem")
        .env("REDIS_URL", "redis://h:99999/x")
        .output()
        .unwrap();
    let told = message(&output);
    assert!(told.starts_with("tollgate: 3 mistakes"), "{told}");
    assert!(told.contains("--log: \"LOUD\": it is no level"), "{told}");
    assert!(
        told.contains("environment variable TOLLGATE_TLS_KEY: \"key.pem\": it is given without tls.certificate"),
        "{told}"
    );
}
