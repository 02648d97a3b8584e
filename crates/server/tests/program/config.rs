//! Every setting by every way it can be given, and everything that is wrong told at once.

mod mistakes;
mod schema;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tollgate_server::config::{FIELDS, Field, Kind, Secret};

use crate::client::get;
use crate::process::{Gateway, program, run, text};

/// A folder of its own.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The settings that come out of this, and where each is from.
fn settings(command: &mut Command) -> toml::Table {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    toml::from_str(text(&output.stdout)).unwrap()
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn print_config() -> Command {
    let mut command = program();
    command.args(["serve", "--print-config"]);
    command
}

pub(crate) fn message(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn s32_every_setting_is_read_from_the_name_that_gateways_share() {
    let given = [
        ("REDIS_URL", "redis://redis:6379", "backend"),
        ("DEFAULT_LIMIT", "7", "default_limit"),
        ("DEFAULT_WINDOW_SECONDS", "9", "default_window_seconds"),
        (
            "IDENTITY_RESOLUTION_ORDER",
            "[\"api_key\", \"ip_address\"]",
            "identity.order",
        ),
        ("API_KEY_HEADER", "X-Key", "identity.api_key_header"),
        ("USER_ID_HEADER", "X-User", "identity.user_id_header"),
        ("PHONE_HEADER", "X-Tel", "identity.phone_header"),
        (
            "OAUTH_ACCOUNT_HEADER",
            "X-Account",
            "identity.oauth_account_header",
        ),
        ("RULE_CACHE_TTL_SECONDS", "5", "rules.cache_ttl_seconds"),
        ("UPSTREAM_BASE_URL", "http://backend:1", "upstream"),
        ("LOG_LEVEL", "WARNING", "log"),
        ("RULES_FILE", "rules.yaml", "rules.file"),
        ("ADMIN_OPEN", "true", "admin.open"),
    ];
    let mut command = print_config();
    command.envs(given.map(|(name, value, _)| (name, value)));
    let printed = printed(&mut command);
    for (name, value, path) in given {
        let (_, field) = path.rsplit_once('.').unwrap_or(("", path));
        let line = printed
            .lines()
            .find(|line| line.starts_with(&format!("{field} = ")))
            .unwrap_or_else(|| panic!("{path}: {printed}"));
        let from = format!(" # environment variable {name}");
        let shown = line.strip_prefix(&format!("{field} = ")).unwrap();
        let shown = shown
            .strip_suffix(&from)
            .unwrap_or_else(|| panic!("{line}"));
        let expected = match name {
            "IDENTITY_RESOLUTION_ORDER" => "api_key, ip_address",
            _ => value,
        };
        assert_eq!(shown.trim_matches('"'), expected);
    }
    // Commas do as well as JSON.
    let mut command = print_config();
    command.env("IDENTITY_RESOLUTION_ORDER", "api_key,ip_address");
    assert!(settings(&mut command)["identity"]["order"].as_str() == Some("api_key,ip_address"));
}

#[test]
fn s33_the_defaults_are_those_that_are_documented() {
    let settings = settings(&mut print_config());
    assert_eq!(settings["listen"].as_str(), Some("127.0.0.1:8000"));
    assert_eq!(settings["default_limit"].as_integer(), Some(100));
    assert_eq!(settings["default_window_seconds"].as_integer(), Some(60));
    assert_eq!(settings["log"].as_str(), Some("info"));
    let rules = &settings["rules"];
    assert_eq!(rules["cache_ttl_seconds"].as_integer(), Some(30));
    let identity = &settings["identity"];
    for (field, value) in [
        ("order", "ip_address"),
        ("api_key_header", "X-API-Key"),
        ("user_id_header", "X-User-ID"),
        ("phone_header", "X-Phone"),
        ("oauth_account_header", "X-OAuth-Account"),
    ] {
        assert_eq!(identity[field].as_str(), Some(value), "{field}");
    }
    let gateway = Gateway::start(&[]);
    let answer = get(gateway.address, "/");
    let policy = answer.header("ratelimit-policy");
    assert_eq!(policy, Some("\"default\";q=100;w=60"));
}

#[test]
fn s33_flag_own_name_bare_name_dotenv_file() {
    let folder = Folder::new("precedence");
    let file = folder.write("t.toml", "[rules]\ncache_ttl_seconds = 1\n");
    let mut given: Vec<(&str, &str)> = Vec::new();
    let mut flags: Vec<&str> = vec!["--config", &file];
    let of = |command: &[&str], environment: &[(&str, &str)]| {
        let mut serve = print_config();
        serve.current_dir(folder.path());
        serve.args(command).envs(environment.iter().copied());
        settings(&mut serve)["rules"]["cache_ttl_seconds"].as_integer()
    };
    assert_eq!(of(&flags, &given), Some(1), "file");
    folder.write(".env", "RULE_CACHE_TTL_SECONDS=2\n");
    assert_eq!(of(&flags, &given), Some(2), ".env");
    folder.write(
        ".env",
        "# a comment\nTOLLGATE_RULES_CACHE_TTL_SECONDS='3'\nRULE_CACHE_TTL_SECONDS=2\n",
    );
    assert_eq!(of(&flags, &given), Some(3), "own name in .env");
    given.push(("RULE_CACHE_TTL_SECONDS", "4"));
    assert_eq!(of(&flags, &given), Some(4), "bare name");
    given.push(("TOLLGATE_RULES_CACHE_TTL_SECONDS", "5"));
    assert_eq!(of(&flags, &given), Some(5), "own name");
    flags.extend(["--rules-cache-ttl-seconds", "6"]);
    assert_eq!(of(&flags, &given), Some(6), "flag");
}

/// What may be given for a setting; nothing for those that are tables, name files that must be
/// there, or say what another one says.
fn sample(field: &Field) -> String {
    match (field.path, field.kind) {
        ("upstream", _) => "http://up.example:1".to_owned(),
        ("rules.file", _) => "rules.yaml".to_owned(),
        // Both are read at start only.
        ("upstream_ca" | "tls.certificate" | "tls.key", _) => "some.pem".to_owned(),
        ("trusted_proxies", _) => "10.0.0.0/8".to_owned(),
        ("cors.origins", _) => "https://shop.example".to_owned(),
        ("cors.headers", _) => "X-Tenant".to_owned(),
        ("request_timeout", _) => "1m".to_owned(),
        ("workers", _) => "2".to_owned(),
        ("admin.listen", _) => "127.0.0.1:9".to_owned(),
        ("quota", _) => "5/s".to_owned(),
        ("default_limit" | "default_window_seconds", _) => String::new(),
        // These are read, and must be what they are called.
        ("identity.api_keys" | "jwt.key_file", _) => String::new(),
        ("identity.custom", _) => "header:X-Tenant".to_owned(),
        ("identity.phone_region", _) => "DE".to_owned(),
        ("identity.forward_as", _) => "X-User-Id".to_owned(),
        ("jwt.issuer", _) => "https://issuer.example".to_owned(),
        ("jwt.audience" | "jwt.plan_claim", _) => "orders".to_owned(),
        ("jwt.jwks_url", _) => "http://127.0.0.1:9/keys".to_owned(),
        ("jwt.algorithms", _) => "RS256".to_owned(),
        ("traces.endpoint", _) => "http://127.0.0.1:9".to_owned(),
        (_, Kind::Size) => "1MiB".to_owned(),
        (_, Kind::Tables(_)) => String::new(),
        _ if field.secret == Secret::Whole => "0123456789abcdef".to_owned(),
        _ => field
            .default
            .unwrap_or_else(|| panic!("a sample of {}", field.path))
            .to_owned(),
    }
}

/// Every setting with its sample, and all of them as TOML and as YAML.
fn samples() -> (Vec<(&'static Field, String)>, String, String) {
    let fields: Vec<_> = FIELDS
        .iter()
        .map(|field| (field, sample(field)))
        .filter(|(_, sample)| !sample.is_empty())
        .collect();
    let mut toml = String::new();
    let mut yaml = String::new();
    let mut last = None;
    for (field, sample) in &fields {
        let (table, name) = field.place();
        if table != last {
            last = table;
            toml.push_str(&format!("[{}]\n", table.unwrap()));
            yaml.push_str(&format!("{}:\n", table.unwrap()));
        }
        let indent = table.map_or("", |_| "  ");
        let value = match field.kind {
            Kind::Number | Kind::Bool => sample.clone(),
            _ => format!("{sample:?}"),
        };
        toml.push_str(&format!("{name} = {value}\n"));
        yaml.push_str(&format!("{indent}{name}: {value}\n"));
    }
    (fields, toml, yaml)
}

/// Every field of every table, from the environment and from both kinds of files.
#[test]
fn every_field_can_be_given_in_every_way() {
    let folder = Folder::new("every");
    let (fields, toml, yaml) = samples();
    let by_toml = printed(print_config().args(["--config", &folder.write("a.toml", &toml)]));
    let by_yaml = printed(print_config().args(["--config", &folder.write("a.yaml", &yaml)]));
    let by_environment = printed(
        print_config().envs(
            fields
                .iter()
                .map(|(field, sample)| (field.variable(), sample)),
        ),
    );
    let flags = fields
        .iter()
        .flat_map(|(field, sample)| [format!("--{}", field.flag()), sample.clone()]);
    let by_flags = printed(print_config().args(flags));
    for (field, _) in &fields {
        let (table, name) = field.place();
        let is_secret = field.secret == Secret::Whole;
        let begins = match is_secret {
            true => format!("# {name} = (hidden, from "),
            false => format!("{name} = "),
        };
        for (output, from) in [
            (&by_toml, format!("field {}", field.path)),
            (&by_yaml, format!("field {}", field.path)),
            (&by_environment, format!("variable {}", field.variable())),
            (&by_flags, format!(" --{}", field.flag())),
        ] {
            let found = output
                .lines()
                .map(|line| line.strip_suffix(')').filter(|_| is_secret).unwrap_or(line))
                .any(|line| line.starts_with(&begins) && line.ends_with(&from));
            assert!(found, "{table:?} {name}, {from}: {output}");
            assert!(!output.contains("0123456789abcdef"), "a secret: {output}");
        }
    }
}

#[test]
fn what_is_printed_can_be_given_again() {
    let folder = Folder::new("again");
    let routes =
        r#"[{"path": "/a/*", "url": "http://a:1"}, {"host": "b.example", "url": "http://b"}]"#;
    let first = printed(
        print_config()
            .env("TOLLGATE_UPSTREAMS", routes)
            .env("REDIS_URL", "redis://h:1/0")
            .env("ADMIN_TOKEN", "s3cr3t-s3cr3t"),
    );
    assert!(!first.contains("s3cr3t"), "{first}");
    let token = "# token = (hidden, from environment variable ADMIN_TOKEN)";
    assert!(first.contains(token), "{first}");
    let again = printed(print_config().args(["--config", &folder.write("b.toml", &first)]));
    let values = |text: &str| -> toml::Table { toml::from_str(text).unwrap() };
    assert_eq!(values(&first), values(&again));
    let quota = folder.write("q.toml", "quota = \"3/s\"\n[admin]\nopen = true\n");
    let first_of_quota = printed(print_config().args(["--config", &quota]));
    let file = folder.write("q2.toml", &first_of_quota);
    let again = printed(print_config().args(["--config", &file]));
    assert_eq!(values(&first_of_quota), values(&again));
    let routes = values(&first)["upstreams"].as_array().unwrap().clone();
    assert_eq!(routes[0]["path"].as_str(), Some("/a/*"));
    assert_eq!(routes[1]["host"].as_str(), Some("b.example"));
}

#[test]
fn the_default_is_a_quota_or_a_limit_and_a_window_by_what_counts_first() {
    let folder = Folder::new("default");
    let limit = |arguments: &[&str], environment: &[(&str, &str)]| {
        let gateway = Gateway::start_with(arguments, environment);
        let answer = get(gateway.address, "/");
        answer.header("ratelimit-policy").unwrap().to_owned()
    };
    let numbers = [("DEFAULT_LIMIT", "7"), ("DEFAULT_WINDOW_SECONDS", "9")];
    assert_eq!(limit(&[], &numbers), "\"default\";q=7;w=9");
    assert_eq!(limit(&["--quota", "3/s"], &numbers), "\"default\";q=3;w=1");
    let file = folder.write("q.toml", "quota = \"3/s\"");
    assert_eq!(limit(&["--config", &file], &numbers), "\"default\";q=7;w=9");
    let both = folder.write("both.toml", "quota = \"3/s\"\ndefault_limit = 3\n");
    let output = run(&["serve", "--config", &both]);
    assert!(message(&output).contains("leave one of them out"));
}
