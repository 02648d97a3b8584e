//! What `tollgate serve` is told: by a flag, else by `TOLLGATE_*`, else by the name that other
//! gateways use, else by `.env`, else by the file, else the default. An empty value in the
//! environment is none.
//!
//! To add a setting: a row in [`FIELDS`], a field in [`Settings`] or in one of its parts, and the
//! line in [`Settings::resolve`] that reads it. Flag, variable, schema and help follow from the row;
//! `docs/configuration.md` is compared with it.

mod dotenv;
mod error;
mod file;
mod given;
mod print;
mod proxy;
mod schema;
mod sections;
mod table;
mod unknown;
mod url;
pub(crate) mod values;
pub(crate) mod variables;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use tollgate::{FailurePolicy, Quota};
use tollgate_http::{AddressPrefixes, BodyStyle, HeaderStyle};

pub use error::{ConfigError, Mistakes, Place, Source};
pub(crate) use given::Given;
pub(crate) use proxy::Proxy;
pub use schema::schema;
pub use sections::{Admin, Route, Rules, TraceParent, Traces};
pub use table::{FIELDS, Field, Kind, Secret};
pub(crate) use table::{GLOBAL, variable};
pub(crate) use url::shown;
pub use values::Upstream;

use crate::cli::LogFormat;
use crate::identity::Resolver;
use crate::log::Level;
use crate::traces;

/// Everything that `serve` needs to know, checked.
#[derive(Clone)]
pub struct Settings {
    /// Address and port to listen on.
    pub listen: String,
    /// Where counters live. May hold a password.
    pub backend: String,
    /// By what the backend was given; `None` for the default.
    pub backend_given_by: Option<Source>,
    /// Where admitted requests go.
    pub upstream: Option<Upstream>,
    /// Where those for some paths or hosts go.
    pub upstreams: Vec<Route>,
    /// How much a client may do that no rule is about.
    pub quotas: Vec<Quota>,
    /// How long the backend may take to decide.
    pub timeout: Duration,
    /// What happens to requests while the backend fails.
    pub on_failure: FailurePolicy,
    /// How long a refusal is remembered at most.
    pub remember_refusals: Duration,
    /// What the keys in the backend begin with.
    pub prefix: String,
    /// What keys are hashed with.
    pub key_secret: Option<String>,
    /// Whether to exit when the backend cannot be reached at start.
    pub require_backend_at_start: bool,
    /// The most clients that the memory backend tells apart.
    pub max_keys: u64,
    /// Rate limit headers.
    pub headers: HeaderStyle,
    /// Bodies of refusals.
    pub body: BodyStyle,
    /// How much of an address is one client.
    pub prefixes: AddressPrefixes,
    /// How long the upstream may take to begin its answer.
    pub upstream_timeout: Duration,
    /// The largest request body.
    pub max_body: Option<u64>,
    /// How long a client may take to send the head of a request, or take no part of an answer.
    pub header_timeout: Duration,
    /// The most connections at once.
    pub max_connections: usize,
    /// How long to keep serving after SIGTERM.
    pub drain_delay: Duration,
    /// How long requests in flight may take when stopping.
    pub shutdown_timeout: Duration,
    /// The least severe messages that are logged.
    pub log: Level,
    /// How they are written.
    pub log_format: LogFormat,
    /// Whether requests are measured.
    pub metrics: bool,
    /// How requests are passed on.
    pub(crate) proxy: Proxy,
    /// Rules, usage, metrics and documentation.
    pub admin: Admin,
    /// Whom requests count for.
    pub(crate) identity: crate::identity::Options,
    /// Where rules come from.
    pub rules: Rules,
    /// Where spans of requests are sent, if anywhere.
    pub traces: Option<Traces>,
}

impl Settings {
    /// Puts the settings together. `matches` is those of the whole command line.
    ///
    /// # Errors
    /// Every setting that cannot be used.
    pub fn resolve(config: Option<PathBuf>, matches: &ArgMatches) -> Result<Self, Mistakes> {
        Self::read(&Given::new(matches, "serve").with_file(config))
    }

    pub(crate) fn read(given: &Given<'_>) -> Result<Self, Mistakes> {
        let (backend, backend_given_by) = match given.sourced("backend", values::text) {
            Some((backend, by)) => (backend, Some(by)),
            None => (Given::default("backend", values::text), None),
        };
        let ipv4 = given.value("ipv4_prefix", values::ipv4_prefix);
        let ipv6 = given.value("ipv6_prefix", values::ipv6_prefix);
        let prefixes =
            AddressPrefixes::new(ipv4, ipv6).expect("both prefixes were checked one by one");
        let settings = Self {
            listen: given.value("listen", values::listen),
            backend,
            backend_given_by,
            upstream: given.optional("upstream", values::upstream),
            upstreams: sections::upstreams(given),
            quotas: quotas(given),
            timeout: given.value("timeout", values::duration),
            on_failure: given.value("on_failure", values::on_failure),
            remember_refusals: given.value("remember_refusals", values::delay),
            prefix: given.value("prefix", values::text),
            key_secret: given.optional("key_secret", values::secret),
            require_backend_at_start: given.value("require_backend_at_start", values::flag),
            max_keys: given.value("max_keys", values::count),
            headers: given.value("headers", values::headers),
            body: given.value("body", values::body),
            prefixes,
            upstream_timeout: given.value("upstream_timeout", values::duration),
            max_body: given.optional("max_body", values::size),
            header_timeout: given.value("header_timeout", values::duration),
            max_connections: given.value("max_connections", values::count),
            drain_delay: given.value("drain_delay", values::delay),
            shutdown_timeout: given.value("shutdown_timeout", values::delay),
            log: given.value("log", values::level),
            log_format: given.value("log_format", values::log_format),
            metrics: given.value("metrics", values::flag),
            proxy: Proxy::read(given),
            admin: Admin::read(given),
            identity: sections::identity(given, prefixes),
            rules: Rules::read(given),
            traces: Traces::read(given, traces::ARE_THERE),
        };
        sections::listens_apart(given, &settings);
        if let Err(problem) = Resolver::new(settings.identity.clone()) {
            given.mistake(given.placed(problem));
        }
        given.finish().map(|()| settings)
    }
}

/// The quota of those whom no rule is about: as quotas, or as a limit and a window. Whichever was
/// given by what counts first.
fn quotas(given: &Given<'_>) -> Vec<Quota> {
    let quotas = given.sourced("quota", values::quotas);
    let limit = given.sourced("default_limit", values::count::<u64>);
    let window = given.sourced("default_window_seconds", values::count::<u64>);
    let numbers = [limit.as_ref(), window.as_ref()].into_iter().flatten();
    let first = numbers
        .map(|(_, by)| by)
        .min_by_key(|by| by.rank())
        .cloned();
    if let Some((quotas, by)) = quotas {
        match &first {
            Some(other) if other.rank() < by.rank() => {}
            Some(other) if other.rank() == by.rank() => given.mistake(ConfigError::Value {
                source_of: by,
                value: "the quota".into(),
                problem: format!("{other} says the same in other words; leave one of them out"),
            }),
            _ => return quotas,
        }
    }
    let limit = limit.map(|(limit, _)| limit);
    let limit = limit.unwrap_or_else(|| Given::default("default_limit", values::count));
    let seconds = window.map(|(seconds, _)| seconds);
    let seconds =
        seconds.unwrap_or_else(|| Given::default("default_window_seconds", values::count));
    match (
        Quota::sliding_log(limit, Duration::from_secs(seconds)),
        first,
    ) {
        (Ok(quota), _) => vec![quota],
        (Err(error), Some(source_of)) => {
            given.mistake(ConfigError::Value {
                source_of,
                value: format!("{limit} in {seconds} s"),
                problem: error.to_string(),
            });
            Vec::new()
        }
        (Err(_), None) => unreachable!("the defaults make a quota"),
    }
}

/// Secrets are left out.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("listen", &self.listen)
            .field("upstream", &self.upstream)
            .field("quotas", &self.quotas)
            .field("timeout", &self.timeout)
            .field("on_failure", &self.on_failure)
            .field("prefix", &self.prefix)
            .field("require_backend_at_start", &self.require_backend_at_start)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
