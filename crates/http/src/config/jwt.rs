//! Signed tokens in the settings: who issues them, for whom, and what they are verified with.

use std::fmt;
use std::path::{Path, PathBuf};

use http::HeaderName;

use super::Mistake;
use super::read::{Reader, given, some_list};
use crate::{Jwt, JwtAlgorithm, JwtKey, JwtKeyError};

/// The settings of signed tokens, checked. With them `key_sources` may name `jwt`.
///
/// | field | default | |
/// |---|---|---|
/// | `jwt_issuer` | must be given | the `iss` that tokens must have |
/// | `jwt_audience` | must be given | the `aud` that tokens must have |
/// | `jwt_algorithms` | must be given | what they may be signed by, such as `["RS256"]` |
/// | `jwt_secret` | none | the secret of HS256 and its kin: for the environment rather than a file |
/// | `jwt_secret_file` | none | or the file that it is in; a line break at its end is no part of it |
/// | `jwt_public_key_file` | none | or a public key in PEM |
/// | `jwt_jwks_url` | none | or the URL of a key set (feature `jwks`) |
/// | `jwt_claim` | `"sub"` | the claim that identifies |
/// | `jwt_plan_claim` | none | the claim that names the plan |
/// | `jwt_header`, `jwt_cookie` | `Authorization: Bearer` | where the token is instead |
///
/// Exactly one of the four keys must be given.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JwtConfig {
    /// Who must have issued them.
    pub issuer: String,
    /// Whom they must be for.
    pub audience: String,
    /// What they may be signed by.
    pub algorithms: Vec<JwtAlgorithm>,
    /// What they are verified with.
    pub key: JwtKeySource,
    /// The claim that identifies, if it is not `sub`.
    pub claim: Option<String>,
    /// The claim that names the plan.
    pub plan_claim: Option<String>,
    /// The header that holds them, if it is not `Authorization`.
    pub header: Option<String>,
    /// The cookie that holds them, if one does.
    pub cookie: Option<String>,
}

/// Where the key of tokens comes from.
#[derive(Clone)]
#[non_exhaustive]
pub enum JwtKeySource {
    /// This secret.
    Secret(String),
    /// The secret in this file.
    SecretFile(PathBuf),
    /// The public key in this file, PEM.
    PublicKeyFile(PathBuf),
    /// The key set at this URL.
    JwksUrl(String),
}

/// Without the secret.
impl fmt::Debug for JwtKeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(_) => f.write_str("Secret(..)"),
            Self::SecretFile(file) => f.debug_tuple("SecretFile").field(file).finish(),
            Self::PublicKeyFile(file) => f.debug_tuple("PublicKeyFile").field(file).finish(),
            Self::JwksUrl(url) => f.debug_tuple("JwksUrl").field(url).finish(),
        }
    }
}

/// The keys, by the fields that give them.
const KEYS: &str = "jwt_secret, jwt_secret_file, jwt_public_key_file, jwt_jwks_url";

/// What the fields say, if one is given.
pub(super) fn read(from: &mut Reader, key_sources: &[String]) -> Option<JwtConfig> {
    let any = from.has("jwt_");
    let failed = from.failed();
    let issuer = from.text("jwt_issuer", given);
    let audience = from.text("jwt_audience", given);
    let algorithms = from.take("jwt_algorithms", |raw| {
        let names = some_list(raw)?.into_iter();
        let all = names.map(|name| name.parse::<JwtAlgorithm>().map_err(|it| it.to_string()));
        all.collect::<Result<Vec<_>, _>>()
    });
    let keys = [
        from.secret("jwt_secret").map(JwtKeySource::Secret),
        from.text("jwt_secret_file", given)
            .map(|it| JwtKeySource::SecretFile(it.into())),
        from.text("jwt_public_key_file", given)
            .map(|it| JwtKeySource::PublicKeyFile(it.into())),
        from.text("jwt_jwks_url", given).map(JwtKeySource::JwksUrl),
    ];
    let claim = from.text("jwt_claim", given);
    let plan_claim = from.text("jwt_plan_claim", given);
    let header = from.text("jwt_header", super::read::header);
    let cookie = from.text("jwt_cookie", given);
    if !any || from.failed() > failed {
        return None;
    }
    let mut keys = keys.into_iter().flatten();
    let key = keys.next();
    let several = keys.next().is_some();
    let missing = [
        (
            issuer.is_none(),
            "jwt_issuer",
            "it is missing; name the iss that tokens have",
        ),
        (
            audience.is_none(),
            "jwt_audience",
            "it is missing; name the aud that tokens have",
        ),
        (
            algorithms.is_none(),
            "jwt_algorithms",
            "it is missing; name what tokens are signed by, such as [\"RS256\"]",
        ),
    ];
    for (_, field, problem) in missing.into_iter().filter(|it| it.0) {
        from.wrong(field, "(none)".into(), problem.into());
    }
    if key.is_none() || several {
        let given = if several { "(several)" } else { "(none)" };
        from.wrong("jwt_secret", given.into(), format!("give one of {KEYS}"));
    }
    if header.is_some() && cookie.is_some() {
        let problem = "jwt_header says another place; leave one of the two out";
        from.wrong("jwt_cookie", "(given)".into(), problem.into());
    }
    if !key_sources.iter().any(|name| name == "jwt") {
        let problem = "tokens are to be verified, and nobody asks for them; add \"jwt\"";
        from.wrong("key_sources", format!("{key_sources:?}"), problem.into());
    }
    Some(JwtConfig {
        issuer: issuer?,
        audience: audience?,
        algorithms: algorithms?,
        key: key?,
        claim,
        plan_claim,
        header,
        cookie,
    })
}

impl JwtConfig {
    /// The source.
    pub(super) fn source(&self) -> Result<Jwt, Mistake> {
        let mut jwt = match &self.key {
            JwtKeySource::Secret(secret) => self.fixed("jwt_secret", "(..)", |algorithm| {
                JwtKey::secret(algorithm, secret.as_bytes())
            })?,
            JwtKeySource::SecretFile(file) => {
                let field = "jwt_secret_file";
                let secret = contents(field, file)?;
                let secret = secret.strip_suffix('\n').unwrap_or(&secret);
                let secret = secret.strip_suffix('\r').unwrap_or(secret);
                self.fixed(field, &shown(file), |algorithm| {
                    JwtKey::secret(algorithm, secret.as_bytes())
                })?
            }
            JwtKeySource::PublicKeyFile(file) => {
                let field = "jwt_public_key_file";
                let pem = contents(field, file)?;
                self.fixed(field, &shown(file), |algorithm| {
                    JwtKey::pem(algorithm, &pem)
                })?
            }
            JwtKeySource::JwksUrl(url) => self.fetched(url)?,
        };
        if let Some(claim) = &self.claim {
            jwt = jwt.claim(claim);
        }
        if let Some(claim) = &self.plan_claim {
            jwt = jwt.plan_claim(claim);
        }
        if let Some(cookie) = &self.cookie {
            jwt = jwt.in_cookie(cookie);
        }
        if let Some(header) = &self.header {
            let wrong = |_| {
                let problem = "that is no name of a header; write X-Token";
                Mistake::new("jwt_header", format!("{header:?}"), problem.into())
            };
            jwt = jwt.in_header(HeaderName::try_from(header).map_err(wrong)?);
        }
        Ok(jwt)
    }

    fn fixed(
        &self,
        field: &str,
        shown: &str,
        key: impl Fn(JwtAlgorithm) -> Result<JwtKey, JwtKeyError>,
    ) -> Result<Jwt, Mistake> {
        let keys = self.algorithms.iter().map(|algorithm| key(*algorithm));
        let keys: Result<Vec<_>, _> = keys.collect();
        let keys = keys.map_err(|error| Mistake::new(field, shown.into(), error.to_string()))?;
        Ok(Jwt::new(&self.issuer, &self.audience, keys))
    }

    #[cfg(feature = "jwks")]
    fn fetched(&self, url: &str) -> Result<Jwt, Mistake> {
        let secret = self.algorithms.iter().find(|it| it.is_secret());
        if let Some(algorithm) = secret {
            let problem = "it has a secret, which no key set may show; name those with public keys";
            let name = format!("{:?}", algorithm.as_str());
            return Err(Mistake::new("jwt_algorithms", name, problem.into()));
        }
        let fetch = crate::HttpFetch::new(url)
            .map_err(|error| Mistake::new("jwt_jwks_url", format!("{url:?}"), error.to_string()))?;
        let keys = crate::Jwks::new(fetch).algorithms(&self.algorithms);
        Ok(Jwt::new(&self.issuer, &self.audience, keys))
    }

    #[cfg(not(feature = "jwks"))]
    fn fetched(&self, url: &str) -> Result<Jwt, Mistake> {
        let problem = "this program fetches no key sets; build it with the feature http-jwt";
        Err(Mistake::new(
            "jwt_jwks_url",
            format!("{url:?}"),
            problem.into(),
        ))
    }
}

fn shown(file: &Path) -> String {
    format!("{:?}", file.display())
}

fn contents(field: &str, file: &Path) -> Result<String, Mistake> {
    std::fs::read_to_string(file).map_err(|error| {
        let problem = format!("it cannot be read ({error}); name a readable file");
        Mistake::new(field, shown(file), problem)
    })
}
