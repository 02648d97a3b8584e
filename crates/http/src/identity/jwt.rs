//! Signed tokens (JWT) as a source: a claim of a token that was verified here.

mod der;
#[cfg(feature = "jwks")]
mod fetch;
mod jwks;
mod key;
mod provider;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderName};
use http::request::Parts;
use jsonwebtoken::{Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::request::{Several, cookie, only};
use super::{Identified, Identifying, Identity, IdentitySource};

#[cfg(feature = "jwks")]
pub use fetch::HttpFetch;
pub use jwks::{FetchError, FetchJwks, Fetching, Jwks};
pub use key::{JwtAlgorithm, JwtKey, JwtKeyError, UnknownJwtAlgorithm};

use key::candidates;

/// The longest token that is looked at, in bytes.
const MAX_TOKEN: usize = 16 << 10;
/// The longest leeway; a longer one would make `exp` pointless.
const MAX_LEEWAY: Duration = Duration::from_secs(3_600);

/// The keys that tokens may be signed with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum JwtKeys {
    /// These.
    Fixed(Arc<[JwtKey]>),
    /// Those of a key set that is fetched and kept.
    Fetched(Jwks),
}

impl<const N: usize> From<[JwtKey; N]> for JwtKeys {
    fn from(keys: [JwtKey; N]) -> Self {
        Self::Fixed(Arc::from(keys))
    }
}

impl From<Vec<JwtKey>> for JwtKeys {
    fn from(keys: Vec<JwtKey>) -> Self {
        Self::Fixed(keys.into())
    }
}

impl From<Jwks> for JwtKeys {
    fn from(keys: Jwks) -> Self {
        Self::Fetched(keys)
    }
}

#[derive(Clone, Debug)]
enum Carrier {
    Bearer,
    Header(HeaderName),
    Cookie(String),
}

/// A claim of a signed token that is verified here, by default `sub` of the token in
/// `Authorization: Bearer`.
///
/// - A key verifies by its own algorithm only, whatever the token says: no `none`, no public key
///   taken for a secret.
/// - `iss` and `aud` must be there and be the ones given; `exp` must be there and not have passed;
///   `nbf`, if there, must have come. Clocks may differ by a minute.
/// - Headers of the token decide nothing but which of the known keys is tried. Keys and addresses
///   that it brings (`jwk`, `jku`, `x5u`) are not looked at, and `kid` is compared, never opened.
/// - A token that is there and not valid is invalid (401), never passed over, unless
///   [`OnInvalid::Skip`](super::OnInvalid) says so.
///
/// ```
/// use tollgate_http::{Jwt, JwtAlgorithm, JwtKey};
///
/// let key = JwtKey::secret(JwtAlgorithm::Hs256, &[7; 32])?;
/// let source = Jwt::new("https://issuer.example", "orders", [key]).plan_claim("plan");
/// # Ok::<(), tollgate_http::JwtKeyError>(())
/// ```
#[derive(Clone)]
pub struct Jwt {
    name: String,
    issuer: String,
    audience: String,
    keys: JwtKeys,
    carrier: Carrier,
    claim: String,
    plan_claim: Option<String>,
    leeway: Duration,
}

impl Jwt {
    /// Tokens of this issuer for this audience.
    pub fn new(
        issuer: impl Into<String>,
        audience: impl Into<String>,
        keys: impl Into<JwtKeys>,
    ) -> Self {
        provider::install();
        Self {
            name: "jwt".into(),
            issuer: issuer.into(),
            audience: audience.into(),
            keys: keys.into(),
            carrier: Carrier::Bearer,
            claim: "sub".into(),
            plan_claim: None,
            leeway: Duration::from_secs(60),
        }
    }

    /// The claim that identifies, `sub` by default: its name, or a JSON pointer such as
    /// `/org/id`. Text or a number.
    #[must_use]
    pub fn claim(mut self, claim: impl Into<String>) -> Self {
        self.claim = claim.into();
        self
    }

    /// The claim that names the plan, if there is one: a name, or a JSON pointer.
    #[must_use]
    pub fn plan_claim(mut self, claim: impl Into<String>) -> Self {
        self.plan_claim = Some(claim.into());
        self
    }

    /// The token is in this header, alone, and not in `Authorization`.
    #[must_use]
    pub fn in_header(mut self, header: HeaderName) -> Self {
        self.carrier = Carrier::Header(header);
        self
    }

    /// The token is in this cookie, and not in `Authorization`.
    #[must_use]
    pub fn in_cookie(mut self, cookie: impl Into<String>) -> Self {
        self.carrier = Carrier::Cookie(cookie.into());
        self
    }

    /// How far clocks may differ; a minute by default, an hour at most.
    #[must_use]
    pub fn leeway(mut self, leeway: Duration) -> Self {
        self.leeway = leeway.min(MAX_LEEWAY);
        self
    }

    /// Another name than `jwt`, so that the subjects of two issuers are kept apart.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    fn token<'a>(&self, request: &'a Parts) -> Result<Option<&'a [u8]>, Several> {
        Ok(match &self.carrier {
            Carrier::Bearer => only(&request.headers, AUTHORIZATION)?.and_then(bearer),
            Carrier::Header(name) => only(&request.headers, name)?.filter(|it| !it.is_empty()),
            Carrier::Cookie(name) => cookie(&request.headers, name).filter(|it| !it.is_empty()),
        })
    }

    /// What a token says, by the first of these keys that fits.
    fn claims_of(&self, token: &[u8], keys: &[&JwtKey]) -> Option<Value> {
        keys.iter().find_map(|key| {
            let (first, rest) = key.algorithms.split_first()?;
            let mut validation = Validation::new(*first);
            validation.algorithms.extend_from_slice(rest);
            validation.leeway = self.leeway.as_secs();
            validation.validate_nbf = true;
            validation.set_required_spec_claims(&["exp", "iss", "aud"]);
            validation.set_issuer(&[&self.issuer]);
            validation.set_audience(&[&self.audience]);
            let data = decode::<Map<String, Value>>(token, &key.key, &validation);
            data.ok().map(|data| Value::Object(data.claims))
        })
    }

    /// Who that is.
    fn verified(&self, token: &[u8], keys: &[&JwtKey]) -> Identified {
        let Some(claims) = self.claims_of(token, keys) else {
            return NOT_VALID;
        };
        let Some(value) = text(&claims, &self.claim) else {
            return Identified::Invalid("the token lacks the claim that identifies");
        };
        let identity = Identity::new(self.name.clone(), value);
        let plan = self.plan_claim.as_deref();
        Identified::As(match plan.and_then(|plan| text(&claims, plan)) {
            Some(plan) => identity.with_plan(plan),
            None => identity,
        })
    }
}

/// The claims of a token that was verified.
#[derive(Clone)]
pub struct JwtClaims(Value);

impl JwtClaims {
    /// A claim that is text or a number, and not empty, by its name or a JSON pointer such as
    /// `/org/id`.
    #[must_use]
    pub fn get(&self, claim: &str) -> Option<String> {
        text(&self.0, claim)
    }
}

/// What they say may identify somebody.
impl fmt::Debug for JwtClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JwtClaims(..)")
    }
}

const NO_KEYS: Identified =
    Identified::Misconfigured("the keys that tokens are verified with could not be fetched");
const NOT_VALID: Identified = Identified::Invalid("the token is not valid");

impl Jwt {
    /// The claims of the request's token, verified as the source does; for who needs more of them
    /// than the one that identifies.
    ///
    /// # Errors
    /// Why there are none: [`Identified::Unknown`] without a token, and as the source says
    /// otherwise.
    ///
    /// # Cancellation
    /// A call that is dropped changes nothing.
    pub async fn claims(&self, request: &Parts) -> Result<JwtClaims, Identified> {
        let (token, header) = self.asked(request)?;
        let claims = match &self.keys {
            JwtKeys::Fixed(keys) => self.claims_of(token, &candidates(keys, &header)),
            JwtKeys::Fetched(jwks) => match jwks.keys(&header).await {
                Some(keys) => self.claims_of(token, &candidates(&keys, &header)),
                None => return Err(NO_KEYS),
            },
        };
        claims.map(JwtClaims).ok_or(NOT_VALID)
    }

    /// The token and what its header says, or the answer where no key is needed for it.
    fn asked<'a>(
        &self,
        request: &'a Parts,
    ) -> Result<(&'a [u8], jsonwebtoken::Header), Identified> {
        const MALFORMED: Identified = Identified::Invalid("the token is no signed JWT");
        let token = match self.token(request) {
            Ok(Some(token)) => token,
            Ok(None) => return Err(Identified::Unknown),
            Err(Several) => return Err(Identified::Invalid("there are several tokens")),
        };
        if token.len() > MAX_TOKEN {
            return Err(MALFORMED);
        }
        match decode_header(token) {
            Ok(header) if header.crit.is_none() => Ok((token, header)),
            _ => Err(MALFORMED),
        }
    }
}

impl IdentitySource for Jwt {
    fn identify_now(&self, request: &Parts) -> Option<Identified> {
        let (token, header) = match self.asked(request) {
            Ok(asked) => asked,
            Err(answer) => return Some(answer),
        };
        match &self.keys {
            JwtKeys::Fixed(keys) => Some(self.verified(token, &candidates(keys, &header))),
            JwtKeys::Fetched(jwks) => {
                let keys = jwks.kept(&header)?;
                Some(self.verified(token, &candidates(&keys, &header)))
            }
        }
    }

    fn identify<'a>(&'a self, request: &'a Parts) -> Identifying<'a> {
        Box::pin(async move {
            let (token, header) = match self.asked(request) {
                Ok(asked) => asked,
                Err(answer) => return answer,
            };
            match &self.keys {
                JwtKeys::Fixed(keys) => self.verified(token, &candidates(keys, &header)),
                JwtKeys::Fetched(jwks) => match jwks.keys(&header).await {
                    Some(keys) => self.verified(token, &candidates(&keys, &header)),
                    None => NO_KEYS,
                },
            }
        })
    }
}

/// Another scheme is somebody else's credential.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then_some(token.trim_ascii())
}

/// A claim that is text or a number, and not empty.
fn text(claims: &Value, claim: &str) -> Option<String> {
    let value = if claim.starts_with('/') {
        claims.pointer(claim)
    } else {
        claims.get(claim)
    };
    match value? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jwt")
            .field("name", &self.name)
            .field("issuer", &self.issuer)
            .field("audience", &self.audience)
            .field("keys", &self.keys)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}
