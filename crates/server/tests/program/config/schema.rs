//! The schema of the settings and their page, made of the table of them.

use std::path::Path;
use std::process::Command;

use tollgate_server::config::{FIELDS, Kind};

use super::{Folder, print_config, printed, samples};
use crate::process::{run, text};

#[test]
fn the_schema_names_every_field_with_its_default() {
    let output = run(&["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    for field in FIELDS {
        let (table, name) = field.place();
        let at = table.map_or(&schema, |table| &schema["properties"][table]);
        let property = &at["properties"][name];
        assert_eq!(property["description"], field.help, "{}", field.path);
        assert_eq!(property.get("default").is_some(), field.default.is_some());
    }
}

/// The tables of docs/configuration.md, made of the table of settings.
fn page() -> String {
    use std::fmt::Write as _;
    let mut page = String::new();
    let mut last = Some("");
    for field in FIELDS {
        let (table, name) = field.place();
        if table != last {
            last = table;
            let title = table.map_or("General".to_owned(), |table| format!("`[{table}]`"));
            let _ = write!(
                page,
                "\n### {title}\n\n| field | variable | default | is |\n|---|---|---|---|\n"
            );
        }
        let own = field.variable();
        let bare = field
            .bare
            .map_or(String::new(), |bare| format!(", `{bare}`"));
        let default = field.default.map_or(String::new(), |it| format!("`{it}`"));
        let words = match field.kind {
            Kind::Choice(words) => format!(" (`{}`)", words.join("`, `")),
            Kind::Duration => " (such as `50ms`, `2s`, `5m`)".into(),
            Kind::Size => " (such as `10MiB`)".into(),
            Kind::List => " (a list, or joined by commas)".into(),
            Kind::Proxies => " (a number; or a list, or joined by commas)".into(),
            Kind::Tables(_) => " (tables; in a variable a list of JSON objects)".into(),
            _ => String::new(),
        };
        let _ = writeln!(
            page,
            "| `{name}` | `{own}`{bare} | {default} | {}{words} |",
            field.help
        );
    }
    page
}

#[test]
fn docs_configuration_has_every_setting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = "<!-- settings -->";
    let (_, rest) = text.split_once(begin).unwrap();
    let (found, _) = rest.split_once("<!-- end of settings -->").unwrap();
    let wanted = page();
    if found.trim() != wanted.trim() {
        let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("configuration-settings.md");
        std::fs::write(&new, &wanted).unwrap();
        panic!(
            "docs/configuration.md differs from the table; put {} there",
            new.display()
        );
    }
}

/// Each kind of setting as the documentation writes it, ..
const KINDS: &str = "trusted_proxies = 1\nquota = \"100/60s, 5/s\"\nheaders = [\"ietf\", \"triple\"]\n\
    retries = 2\nmax_body = \"10MiB\"\nremember_refusals = 0\ndrain_delay = \"50ms\"\nws_close = true\n\
    log = \"WARNING\"\nmax_connections = 10\n[cors]\norigins = \"*\"\nmax_age = 0\n\
    [identity]\norder = [\"api_key\", \"ip_address\"]\nforward_as = \"X-User-Id\"\n\
    [traces]\nsample_ratio = 0.5\n";

/// .. and in its other way.
const OTHER_KINDS: &str = "trusted_proxies = [\"10.0.0.0/8\"]\nheaders = \"none\"\nretries = \"2\"\n\
    max_body = 512\nremember_refusals = \"0\"\nws_close = \"true\"\n[cors]\norigins = [\"https://shop.example\"]\n\
    [identity]\norder = \"api_key,ip_address\"\n[traces]\nsample_ratio = \"0.5\"\n";

/// The schema is what editors go by: it takes what the program takes, and refuses misspelt fields.
#[test]
fn a_file_is_valid_by_the_schema() {
    let Some(schemathesis) = std::env::var_os("TOLLGATE_SCHEMATHESIS") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "scripts/servers brings schemathesis"
        );
        eprintln!("skipped: run scripts/servers for schemathesis and its validator");
        return;
    };
    let validate = Path::new(&schemathesis).with_file_name("validate");
    let folder = Folder::new("schema");
    let schema = folder.write("schema.json", text(&run(&["config", "schema"]).stdout));
    let valid = |name: &str, content: &str| {
        let table: toml::Table = toml::from_str(content).unwrap();
        let document = folder.write(name, &serde_json::to_string(&table).unwrap());
        let output = Command::new(&validate)
            .args([&schema, &document])
            .output()
            .unwrap();
        (output.status.success(), text(&output.stdout).to_owned())
    };
    let every = printed(&mut print_config());
    // The program takes them, too: `every_field_can_be_given_in_every_way`.
    let (_, samples, _) = samples();
    let page = include_str!("../../../../../docs/gateway.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (sample, _) = rest.split_once("```").unwrap();
    for content in [
        &every,
        &samples,
        sample,
        "quota = [\"5/s\"]\n[[upstreams]]\nurl = \"http://a\"\npath = \"/a\"\n",
        KINDS,
        OTHER_KINDS,
    ] {
        let (valid, told) = valid("valid.json", content);
        assert!(valid, "{told}\n{content}");
    }
    // The program takes them, too.
    for content in [KINDS, OTHER_KINDS] {
        printed(print_config().args(["--config", &folder.write("kinds.toml", content)]));
    }
    for content in [
        "limt = 1",
        "quota = 5",
        "timeout = \"50\"",
        "[admin]\nopne = true",
        "on_failure = \"ajar\"",
        "trusted_proxies = 0",
        "retries = -1",
        "metrics = 1",
        "traces.sample_ratio = 2",
    ] {
        let file = folder.write("invalid.toml", content);
        assert_eq!(
            run(&["config", "check", &file]).status.code(),
            Some(2),
            "{content}"
        );
        assert!(!valid("invalid.json", content).0, "{content}");
    }
}
