//! The tables of the file, each a part of the settings.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate_http::AddressPrefixes;

use super::{ConfigError, Given, Settings, Upstream, values};
use crate::identity::{KeyFile, Options, TokenOptions};

/// Where requests for some paths or for a host go: a table of `[[upstreams]]`.
#[derive(Clone, Debug)]
pub struct Route {
    /// Where they go.
    pub url: Upstream,
    /// A path, or one that ends with `/*`. `None` is every path.
    pub path: Option<String>,
    /// A host, in lower case. `None` is every host.
    pub host: Option<String>,
}

pub(super) fn upstreams(given: &Given<'_>) -> Vec<Route> {
    let routes = given.tables("upstreams", |item| {
        // Each is read before one that is missing ends it.
        let url = item.required("url", values::upstream);
        let path = item.optional("path", values::path_pattern);
        let host = item.optional("host", values::host);
        let route = Route {
            url: url?,
            path,
            host,
        };
        if !item.has("path") && !item.has("host") {
            item.wrong("it has neither path nor host; the one of all is upstream");
        }
        Some(route)
    });
    routes.into_iter().flatten().collect()
}

/// `[admin]`: rules, usage, metrics and documentation.
#[derive(Clone)]
pub struct Admin {
    /// An address of its own.
    pub listen: Option<String>,
    /// What must be shown to use it.
    pub token: Option<String>,
    /// Whether nothing must.
    pub open: bool,
}

impl Admin {
    pub(super) fn read(given: &Given<'_>) -> Self {
        Self {
            listen: given.optional("admin.listen", values::listen),
            token: given.optional("admin.token", values::token),
            open: given.value("admin.open", values::flag),
        }
    }
}

/// The token is left out.
impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("listen", &self.listen)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

/// Two listeners need two addresses; the system would only say that one is in use.
pub(super) fn listens_apart(given: &Given<'_>, settings: &Settings) {
    let Some(admin) = &settings.admin.listen else {
        return;
    };
    if overlap(&settings.listen, admin) {
        given.mistake(given.placed(format!(
            "admin.listen: listen has this address, too ({}); write another port, or leave it out \
             to serve both at listen",
            settings.listen
        )));
    }
}

fn overlap(a: &str, b: &str) -> bool {
    let (Ok(a), Ok(b)) = (a.parse::<SocketAddr>(), b.parse::<SocketAddr>()) else {
        // Names are not looked up here.
        return a == b && !a.ends_with(":0");
    };
    let holds = |all: SocketAddr, one: SocketAddr| {
        all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4())
    };
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || holds(a, b) || holds(b, a))
}

/// `[identity]` and `[jwt]`: whom requests count for.
pub(super) fn identity(given: &Given<'_>, prefixes: AddressPrefixes) -> Options {
    Options {
        order: given.value("identity.order", values::identity_order),
        api_key_header: given.value("identity.api_key_header", values::header_name),
        api_keys: given.optional("identity.api_keys", |path| KeyFile::read(Path::new(path))),
        stored_keys: given.value("identity.stored_keys", values::flag),
        user_id_header: given.value("identity.user_id_header", values::header_name),
        phone_header: given.value("identity.phone_header", values::header_name),
        phone_region: given.optional("identity.phone_region", str::parse),
        oauth_account_header: given.value("identity.oauth_account_header", values::header_name),
        tokens: tokens(given),
        custom: given.optional("identity.custom", str::parse),
        forward_as: given.optional("identity.forward_as", values::own_header),
        skip_invalid: given.value("identity.on_invalid", values::skip_invalid),
        prefixes,
    }
}

/// What tokens must be, if anything says so.
fn tokens(given: &Given<'_>) -> Option<TokenOptions> {
    let issuer = given.sourced("jwt.issuer", values::text);
    let audience = given.sourced("jwt.audience", values::text);
    let jwks_url = given.sourced("jwt.jwks_url", values::text);
    let key_file = given.sourced("jwt.key_file", values::text);
    let algorithms = given.optional("jwt.algorithms", values::jwt_algorithms);
    let claim = given.value("jwt.claim", values::text);
    let plan_claim = given.optional("jwt.plan_claim", values::text);
    let all = [&issuer, &audience, &jwks_url, &key_file];
    let (_, by) = all.into_iter().flatten().next()?.clone();
    let wrong = |problem: &str| {
        given.mistake(ConfigError::Value {
            source_of: by.clone(),
            value: "tokens".into(),
            problem: problem.into(),
        });
    };
    if issuer.is_none() {
        wrong("nothing says who signs them; set jwt.issuer");
    }
    if audience.is_none() {
        wrong("nothing says for whom they are; set jwt.audience");
    }
    match (&jwks_url, &key_file) {
        (None, None) => {
            wrong("they cannot be verified without keys; set jwt.jwks_url or jwt.key_file");
        }
        (Some(_), Some(_)) => {
            wrong("jwt.jwks_url and jwt.key_file are both given; keep one of them");
        }
        _ => {}
    }
    Some(TokenOptions {
        issuer: issuer?.0,
        audience: audience?.0,
        jwks_url: jwks_url.map(|(url, _)| url),
        key_file: key_file.map(|(path, _)| path.into()),
        algorithms: algorithms.unwrap_or_default(),
        claim,
        plan_claim,
    })
}

/// `[rules]`: where rules come from.
#[derive(Clone, Debug)]
pub struct Rules {
    /// A file that is read at start and when it changes.
    pub file: Option<PathBuf>,
    /// How old rules may be that another process has changed.
    pub cache_ttl: Duration,
}

impl Rules {
    pub(super) fn read(given: &Given<'_>) -> Self {
        Self {
            file: given
                .optional("rules.file", values::text)
                .map(PathBuf::from),
            cache_ttl: Duration::from_secs(given.value("rules.cache_ttl_seconds", values::count)),
        }
    }
}

/// `[traces]`: where spans of requests are sent.
#[derive(Clone, Debug)]
pub struct Traces {
    /// The collector.
    pub endpoint: Upstream,
    /// What this service is called there.
    pub service_name: String,
    /// Which part of the traces that begin here is sent.
    pub sample_ratio: f64,
    /// Whose traces are continued.
    pub parent: TraceParent,
}

/// Whose word counts for the trace that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceParent {
    /// That of proxies in front of this program.
    Trusted,
    /// Everybody's.
    All,
    /// Nobody's: every request begins a trace.
    None,
}

impl Traces {
    /// `are_there`: whether this program can send any.
    pub(super) fn read(given: &Given<'_>, are_there: bool) -> Option<Self> {
        let endpoint = given.sourced("traces.endpoint", values::upstream);
        let service_name = given.value("traces.service_name", values::text);
        let sample_ratio = given.value("traces.sample_ratio", values::ratio);
        let parent = given.value("traces.parent", values::trace_parent);
        let (endpoint, source_of) = endpoint?;
        if !are_there {
            given.mistake(ConfigError::Value {
                source_of,
                value: format!("{:?}", endpoint.to_string()),
                problem: "this build of the program sends no traces; build it with --features \
                          otlp, or leave it out"
                    .into(),
            });
        }
        Some(Self {
            endpoint,
            service_name,
            sample_ratio,
            parent,
        })
    }
}
