//! What `tollgate serve` is told: by a flag, else by `TOLLGATE_*`, else by the name that other
//! gateways use, else by the file, else the default. An empty value in the environment is none.

mod error;
mod file;
mod given;
mod url;
pub(crate) mod values;
pub(crate) mod variables;

use std::fmt;
use std::time::Duration;

use clap::ArgMatches;
use tollgate::{FailurePolicy, Quota};
use tollgate_http::{AddressPrefixes, BodyStyle, HeaderStyle};

pub use error::{ConfigError, Source};
pub use file::{File, Text};
pub(crate) use given::{Given, variable};
pub(crate) use url::shown;
pub use values::Upstream;

use crate::cli::ServeArgs;

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
    /// How much each client may do.
    pub quotas: Vec<Quota>,
    /// How long the backend may take to decide.
    pub timeout: Duration,
    /// What happens to requests while the backend fails.
    pub on_failure: FailurePolicy,
    /// How long a refusal is remembered at most.
    pub remember_refusals: Duration,
    /// What the keys in the backend begin with.
    pub prefix: String,
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
}

impl Settings {
    /// Puts the settings together. `matches` is those of the whole command line; it tells flags
    /// from the environment.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn resolve(args: &ServeArgs, matches: &ArgMatches) -> Result<Self, ConfigError> {
        let file = match args.config.as_deref() {
            Some(path) if !path.as_os_str().is_empty() => File::read(path)?,
            _ => File::default(),
        };
        let given = Given::new(matches, "serve", args.config.as_deref());
        macro_rules! setting {
            ($field:ident, $read:expr) => {
                given.read(
                    stringify!($field),
                    args.$field.as_deref(),
                    file.$field.as_ref(),
                    $read,
                )?
            };
        }
        let ipv4 = setting!(ipv4_prefix, values::ipv4_prefix).unwrap_or(32);
        let ipv6 = setting!(ipv6_prefix, values::ipv6_prefix).unwrap_or(64);
        let (backend, backend_given_by) = given
            .find(
                "backend",
                args.backend.as_deref(),
                file.backend.as_ref(),
                values::text,
            )?
            .map_or_else(|| ("memory://".into(), None), |(url, by)| (url, Some(by)));
        Ok(Self {
            listen: setting!(listen, values::listen).unwrap_or_else(|| "127.0.0.1:8000".into()),
            backend,
            backend_given_by,
            upstream: setting!(upstream, values::upstream),
            quotas: match setting!(quota, values::quotas) {
                Some(quotas) => quotas,
                None => vec![Quota::per_minute(values::HUNDRED)],
            },
            timeout: setting!(timeout, values::duration).unwrap_or(Duration::from_millis(50)),
            on_failure: setting!(on_failure, values::on_failure).unwrap_or(FailurePolicy::Open),
            remember_refusals: setting!(remember_refusals, values::delay)
                .unwrap_or(Duration::from_secs(1)),
            prefix: setting!(prefix, values::text).unwrap_or_else(|| values::SERVICE_PREFIX.into()),
            require_backend_at_start: setting!(require_backend_at_start, values::flag)
                .unwrap_or(true),
            max_keys: setting!(max_keys, values::count).unwrap_or(1_000_000),
            headers: setting!(headers, values::headers).unwrap_or(HeaderStyle::GATEWAY),
            body: setting!(body, values::body).unwrap_or_default(),
            prefixes: AddressPrefixes::new(ipv4, ipv6)
                .expect("both prefixes were checked one by one"),
            upstream_timeout: setting!(upstream_timeout, values::duration).unwrap_or(HALF_MINUTE),
            max_body: setting!(max_body, values::size),
            header_timeout: setting!(header_timeout, values::duration).unwrap_or(HALF_MINUTE),
            max_connections: setting!(max_connections, values::count).unwrap_or(10_000),
            drain_delay: setting!(drain_delay, values::delay).unwrap_or(Duration::from_secs(1)),
            shutdown_timeout: setting!(shutdown_timeout, values::delay).unwrap_or(HALF_MINUTE),
        })
    }
}

const HALF_MINUTE: Duration = Duration::from_secs(30);

/// The backend may hold a password and is left out.
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
