//! The settings of a rate limit as text: TOML and the environment.

mod decimal;
mod error;
#[cfg(feature = "jwt")]
mod jwt;
mod raw;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tollgate_core::{Policy, Quota};

use crate::{
    AddressPrefixes, ApiKeys, Cookie, Header, HeaderStyle, Identities, IdentitySource, Ip,
    OnInvalid, OnNobody, Subject, Tenant, TrustedProxies,
};

pub use error::{ConfigError, Mistake};
#[cfg(feature = "jwt")]
pub use jwt::{JwtConfig, JwtKeySource};
pub use raw::environment;

/// What the environment variables of the settings begin with.
pub const ENV_PREFIX: &str = "TOLLGATE_RATELIMIT_";

/// What is answered while the store does not decide. `tollgate::FailurePolicy` is made of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Requests are admitted.
    #[default]
    Open,
    /// Requests are refused (503).
    Closed,
    /// Each process counts by itself.
    Local,
}

/// The settings of a rate limit, checked.
///
/// They are the table `[plugin.ratelimit]` of a TOML document, and they act only if
/// `plugins.enabled` lists `ratelimit`: nothing else switches them on. Every field is also a
/// variable of the environment, `TOLLGATE_RATELIMIT_` and its name in capitals, which wins over
/// the document; an empty variable is none. Lists are written with commas there, or as JSON, and
/// tables as JSON.
///
/// | field | default | |
/// |---|---|---|
/// | `limit` | `100` | requests a window |
/// | `window` | `60.0` | seconds, with at most 6 decimal places, read exactly |
/// | `burst` | the limit | the most at once |
/// | `name` | `"default"` | the name of the policy |
/// | `key_sources` | `["subject", "tenant", "api_key", "ip"]` | who is limited; the first that answers wins. Also `cookie:NAME`, `header:NAME`, `path:NAME`, `jwt` (with the feature), and the names of sources that the program brings |
/// | `api_key_header` | none | the header of API keys; without it `api_key` is silent |
/// | `api_keys_file` | none | the keys that are known, see [`ApiKeys::with_list`]; without it upstream must have verified them |
/// | `fail_open` | `true` | whether requests are admitted while the store fails; else 503 |
/// | `on_failure` | by `fail_open` | `"open"`, `"closed"` or `"local"` |
/// | `on_invalid` | `"refuse"` | what an invalid credential does: 401, or `"skip"` to the next source |
/// | `on_nobody` | `"refuse"` | what happens if no source answers: 401, or one budget for all by `"share"` |
/// | `exempt` | `["/health", "/ready", "/metrics"]` | paths that are not limited |
/// | `headers` | `"ietf"` | see [`HeaderStyle`] |
/// | `ipv4_prefix` | `32` | how many leading bits of an IPv4 address are one client |
/// | `ipv6_prefix` | `64` | the same of IPv6 |
/// | `trusted_proxies` | none | networks whose forwarding header is believed |
/// | `trusted_hops` | none | or how many proxies stand before the service |
/// | `forwarded_header` | `"X-Forwarded-For"` | the header that they write |
/// | `plans` | none | a table of plans and their quotas: `pro = "5000/h"` |
/// | `jwt_issuer`, `jwt_audience`, `jwt_algorithms` and more | none | tokens for the source `jwt`, see `JwtConfig` (feature `jwt`) |
///
/// ```
/// use tollgate_http::RateLimitConfig;
///
/// let text = r#"
///     [plugins]
///     enabled = ["cache", "ratelimit"]
///     [plugin.ratelimit]
///     limit = 100
///     window = 60.0
/// "#;
/// let env = [("TOLLGATE_RATELIMIT_LIMIT".to_owned(), "500".to_owned())];
/// let config = RateLimitConfig::load(text, env)?.expect("it is enabled");
/// assert_eq!(config.policy.quotas()[0].to_string(), "500/1m");
/// assert!(RateLimitConfig::load("[plugin.ratelimit]\nlimit = 5", [])?.is_none());
/// # Ok::<(), tollgate_http::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RateLimitConfig {
    /// The limit: name and quota.
    pub policy: Policy,
    /// Who is limited, in order.
    pub key_sources: Vec<String>,
    /// The header of API keys.
    pub api_key_header: Option<String>,
    /// The list of API keys.
    pub api_keys_file: Option<PathBuf>,
    /// What is answered while the store fails.
    pub on_failure: OnFailure,
    /// What an invalid credential does.
    pub on_invalid: OnInvalid,
    /// What happens if no source answers.
    pub on_nobody: OnNobody,
    /// Paths that are not limited.
    pub exempt: Vec<String>,
    /// Rate limit headers.
    pub headers: HeaderStyle,
    /// How much of an address is one client.
    pub prefixes: AddressPrefixes,
    /// The proxies that are trusted.
    pub trusted_proxies: Option<TrustedProxies>,
    /// The quotas of plans, by their names: each is a policy of its own.
    pub plans: BTreeMap<String, Policy>,
    /// The tokens of the source `jwt`.
    #[cfg(feature = "jwt")]
    pub jwt: Option<JwtConfig>,
}

/// A source that the program brings, under the name that `key_sources` may use.
pub type NamedSource = (&'static str, Arc<dyn IdentitySource>);

impl RateLimitConfig {
    /// Reads the settings from a TOML document and the environment; [`environment`] gives those of
    /// the process. `None`: it is not enabled, and nothing was looked at.
    ///
    /// # Errors
    /// All mistakes at once, each with the field, its value and what to write.
    pub fn load(
        toml: &str,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Option<Self>, ConfigError> {
        raw::Settings::read(toml, env)?
            .map(read::checked)
            .transpose()
    }

    /// The sources of `key_sources`, in order, with those that the program brings.
    ///
    /// # Errors
    /// A name that no source has, and a list of API keys that cannot be read.
    pub fn identities(
        &self,
        brought: impl IntoIterator<Item = NamedSource>,
    ) -> Result<Identities, ConfigError> {
        let brought: Vec<NamedSource> = brought.into_iter().collect();
        let mut identities = Identities::new()
            .on_invalid(self.on_invalid)
            .on_nobody(self.on_nobody);
        let mut mistakes = Vec::new();
        for name in &self.key_sources {
            match self.source(name, &brought) {
                Ok(Some(source)) => identities = identities.then(source),
                Ok(None) => {}
                Err(mistake) => mistakes.push(mistake),
            }
        }
        ConfigError::unless_none(mistakes).map(|()| identities)
    }

    fn source(
        &self,
        name: &str,
        brought: &[NamedSource],
    ) -> Result<Option<Arc<dyn IdentitySource>>, Mistake> {
        let wrong = |problem: String| Mistake::new("key_sources", format!("{name:?}"), problem);
        if let Some((_, source)) = brought.iter().find(|(own, _)| *own == name) {
            return Ok(Some(Arc::clone(source)));
        }
        let header = |name: &str| {
            Header::new(name).ok_or_else(|| wrong("that is no name of a header".into()))
        };
        Ok(Some(match name.split_once(':') {
            None if name == "subject" => Arc::new(Subject::source()),
            None if name == "tenant" => Arc::new(Tenant::source()),
            None if name == "ip" => Arc::new(Ip::new(self.prefixes)),
            None if name == "api_key" => return self.api_keys(),
            #[cfg(feature = "jwt")]
            None if name == "jwt" => match &self.jwt {
                Some(jwt) => Arc::new(jwt.source()?),
                None => {
                    let problem = "nothing says how tokens are verified; set jwt_issuer, \
                                   jwt_audience, jwt_algorithms and a key";
                    return Err(wrong(problem.into()));
                }
            },
            Some(("header", name)) => Arc::new(header(name)?),
            Some(("cookie", name)) if !name.is_empty() => Arc::new(Cookie::new(name)),
            #[cfg(feature = "axum")]
            Some(("path", name)) if !name.is_empty() => Arc::new(crate::PathParam::new(name)),
            _ => {
                let own: String = brought.iter().map(|(own, _)| format!(", {own}")).collect();
                let path = if cfg!(feature = "axum") {
                    ", path:NAME"
                } else {
                    ""
                };
                return Err(wrong(format!(
                    "write one of subject, tenant, api_key, ip, cookie:NAME, header:NAME{path}{own}"
                )));
            }
        }))
    }

    fn api_keys(&self) -> Result<Option<Arc<dyn IdentitySource>>, Mistake> {
        let Some(header) = &self.api_key_header else {
            return Ok(None);
        };
        let wrong = || {
            Mistake::new(
                "api_key_header",
                format!("{header:?}"),
                "that is no name of a header; write X-API-Key".into(),
            )
        };
        let Some(file) = &self.api_keys_file else {
            return Ok(Some(Arc::new(Header::api_key(header).ok_or_else(wrong)?)));
        };
        let unread = |problem: String| {
            Mistake::new("api_keys_file", format!("{:?}", file.display()), problem)
        };
        let list = std::fs::read_to_string(file).map_err(|error| {
            unread(format!("it cannot be read ({error}); name a readable file"))
        })?;
        let keys = ApiKeys::new(header).ok_or_else(wrong)?;
        let keys = keys
            .with_list(&list)
            .map_err(|error| unread(error.to_string()))?;
        Ok(Some(Arc::new(keys)))
    }

    /// The quota of the limit.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.policy.quotas()[0]
    }
}
