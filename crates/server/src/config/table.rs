//! The one table of settings: the command line, the variables, the file, its schema and the page
//! docs/configuration.md are all made of it.

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its place in the file: `listen`, or `admin.listen` for `listen` in the table `[admin]`.
    pub path: &'static str,
    /// What can be written.
    pub kind: Kind,
    /// What holds when nothing is given, as one would write it.
    pub default: Option<&'static str>,
    /// A variable without a prefix, as other gateways call it. It counts after `TOLLGATE_*`.
    pub bare: Option<&'static str>,
    /// Whether it may be shown.
    pub secret: Secret,
    /// What it is, in a sentence without its full stop.
    pub help: &'static str,
}

/// What can be written for a setting.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number that is not negative.
    Number,
    /// A number and a unit, such as `50ms`.
    Duration,
    /// Bytes, or a number of KiB, MiB or GiB.
    Size,
    /// A number from 0 to 1.
    Ratio,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Texts: a list, or joined by commas.
    List,
    /// Networks, as a list of texts; or how many there are.
    Proxies,
    /// Tables, each with these fields.
    Tables(&'static [Field]),
}

impl Kind {
    /// Whether texts may be written for it: as a list, or joined by commas.
    #[must_use]
    pub const fn is_list(self) -> bool {
        matches!(self, Self::List | Self::Proxies)
    }
}

/// Whether a setting may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// It may.
    No,
    /// A URL, of which the login is hidden.
    Url,
    /// Nothing of it.
    Whole,
}

impl Field {
    const fn new(path: &'static str, kind: Kind, help: &'static str) -> Self {
        Self {
            path,
            kind,
            default: None,
            bare: None,
            secret: Secret::No,
            help,
        }
    }

    const fn default(mut self, text: &'static str) -> Self {
        self.default = Some(text);
        self
    }

    const fn bare(mut self, name: &'static str) -> Self {
        self.bare = Some(name);
        self
    }

    const fn secret(mut self, secret: Secret) -> Self {
        self.secret = secret;
        self
    }

    /// Its flag, without the dashes before it.
    #[must_use]
    pub fn flag(&self) -> String {
        self.path.replace(['.', '_'], "-")
    }

    /// Its variable.
    #[must_use]
    pub fn variable(&self) -> String {
        variable(self.path)
    }

    /// The table it is in, and its name there.
    #[must_use]
    pub fn place(&self) -> (Option<&'static str>, &'static str) {
        match self.path.split_once('.') {
            Some((table, name)) => (Some(table), name),
            None => (None, self.path),
        }
    }

    /// A value as it may be shown.
    pub(super) fn shown(&self, text: &str) -> String {
        match self.secret {
            Secret::Whole => "***".into(),
            Secret::Url if text.contains("://") || text.contains('@') || self.path == "backend" => {
                super::shown(text).unwrap_or_else(|| "the URL".into())
            }
            _ => format!("{text:?}"),
        }
    }

    /// Whether this is what is shown in the place of a secret.
    pub(super) fn is_hidden(&self, text: &str) -> bool {
        match self.secret {
            Secret::No => false,
            Secret::Whole => text.trim() == "***",
            Secret::Url => super::url::is_hidden(text),
        }
    }
}

/// The variable of a setting.
pub(crate) fn variable(path: &str) -> String {
    format!("TOLLGATE_{}", path.replace('.', "_").to_uppercase())
}

/// The setting of this path.
pub(crate) fn field(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}

/// Settings that every command has, and that are flags of the program.
pub(crate) const GLOBAL: [&str; 2] = ["log", "log_format"];

use Field as F;
use Kind::{Bool, Choice, Duration, List, Number, Proxies, Ratio, Size, Tables, Text};

/// Every setting of `tollgate serve`, in the order in which they are shown.
pub static FIELDS: &[Field] = &[
    F::new("listen", Text, "Address and port to listen on; port 0 takes a free one, which is printed").default("127.0.0.1:8000"),
    F::new("backend", Text, "Where counters and rules live; may hold a password, so better set by the environment").default("memory://").bare("REDIS_URL").secret(Secret::Url),
    F::new("upstream", Text, "Where admitted requests go, such as http://127.0.0.1:3000; without one they get a demo answer").bare("UPSTREAM_BASE_URL").secret(Secret::Url),
    F::new("upstreams", Tables(UPSTREAM), "Upstreams for some paths or hosts, before the one of all"),
    F::new("quota", List, "How much a client may do that no rule is about, such as 100/60s; up to 16. It stands in the place of default_limit and default_window_seconds"),
    F::new("default_limit", Number, "How many requests a client may make that no rule is about").default("100").bare("DEFAULT_LIMIT"),
    F::new("default_window_seconds", Number, "Within how many seconds (the exact log)").default("60").bare("DEFAULT_WINDOW_SECONDS"),
    F::new("timeout", Duration, "How long the backend may take to decide").default("50ms"),
    F::new("on_failure", Choice(&["open", "closed", "local"]), "What happens to requests while the backend fails: open admits them, closed refuses them (503), local counts in this process").default("open"),
    F::new("remember_refusals", Duration, "How long a refused client is refused by this process alone, without asking the backend: the time within which a reset elsewhere helps it. 0 asks each time").default("1s"),
    F::new("prefix", Text, "What the keys in the backend begin with").default("rate-limit"),
    F::new("key_secret", Text, "Keys hold HMAC-SHA-256 by this secret, not plain digests: phone numbers and addresses cannot be found by trying all").secret(Secret::Whole),
    F::new("require_backend_at_start", Bool, "Whether to exit when the backend cannot be reached at start. A wrong password or an unsupported version always ends the program").default("true"),
    F::new("max_keys", Number, "The most clients that the memory backend tells apart; those beyond share one counter").default("1000000"),
    F::new("headers", List, "Rate limit headers on answers: ietf, triple and x-ratelimit, or none").default("ietf,x-ratelimit"),
    F::new("body", Choice(&["problem", "plain"]), "Bodies of refusals: application/problem+json or application/json").default("problem"),
    F::new("ipv4_prefix", Number, "How many leading bits of an IPv4 address are one client").default("32"),
    F::new("ipv6_prefix", Number, "How many leading bits of an IPv6 address are one client").default("64"),
    F::new("upstream_timeout", Duration, "How long the upstream may take to begin its answer once it has the request").default("30s"),
    F::new("connect_timeout", Duration, "How long a connection to the upstream may take to be made").default("5s"),
    F::new("idle_timeout", Duration, "How long the upstream may pause within an answer, and a WebSocket be silent").default("5m"),
    F::new("request_timeout", Duration, "How long a request may take, to the last byte of its answer. Without it no bound"),
    F::new("retries", Number, "How often a request is sent again that the upstream did not answer: only those without a body whose method may be repeated, and any that was not sent at all").default("0"),
    F::new("upstream_ca", Text, "A file of certificates (PEM) that upstreams may have theirs from, besides the system's"),
    F::new("trusted_proxies", Proxies, "Proxies in front of this program whose word for the client's address counts: networks such as 10.0.0.0/8, or how many there are"),
    F::new("forwarded_by", Text, "The header in which they say it: X-Forwarded-For, Forwarded, or one of their own").default("X-Forwarded-For"),
    F::new("workers", Number, "How many threads serve requests. Without it one a processor"),
    F::new("access_log", Bool, "Whether every request is logged, at level info").default("true"),
    F::new("ws_close", Bool, "Whether a WebSocket that is refused is accepted and closed with a reason (1008 or 1013), which scripts can read, in the place of 429 or 503").default("false"),
    F::new("max_body", Size, "The largest request body; more is 413. Without it no bound: bodies are streamed, never held in memory"),
    F::new("header_timeout", Duration, "How long a client may take to send the head of a request, may be idle between requests, and may take no part of an answer").default("30s"),
    F::new("max_connections", Number, "The most connections at once; more wait to be accepted").default("10000"),
    F::new("drain_delay", Duration, "After SIGTERM, how long to keep serving while /ready says 503, so that balancers notice").default("1s"),
    F::new("shutdown_timeout", Duration, "When stopping, how long requests in flight may take to finish").default("30s"),
    F::new("log", Text, "The least severe messages that are logged: error, warn, info, debug, trace or off; Python's names work too").default("info").bare("LOG_LEVEL"),
    F::new("log_format", Choice(&["text", "json"]), "One message a line, as text or as JSON").default("text"),
    F::new("metrics", Bool, "Whether requests are measured; without, /metrics is empty").default("true").bare("METRICS_ENABLED"),

    F::new("tls.certificate", Text, "A file with the certificate of the main listener and its chain (PEM): it speaks TLS then. It is read again when it changes"),
    F::new("tls.key", Text, "A file with its private key (PEM)"),

    F::new("cors.origins", List, "Which pages of browsers may ask, by origin such as https://shop.example; * is all. Their preflights are answered here, and not limited"),
    F::new("cors.methods", List, "What they may ask with").default("GET,HEAD,POST,PUT,PATCH,DELETE"),
    F::new("cors.headers", List, "Which headers they may send. Without it all"),
    F::new("cors.credentials", Bool, "Whether they may send cookies").default("false"),
    F::new("cors.max_age", Duration, "How long a browser may remember that it may ask").default("10m"),

    F::new("admin.listen", Text, "An address and port of its own for rules, usage, metrics and documentation; the main one then has only /health and /ready of them"),
    F::new("admin.token", Text, "What Authorization: Bearer must hold to use them").bare("ADMIN_TOKEN").secret(Secret::Whole),
    F::new("admin.open", Bool, "Whether they need no token. Publish the port to nobody then").default("false").bare("ADMIN_OPEN"),

    F::new("identity.order", List, "Whom a request counts for: the first of these that it has. api_key, ip_address, user_id, jwt_sub, phone, oauth_account, custom, global. Naming a type that is a header trusts that header").default("ip_address").bare("IDENTITY_RESOLUTION_ORDER"),
    F::new("identity.api_key_header", Text, "The header of api_key").default("X-API-Key").bare("API_KEY_HEADER"),
    F::new("identity.user_id_header", Text, "The header of user_id").default("X-User-ID").bare("USER_ID_HEADER"),
    F::new("identity.phone_header", Text, "The header of phone").default("X-Phone").bare("PHONE_HEADER"),
    F::new("identity.oauth_account_header", Text, "The header of oauth_account").default("X-OAuth-Account").bare("OAUTH_ACCOUNT_HEADER"),
    F::new("identity.api_keys", Text, "A file of API keys, one a line, as their digests. Without it the header is believed"),
    F::new("identity.stored_keys", Bool, "Whether API keys are kept in the store as their digests, and made and removed at /v1/keys").default("false"),
    F::new("identity.custom", Text, "Where the type custom is found: header:NAME, cookie:NAME, query:NAME or jwt:/pointer/to/claim"),
    F::new("identity.phone_region", Text, "The country of phone numbers without a country code, such as DE"),
    F::new("identity.on_invalid", Choice(&["refuse", "skip"]), "What becomes of a credential that is there and not valid: 401, or the next type of the order").default("refuse"),
    F::new("identity.forward_as", Text, "A header in which the upstream is told whom the request counts for, such as X-User-Id: a user, the subject of a token, the owner of a key. What clients send in it is dropped; for addresses and global it is left out"),

    F::new("jwt.issuer", Text, "Who signs tokens; with audience and keys it sets up jwt_sub"),
    F::new("jwt.audience", Text, "For whom tokens must be"),
    F::new("jwt.jwks_url", Text, "Where the key set is").secret(Secret::Url),
    F::new("jwt.key_file", Text, "A file with the public key (PEM), in the place of a key set"),
    F::new("jwt.algorithms", List, "How tokens may be signed, such as RS256"),
    F::new("jwt.claim", Text, "The claim that is the subject").default("sub"),
    F::new("jwt.plan_claim", Text, "The claim that names a plan"),

    F::new("rules.file", Text, "A file of rules, YAML or JSON, read at start and whenever it changes").bare("RULES_FILE"),
    F::new("rules.cache_ttl_seconds", Number, "How old rules in this process may be that another process has changed, where the store tells nobody").default("30").bare("RULE_CACHE_TTL_SECONDS"),

    F::new("traces.endpoint", Text, "Where a collector of OpenTelemetry takes traces by OTLP (HTTP), such as http://127.0.0.1:4318; without one there are none. Only in a program with the feature otlp").bare("OTEL_EXPORTER_OTLP_ENDPOINT").secret(Secret::Url),
    F::new("traces.service_name", Text, "What this service is called in them").default("tollgate").bare("OTEL_SERVICE_NAME"),
    F::new("traces.sample_ratio", Ratio, "Which part of the traces that begin here is sent, from 0 to 1").default("1").bare("OTEL_TRACES_SAMPLER_ARG"),
    F::new("traces.parent", Choice(&["trusted", "all", "none"]), "Whose header traceparent is believed: a trace that it names is continued, and sent if it says so").default("trusted"),
];

/// The fields of `[[upstreams]]`.
static UPSTREAM: &[Field] = &[
    F::new("url", Text, "Where these requests go").secret(Secret::Url),
    F::new(
        "path",
        Text,
        "Requests for this path, or beginning with what is before a final /*",
    ),
    F::new("host", Text, "Requests for this host"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_not_taken_twice() {
        let mut names = BTreeSet::new();
        for field in FIELDS {
            assert!(names.insert(field.flag()), "{}", field.path);
            assert!(names.insert(field.variable()), "{}", field.path);
            assert!(field.bare.is_none_or(|bare| names.insert(bare.into())));
            assert!(!field.help.ends_with('.'), "{}", field.path);
            let tables = FIELDS.iter().filter(|it| it.place().0 == Some(field.path));
            assert_eq!(tables.count(), 0, "{} is a table, too", field.path);
        }
    }
}
