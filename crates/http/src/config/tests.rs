#[cfg(feature = "jwt")]
mod jwt;

use http::Request;

use super::*;
use crate::{Identified, PeerAddr};

const ON: &str = "[plugins]\nenabled = [\"observability\",\"cache\",\"auth\",\"ratelimit\"]\n";

fn with(table: &str, env: &[(&str, &str)]) -> Result<RateLimitConfig, ConfigError> {
    let text = format!("{ON}[plugin.ratelimit]\n{table}");
    let env = env
        .iter()
        .map(|(name, value)| (format!("{ENV_PREFIX}{name}"), (*value).to_owned()));
    RateLimitConfig::load(&text, env).map(|config| config.expect("it is enabled"))
}

fn quota(table: &str, env: &[(&str, &str)]) -> String {
    with(table, env).unwrap().quota().to_string()
}

#[track_caller]
fn mistakes(table: &str, env: &[(&str, &str)]) -> Vec<Mistake> {
    match with(table, env) {
        Err(ConfigError::Mistakes(all)) => all,
        other => panic!("{other:?}"),
    }
}

#[test]
fn s1_nothing_acts_unless_the_plugin_is_listed() {
    let env = || {
        ["LIMIT", "ENABLED", "FAIL_OPEN"]
            .map(|name| (format!("{ENV_PREFIX}{name}"), "1".to_owned()))
    };
    for text in [
        "",
        "[plugin.ratelimit]\nlimit = 5",
        "[plugins]\nenabled = []\n[plugin.ratelimit]\nlimit = 5",
        "[plugins]\nenabled = [\"cache\", \"ratelimits\"]\n[plugin.ratelimit]\nlimit = 0\nbogus = 1",
        "[plugin.ratelimit]\nenabled = true",
    ] {
        assert!(
            RateLimitConfig::load(text, env()).unwrap().is_none(),
            "{text}"
        );
    }
    assert!(RateLimitConfig::load(ON, []).unwrap().is_some());
}

#[test]
fn s2_the_table_is_read_as_it_is() {
    let config = with("limit = 100\nwindow = 60.0", &[]).unwrap();
    assert_eq!(config.quota().to_string(), "100/1m");
    assert_eq!(config.quota().capacity(), 100);
    assert_eq!(config.policy.name(), "default");
    assert_eq!(config.key_sources, ["subject", "tenant", "api_key", "ip"]);
    assert_eq!(config.on_failure, OnFailure::Open);
    assert_eq!(config.exempt, ["/health", "/ready", "/metrics"]);
    assert_eq!(
        (config.on_invalid, config.on_nobody),
        (OnInvalid::Refuse, OnNobody::Refuse)
    );
    assert!(config.trusted_proxies.is_none() && config.plans.is_empty());
    // All of these are the defaults, too.
    assert_eq!(quota("", &[]), "100/1m");
    assert_eq!(
        quota("limit = 100\nwindow = 60\nburst = 20", &[]),
        "100/1m burst=20"
    );
    assert_eq!(
        with("on_failure = \"local\"", &[]).unwrap().on_failure,
        OnFailure::Local
    );
}

#[test]
fn s2_windows_are_read_exactly() {
    assert_eq!(quota("window = 0.1", &[]), "100/100ms");
    assert_eq!(quota("window = 0.123456", &[]), "100/123456us");
    assert_eq!(quota("window = \"2.5\"", &[]), "100/2500ms");
    // A double would have made 0.1 of it, and said nothing.
    let wrong = mistakes("window = 0.1000000000000000000001", &[]);
    assert!(
        wrong[0].problem.ends_with("the nearest that works is 0.1"),
        "{}",
        wrong[0]
    );
}

#[test]
fn s13_s15_sources_come_in_the_order_of_the_setting_and_api_key_is_silent_without_a_header() {
    let sources = |table: &str, key: &str| {
        let identities = with(table, &[]).unwrap().identities([]).unwrap();
        let mut request = Request::builder()
            .header("x-api-key", key)
            .body(())
            .unwrap();
        let peer = PeerAddr(([192, 0, 2, 1], 1).into());
        request.extensions_mut().insert(peer);
        let (parts, ()) = request.into_parts();
        match identities.identify_now(&parts) {
            Some(Identified::As(it)) => it.source().to_owned(),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(sources("", "k"), "ip");
    assert_eq!(sources("api_key_header = \"X-API-Key\"", "k"), "api_key");
    let ip_first = "api_key_header = \"X-API-Key\"\nkey_sources = [\"ip\", \"api_key\"]";
    assert_eq!(sources(ip_first, "k"), "ip");
    assert_eq!(
        sources("key_sources = [\"header:X-API-Key\"]", "k"),
        "header:x-api-key"
    );
    assert_eq!(
        sources("key_sources = [\"subject\"]\non_nobody = \"share\"", "k"),
        "shared"
    );
}

#[test]
fn a_source_that_the_program_brings_has_its_name_in_the_setting() {
    let config = with("key_sources = [\"session\", \"ip\"]", &[]).unwrap();
    let session: Arc<dyn IdentitySource> =
        Arc::new(crate::identify_by("session", |_| Some("alice")));
    let identities = config.identities([("session", session)]).unwrap();
    let (parts, ()) = Request::new(()).into_parts();
    let answer = identities.identify_now(&parts);
    assert!(matches!(answer, Some(Identified::As(it)) if it.source() == "session"));
    let error = config.identities([]).unwrap_err().to_string();
    assert!(
        error.starts_with("key_sources: \"session\": write one of subject, tenant"),
        "{error}"
    );
}

#[test]
fn s29_fail_open_false_fails_closed() {
    let of = |table: &str| with(table, &[]).unwrap().on_failure;
    assert_eq!(of("fail_open = false"), OnFailure::Closed);
    assert_eq!(of("fail_open = true"), OnFailure::Open);
    assert_eq!(
        of("fail_open = false\non_failure = \"closed\""),
        OnFailure::Closed
    );
    assert_eq!(
        of("fail_open = true\non_failure = \"local\""),
        OnFailure::Local
    );
    let wrong = mistakes("fail_open = false\non_failure = \"open\"", &[]);
    assert_eq!(wrong[0].field, "plugin.ratelimit.on_failure");
}

#[test]
fn s31_every_field_is_a_variable_by_one_rule_and_none_enables() {
    let env = [
        ("LIMIT", "500"),
        ("WINDOW", "0.5"),
        ("BURST", "7"),
        ("NAME", "api"),
        ("KEY_SOURCES", "tenant, ip"),
        ("API_KEY_HEADER", "X-Key"),
        ("API_KEYS_FILE", "/keys"),
        ("FAIL_OPEN", "false"),
        ("ON_INVALID", "skip"),
        ("ON_NOBODY", "share"),
        ("EXEMPT", "[\"/live\"]"),
        ("HEADERS", "triple,ietf"),
        ("IPV4_PREFIX", "24"),
        ("IPV6_PREFIX", "48"),
        ("TRUSTED_PROXIES", "10.0.0.0/8, ::1"),
        ("FORWARDED_HEADER", "Forwarded"),
        ("PLANS", r#"{"pro": "5000/h"}"#),
    ];
    let config = with("limit = 3\nwindow = 1.0\nexempt = []", &env).unwrap();
    assert_eq!(config.quota().to_string(), "500/500ms burst=7");
    assert_eq!(config.policy.name(), "api");
    assert_eq!(config.key_sources, ["tenant", "ip"]);
    assert_eq!(config.api_key_header.as_deref(), Some("x-key"));
    assert_eq!(
        config.api_keys_file.as_deref(),
        Some(std::path::Path::new("/keys"))
    );
    assert_eq!(config.on_failure, OnFailure::Closed);
    assert_eq!(
        (config.on_invalid, config.on_nobody),
        (OnInvalid::Skip, OnNobody::Share)
    );
    assert_eq!(config.exempt, ["/live"]);
    assert_eq!(config.headers, HeaderStyle::IETF | HeaderStyle::TRIPLE);
    assert_eq!(config.prefixes, AddressPrefixes::new(24, 48).unwrap());
    assert!(config.trusted_proxies.is_some());
    assert_eq!(config.plans["pro"].quotas()[0].to_string(), "5000/1h");
    assert_eq!(config.plans["pro"].name(), "api.pro");
    // An empty variable is none; TRUSTED_HOPS and ON_FAILURE exclude others above.
    assert_eq!(quota("limit = 3", &[("LIMIT", "")]), "3/1m");
    assert_eq!(
        with("", &[("ON_FAILURE", "local")]).unwrap().on_failure,
        OnFailure::Local
    );
    assert!(
        with("", &[("TRUSTED_HOPS", "1")])
            .unwrap()
            .trusted_proxies
            .is_some()
    );
    let wrong = mistakes("", &[("ENABLED", "true")]);
    assert_eq!(wrong[0].field, "TOLLGATE_RATELIMIT_ENABLED");
    assert!(wrong[0].problem.contains("plugins.enabled"));
}

#[test]
fn every_mistake_is_named_with_field_value_and_what_to_write() {
    let table = r#"
        limit = 0
        window = 1e3
        burst = "x"
        key_sources = []
        api_key_header = "no name"
        fail_open = "yes"
        on_failure = "maybe"
        on_invalid = 1
        on_nobody = ["share"]
        exempt = ["health"]
        headers = "all"
        ipv4_prefix = 33
        ipv6_prefix = 0
        trusted_proxies = ["10.0.0/8"]
        forwarded_header = "Forwarded"
        plans = { pro = "many" }
        name = "ü"
        limits = 5
        from = 2020-01-01
    "#;
    // What is of no usable type is told first.
    let wrong = mistakes(table, &[]);
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert_eq!(
        (wrong[0].field.as_str(), wrong[0].value.as_str()),
        ("plugin.ratelimit.from", "2020-01-01")
    );
    let wrong = mistakes(
        &table.replace("from = 2020-01-01", ""),
        &[("TRUSTED_HOPS", "-1")],
    );
    for (field, value, fix) in [
        ("plugin.ratelimit.limit", "\"0\"", "1 or more"),
        ("plugin.ratelimit.window", "\"1e3\"", "such as 60 or 0.5"),
        ("plugin.ratelimit.burst", "\"x\"", "1 or more"),
        ("plugin.ratelimit.key_sources", "[]", "leave it out"),
        (
            "plugin.ratelimit.api_key_header",
            "\"no name\"",
            "X-API-Key",
        ),
        ("plugin.ratelimit.fail_open", "\"yes\"", "true or false"),
        (
            "plugin.ratelimit.on_failure",
            "\"maybe\"",
            "open, closed or local",
        ),
        ("plugin.ratelimit.on_invalid", "\"1\"", "refuse or skip"),
        ("plugin.ratelimit.on_nobody", "[\"share\"]", "one value"),
        ("plugin.ratelimit.exempt", "[\"health\"]", "a / in front"),
        ("plugin.ratelimit.headers", "\"all\"", "none of ietf"),
        ("plugin.ratelimit.ipv4_prefix", "\"33\"", "1 to 32"),
        ("plugin.ratelimit.ipv6_prefix", "\"0\"", "1 to 128"),
        (
            "plugin.ratelimit.trusted_proxies",
            "[\"10.0.0/8\"]",
            "10.0.0.0/8",
        ),
        ("TOLLGATE_RATELIMIT_TRUSTED_HOPS", "\"-1\"", "1 or more"),
        (
            "plugin.ratelimit.forwarded_header",
            "\"Forwarded\"",
            "set trusted_proxies",
        ),
        ("plugin.ratelimit.plans", "{\"pro\": \"many\"}", "N/[n]unit"),
        ("plugin.ratelimit.name", "\"ü\"", "printable ASCII"),
        (
            "plugin.ratelimit.limits",
            "(1 characters)",
            "there are name, limit, window",
        ),
    ] {
        let found = wrong.iter().find(|it| it.field == field);
        let found = found.unwrap_or_else(|| panic!("{field} of {wrong:#?}"));
        assert_eq!(found.value, value, "{found}");
        assert!(found.problem.contains(fix), "{found}");
    }
    assert_eq!(wrong.len(), 19, "{wrong:#?}");
}

#[test]
fn what_cannot_be_counted_exactly_is_refused_with_the_nearest_that_can() {
    let wrong = mistakes("limit = 4503599627370495\nwindow = 0.999983", &[]);
    assert!(
        wrong[0]
            .problem
            .contains("the nearest that can is limit = "),
        "{}",
        wrong[0]
    );
    // A smaller bucket makes it possible.
    assert!(
        with(
            "limit = 4503599627370495\nwindow = 0.999983\nburst = 1000",
            &[]
        )
        .is_ok()
    );
}

#[test]
fn text_that_is_no_toml_is_told_by_its_line_only() {
    let text = format!("{ON}[plugin.ratelimit]\npassword = s3cret\n");
    let error = RateLimitConfig::load(&text, []).unwrap_err().to_string();
    assert!(
        error.starts_with("line 4: ") && !error.contains("s3cret"),
        "{error}"
    );
    let wrong = mistakes("password = \"s3cret\"", &[]);
    assert!(!wrong[0].to_string().contains("s3cret"), "{}", wrong[0]);
}

#[test]
fn a_list_of_keys_that_cannot_be_read_is_a_mistake() {
    let table = "api_key_header = \"X-API-Key\"\napi_keys_file = \"/nowhere/keys\"";
    let error = with(table, &[])
        .unwrap()
        .identities([])
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("api_keys_file: \"/nowhere/keys\": it cannot be read"),
        "{error}"
    );
    let wrong = mistakes("api_keys_file = \"/keys\"", &[]);
    assert!(wrong[0].problem.contains("api_key_header"), "{}", wrong[0]);
}

proptest::proptest! {
    #[test]
    fn any_value_is_read_without_a_panic(field in 0..17_usize, value in "\\PC{0,20}") {
        let fields = [
            "LIMIT", "WINDOW", "BURST", "NAME", "KEY_SOURCES", "API_KEY_HEADER", "API_KEYS_FILE",
            "FAIL_OPEN", "ON_FAILURE", "ON_INVALID", "ON_NOBODY", "EXEMPT", "HEADERS",
            "IPV6_PREFIX", "TRUSTED_PROXIES", "TRUSTED_HOPS", "PLANS",
        ];
        let _ = with("", &[(fields[field], &value)]);
    }
}
