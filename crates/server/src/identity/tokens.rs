//! Tokens that are verified here.

use std::path::PathBuf;

use tollgate_http::{HttpFetch, Jwks, Jwt, JwtAlgorithm, JwtKey, JwtKeys};

/// What tokens must be, all by settings. Debug shows no key.
#[derive(Clone, Debug)]
pub(crate) struct TokenOptions {
    /// Who signs them.
    pub(crate) issuer: String,
    /// For whom they are.
    pub(crate) audience: String,
    /// Where the key set is.
    pub(crate) jwks_url: Option<String>,
    /// A file with a public key (PEM) or a secret.
    pub(crate) key_file: Option<PathBuf>,
    /// How they may be signed.
    pub(crate) algorithms: Vec<JwtAlgorithm>,
    /// The claim that is the subject.
    pub(crate) claim: String,
    /// The claim that names the plan.
    pub(crate) plan_claim: Option<String>,
}

/// How tokens are verified where no algorithm is named: by public keys only.
const DEFAULT: JwtAlgorithm = JwtAlgorithm::Rs256;

impl TokenOptions {
    /// The source that verifies them.
    ///
    /// # Errors
    /// What is wrong with the key, or the place of the keys.
    pub(crate) fn source(&self) -> Result<Jwt, String> {
        let keys: JwtKeys = match (&self.jwks_url, &self.key_file) {
            (Some(url), None) => {
                let fetch =
                    HttpFetch::new(url).map_err(|error| format!("jwt.jwks_url: {error}"))?;
                let mut jwks = Jwks::new(fetch);
                if !self.algorithms.is_empty() {
                    jwks = jwks.algorithms(&self.algorithms);
                }
                jwks.into()
            }
            (None, Some(file)) => {
                let text = std::fs::read(file).map_err(|error| {
                    format!("jwt.key_file: {}: cannot be read: {error}", file.display())
                })?;
                let algorithms = match &*self.algorithms {
                    [] => &[DEFAULT][..],
                    given => given,
                };
                let keys: Result<Vec<_>, _> = algorithms
                    .iter()
                    .map(|algorithm| key(*algorithm, &text))
                    .collect();
                keys.map_err(|error| format!("jwt.key_file: {}: {error}", file.display()))?
                    .into()
            }
            (Some(_), Some(_)) => {
                return Err(
                    "jwt.jwks_url and jwt.key_file are both given; keep one of them".into(),
                );
            }
            (None, None) => {
                return Err(
                    "tokens cannot be verified without keys; give jwt.jwks_url or \
                            jwt.key_file"
                        .into(),
                );
            }
        };
        Ok(Jwt::new(&*self.issuer, &*self.audience, keys))
    }
}

fn key(algorithm: JwtAlgorithm, text: &[u8]) -> Result<JwtKey, String> {
    let key = match algorithm {
        JwtAlgorithm::Hs256 | JwtAlgorithm::Hs384 | JwtAlgorithm::Hs512 => {
            JwtKey::secret(algorithm, text.trim_ascii_end())
        }
        _ => JwtKey::pem(algorithm, &String::from_utf8_lossy(text)),
    };
    key.map_err(|error| error.to_string())
}
