//! What is wrong with settings is told, each mistake once.

use tollgate_server::config::FIELDS;

use super::{Folder, message, print_config, printed};
use crate::process::{program, run, text};

/// A file of stars would otherwise open the admin surface to whoever has read the manual.
#[test]
fn what_is_shown_in_the_place_of_a_secret_is_none() {
    let folder = Folder::new("stars");
    let url = "redis+sentinel://a:1,b:1/main?sentinel_password=s3cr3t";
    let printed = printed(
        print_config()
            .env("REDIS_URL", url)
            .env("ADMIN_TOKEN", "s3cr3t"),
    );
    assert!(!printed.contains("s3cr3t"), "{printed}");
    let file = folder.write("printed.toml", &printed);
    for command in [["serve", "--config"], ["config", "check"]] {
        let output = run(&[&command[..], &[&file]].concat());
        let told = message(&output);
        assert!(
            told.contains("field backend: ") && told.contains("write the secret itself"),
            "{told}"
        );
    }
    let stars = [
        ("admin.token", "***"),
        ("key_secret", "***"),
        ("backend", "redis://***@h:1/0"),
        ("jwt.jwks_url", "https://***@h/keys"),
    ];
    for (path, value) in stars {
        let field = FIELDS.iter().find(|field| field.path == path).unwrap();
        let file = folder.write("one.toml", &format!("{path} = {value:?}"));
        let by_file = run(&["config", "check", &file]);
        let mut command = program();
        command.arg("serve").env(field.variable(), value);
        let by_environment = command.output().unwrap();
        for (output, from) in [
            (by_file, format!("one.toml: line 1: field {path}: ")),
            (by_environment, format!("variable {}: ", field.variable())),
        ] {
            let told = message(&output);
            assert!(
                told.contains(&from) && told.contains("write the secret itself"),
                "{told}"
            );
        }
    }
}

const WRONG: [(&str, &str); 2] = [
    (
        "wrong.toml",
        "listen = \"8000\"\n\
         limt = 3\n\
         timeout = [\"50ms\"]\n\
         backend = \"\"\n\
         admin = true\n\
         \n\
         [identity]\n\
         order = [\"api_key\", \"shoe_size\"]\n\
         phone_headr = \"X\"\n\
         \n\
         [[upstreams]]\n\
         url = \"http://u:s3cr3t@h\"\n\
         path = \"orders\"\n\
         \n\
         [[upstreams]]\n\
         path = \"/a\"\n\
         prt = 1\n",
    ),
    (
        "wrong.yaml",
        "listen: \"8000\"\n\
         limt: 3\n\
         timeout: [50ms]\n\
         backend: \"\"\n\
         admin: true\n\
         \n\
         identity:\n  \
           order: [api_key, shoe_size]\n  \
           phone_headr: X\n\
         \n\
         upstreams:\n  \
         - url: http://u:s3cr3t@h\n    \
           path: orders\n\
         \n  \
         \n  \
         - path: /a\n    \
           prt: 1\n",
    ),
];

#[test]
fn config_check_tells_every_mistake_with_line_field_value_and_fix() {
    let folder = Folder::new("wrong");
    for (name, content) in WRONG {
        let file = folder.write(name, content);
        let output = run(&["config", "check", &file]);
        let message = message(&output);
        for (line, told) in [
            (1, "field listen: \"8000\": write an address and a port"),
            (2, "field limt: there is no such field"),
            (3, "field timeout: a list: write one value"),
            (4, "field backend: "),
            (
                5,
                "field admin: a value: it is a table; write its fields below admin",
            ),
            (
                8,
                "field identity.order: \"api_key, shoe_size\": \"shoe_size\" is no type of identity",
            ),
            (
                9,
                "field identity.phone_headr: there is no such field; did you mean phone_header?",
            ),
            (12, "field upstreams[0].url: http://***@h: it has a user"),
            (13, "field upstreams[0].path: \"orders\": write a path"),
            (16, "field upstreams[1]: a table: it has no url"),
            (17, "field upstreams[1].prt: there is no such field"),
        ] {
            // A table of a list begins with its head in TOML, with its first field in YAML.
            let lines = match (name, told.contains("a table: it has no url")) {
                ("wrong.toml", true) => 15..=16,
                _ => line..=line,
            };
            let found = lines
                .clone()
                .any(|line| message.contains(&format!("{file}: line {line}: {told}")));
            assert!(found, "{name} {line}: {told}\n{message}");
        }
        assert!(message.starts_with("tollgate: 11 mistakes"), "{message}");
        assert!(!message.contains("s3cr3t"), "{message}");
        // `serve` refuses the same in the same words.
        let served = run(&["serve", "--config", &file]);
        assert_eq!(served.status.code(), Some(2));
        assert_eq!(text(&served.stderr), message);
    }
}

/// What the parser makes of a text that is broken is nobody's mistake.
#[test]
fn a_mistake_is_told_once() {
    let folder = Folder::new("once");
    for (content, told) in [
        ("quota = [1\n", &["line 1: field quota: unclosed array"][..]),
        (
            "quota = [1\ntimeout = \"50ms\"\n",
            &["line 2: field timeout: missing comma"],
        ),
        (
            "quota = \"1\ntimeout = \"50\"\n",
            &[
                "line 1: field quota: invalid basic string",
                "line 2: field timeout: \"50\": ",
            ],
        ),
        (
            "[[upstreams]]\nurl = \"http://h\"\npath = \"orders\"\n",
            &["line 3: field upstreams[0].path: \"orders\": write a path"],
        ),
        (
            "[[upstreams]]\nurl = \"http://h\"\n",
            &["field upstreams[0]: a table: it has neither path nor host"],
        ),
    ] {
        let file = folder.write("once.toml", content);
        let output = run(&["config", "check", &file]);
        let message = message(&output);
        let lines: Vec<_> = message
            .lines()
            .filter(|it| it.contains("once.toml: "))
            .collect();
        assert_eq!(lines.len(), told.len(), "{message}");
        for (line, told) in lines.iter().zip(told) {
            assert!(line.contains(told), "{told}: {message}");
        }
    }
}

#[test]
fn a_variable_that_is_no_setting_is_told_beside_the_mistakes() {
    let folder = Folder::new("beside");
    let file = folder.write("bad.yaml", "limt: 1\n");
    let mut command = program();
    command
        .args(["config", "check", &file])
        .env("TOLLGATE_ON_FAILRE", "open");
    let output = command.output().unwrap();
    assert!(message(&output).contains("field limt: "));
    assert!(
        text(&output.stdout).contains("TOLLGATE_ON_FAILURE may have been meant"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn two_listeners_need_two_addresses() {
    let folder = Folder::new("listen");
    let check = |listen: &str, admin: &str| {
        let content = format!("listen = {listen:?}\nadmin.listen = {admin:?}\n");
        let file = folder.write("listen.toml", &content);
        run(&["config", "check", &file])
    };
    for (listen, admin) in [
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("0.0.0.0:8000", "127.0.0.1:8000"),
        ("127.0.0.1:8000", "[::]:8000"),
        ("localhost:8000", "localhost:8000"),
    ] {
        let output = check(listen, admin);
        let told = message(&output);
        assert!(
            told.contains("field admin.listen: ") && told.contains("listen has this address, too"),
            "{told}"
        );
    }
    for (listen, admin) in [
        ("127.0.0.1:8000", "127.0.0.1:8001"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("127.0.0.1:8000", "127.0.0.2:8000"),
        ("0.0.0.0:8000", "[::1]:8000"),
    ] {
        let output = check(listen, admin);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

#[test]
fn config_check_admits_what_serve_admits() {
    let folder = Folder::new("right");
    let file = folder.write("right.yml", "quota: [10/s, 100/m]\nadmin:\nupstreams: []\n");
    let output = run(&["config", "check", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("no mistakes"));
    // The environment is part of it.
    let mut command = program();
    command
        .args(["config", "check", &file])
        .env("DEFAULT_LIMIT", "many");
    let output = command.output().unwrap();
    assert!(
        message(&output).contains("environment variable DEFAULT_LIMIT: \"many\": write a whole")
    );
    let broken = folder.write("broken.yaml", "quota: [s3cr3t\nlisten: x\n");
    let output = run(&["config", "check", &broken]);
    let told = message(&output);
    assert!(
        told.contains(&format!("{broken}: line ")) && !told.contains("s3cr3t"),
        "{told}"
    );
}

#[test]
fn dotenv_says_its_line_and_no_secret() {
    let folder = Folder::new("dotenv");
    folder.write(
        ".env",
        "\nDEFAULT_LIMIT=none\nADMIN_TOKEN=\"two words s3cr3t\"\n",
    );
    let run = |folder: &Folder| {
        let mut command = program();
        let output = command.arg("serve").current_dir(folder.path()).output();
        output.unwrap()
    };
    let output = run(&folder);
    let told = message(&output);
    assert!(
        told.contains(".env: line 2: variable DEFAULT_LIMIT: \"none\": "),
        "{told}"
    );
    assert!(
        told.contains(".env: line 3: variable ADMIN_TOKEN: ***: "),
        "{told}"
    );
    folder.write(".env", "A=1\nhunter s3cr3t\n");
    let output = run(&folder);
    let told = message(&output);
    assert!(told.contains(".env: line 2: "), "{told}");
    assert!(!told.contains("s3cr3t"), "{told}");
}
