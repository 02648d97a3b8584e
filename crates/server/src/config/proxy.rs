//! How requests are passed on.

use std::path::PathBuf;
use std::time::Duration;

use tollgate_http::{ForwardedBy, TrustedProxies};

use super::{ConfigError, Given, Source, values};
use crate::serve::Cors;

/// How requests are passed on.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    /// How many threads serve.
    pub(crate) workers: usize,
    /// How long a connection to the upstream may take to be made.
    pub(crate) connect_timeout: Duration,
    /// How long an answer may pause.
    pub(crate) idle_timeout: Duration,
    /// How long a request may take, to the last byte of its answer.
    pub(crate) request_timeout: Option<Duration>,
    /// How often a request is sent again.
    pub(crate) retries: u32,
    /// Authorities that upstreams may have their certificates from, besides the system's.
    pub(crate) upstream_ca: Option<PathBuf>,
    /// Whose word counts for who the client is.
    pub(crate) trusted: Option<TrustedProxies>,
    /// The header in which they say it.
    pub(crate) forwarded_by: ForwardedBy,
    /// Whether every request is logged.
    pub(crate) access_log: bool,
    /// Whether refused WebSockets are accepted and closed.
    pub(crate) ws_close: bool,
    /// Certificate and key, to speak TLS.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    /// Which pages of browsers may ask.
    pub(crate) cors: Option<Cors>,
}

impl Proxy {
    pub(super) fn read(given: &Given<'_>) -> Self {
        let workers = given.optional("workers", values::count);
        let forwarded_by = given.value("forwarded_by", values::forwarded_by);
        let trusted = given.optional("trusted_proxies", values::proxies);
        let path = |field| given.optional(field, values::text).map(PathBuf::from);
        Self {
            workers: workers
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
            connect_timeout: given.value("connect_timeout", values::duration),
            idle_timeout: given.value("idle_timeout", values::duration),
            request_timeout: given.optional("request_timeout", values::duration),
            retries: given.value("retries", values::few),
            upstream_ca: path("upstream_ca"),
            trusted: trusted.map(|trusted| trusted.forwarded_by(forwarded_by.clone())),
            forwarded_by,
            access_log: given.value("access_log", values::flag),
            ws_close: given.value("ws_close", values::flag),
            tls: tls(given),
            cors: cors(given),
        }
    }
}

fn tls(given: &Given<'_>) -> Option<(PathBuf, PathBuf)> {
    let certificate = given.sourced("tls.certificate", values::text);
    let key = given.sourced("tls.key", values::text);
    let alone = |(path, source_of): (String, Source), other: &str| {
        given.mistake(ConfigError::Value {
            source_of,
            value: format!("{path:?}"),
            problem: format!("it is given without {other}; give both"),
        });
        None
    };
    match (certificate, key) {
        (Some((certificate, _)), Some((key, _))) => Some((certificate.into(), key.into())),
        (Some(certificate), None) => alone(certificate, "tls.key"),
        (None, Some(key)) => alone(key, "tls.certificate"),
        (None, None) => None,
    }
}

fn cors(given: &Given<'_>) -> Option<Cors> {
    let origins = given.optional("cors.origins", values::origins);
    let methods = given.value("cors.methods", values::words);
    let headers = given.optional("cors.headers", values::words);
    let credentials = given.value("cors.credentials", values::flag);
    let max_age = given.value("cors.max_age", values::delay);
    let origins = origins?;
    if origins.is_none() && credentials {
        apart(
            given,
            "cors.credentials does not go with cors.origins = \"*\": any page could then act for \
             its visitor; name the origins",
        );
    }
    Some(Cors::new(origins, methods, headers, credentials, max_age))
}

fn apart(given: &Given<'_>, problem: &str) {
    given.mistake(ConfigError::Together(problem.into()));
}
