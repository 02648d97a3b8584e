//! From a request to an identity, by the order of the settings.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use tollgate_http::{AddressPrefixes, ApiKeys, Identified, Jwt, JwtClaims, Problem};

use super::custom::{cookie, parameter};
use super::phone;
use super::stored_keys::Told;
use super::{Custom, Identity, IdentityType, KeyFile, Region, StoredKeys, TokenOptions};

/// How identities are found.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Which types are asked, in order.
    pub(crate) order: Vec<IdentityType>,
    /// Where API keys are sent.
    pub(crate) api_key_header: HeaderName,
    /// The keys that are known. `None`: something in front of the gateway has verified them.
    pub(crate) api_keys: Option<KeyFile>,
    /// Whether keys are kept in the store, too.
    pub(crate) stored_keys: bool,
    /// Where users are named.
    pub(crate) user_id_header: HeaderName,
    /// Where phone numbers are sent.
    pub(crate) phone_header: HeaderName,
    /// The country of numbers without a country code.
    pub(crate) phone_region: Option<Region>,
    /// Where accounts are named.
    pub(crate) oauth_account_header: HeaderName,
    /// What tokens must be.
    pub(crate) tokens: Option<TokenOptions>,
    /// Where one's own identity is found.
    pub(crate) custom: Option<Custom>,
    /// Where the upstream is told whom a request counts for.
    pub(crate) forward_as: Option<HeaderName>,
    /// Whether a credential that is not valid is passed over, in place of 401.
    pub(crate) skip_invalid: bool,
    /// How much of an address is one client.
    pub(crate) prefixes: AddressPrefixes,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            order: vec![IdentityType::IpAddress],
            api_key_header: HeaderName::from_static("x-api-key"),
            api_keys: None,
            stored_keys: false,
            user_id_header: HeaderName::from_static("x-user-id"),
            phone_header: HeaderName::from_static("x-phone"),
            phone_region: None,
            oauth_account_header: HeaderName::from_static("x-oauth-account"),
            tokens: None,
            custom: None,
            forward_as: None,
            skip_invalid: false,
            prefixes: AddressPrefixes::default(),
        }
    }
}

/// Finds out who a request counts for.
#[derive(Debug)]
pub(crate) struct Resolver {
    options: Options,
    jwt: Option<Jwt>,
    stored_keys: Option<StoredKeys>,
}

/// What says who a request counts for besides the request and the settings.
#[derive(Clone, Debug)]
pub(crate) struct AsOf(Option<Arc<ApiKeys>>);

/// What one type says of a request.
enum Found {
    As(Identity),
    Nobody,
    Invalid(Cow<'static, str>),
    Failed(&'static str),
}

impl Resolver {
    /// By these settings.
    ///
    /// # Errors
    /// Settings that cannot work together, each with what to do.
    pub(crate) fn new(mut options: Options) -> Result<Self, String> {
        let jwt = options
            .tokens
            .as_ref()
            .map(TokenOptions::source)
            .transpose()?;
        let named = |kind| options.order.contains(&kind);
        if options.order.is_empty() {
            return Err("identity.order: it is empty; name a type, such as ip_address".into());
        }
        for (at, kind) in options.order.iter().enumerate() {
            if options.order[..at].contains(kind) {
                return Err(format!(
                    "identity.order: {kind} is there twice; name it once"
                ));
            }
        }
        if named(IdentityType::Custom) && options.custom.is_none() {
            return Err(
                "identity.order: custom is named, and identity.custom is not \
                        given; write header:NAME, cookie:NAME, query:NAME or jwt:/pointer"
                    .into(),
            );
        }
        if matches!(options.custom, Some(Custom::Claim(_))) && jwt.is_none() {
            return Err(
                "identity.custom: a claim can only be read from verified tokens; give \
                        jwt.issuer, jwt.audience and jwt.jwks_url or jwt.key_file"
                    .into(),
            );
        }
        let asserted: Vec<_> = options
            .order
            .iter()
            .filter(|kind| match kind {
                IdentityType::ApiKey => options.api_keys.is_none() && !options.stored_keys,
                IdentityType::UserId | IdentityType::Phone | IdentityType::OauthAccount => true,
                IdentityType::Custom => !matches!(options.custom, Some(Custom::Claim(_))),
                _ => false,
            })
            .map(|kind| kind.as_str())
            .collect();
        if !asserted.is_empty() {
            tracing::warn!(
                types = asserted.join(", "),
                "these identities are taken as clients assert them: something in front of the \
                 gateway must verify and write them"
            );
        }
        if named(IdentityType::JwtSub) && jwt.is_none() {
            tracing::warn!(
                "jwt_sub is skipped until tokens can be verified: give jwt.issuer, jwt.audience \
                 and jwt.jwks_url or jwt.key_file"
            );
            options.order.retain(|kind| *kind != IdentityType::JwtSub);
        }
        Ok(Self {
            options,
            jwt,
            stored_keys: None,
        })
    }

    /// With the keys of the store.
    pub(crate) fn with_stored_keys(mut self, keys: Option<StoredKeys>) -> Self {
        self.stored_keys = keys;
        self
    }

    /// The types that are asked, in order.
    pub(crate) fn order(&self) -> &[IdentityType] {
        &self.options.order
    }

    /// What the upstream is told of an identity; `None`: nothing.
    pub(crate) fn forwarded(&self, identity: &Identity) -> Option<Box<HeaderValue>> {
        self.options.forward_as.as_ref()?;
        match identity.kind() {
            IdentityType::IpAddress | IdentityType::Global => None,
            _ => HeaderValue::from_bytes(identity.value()).ok().map(Box::new),
        }
    }

    /// As of what an identity is found now. `None`: the same request may be another's at any time,
    /// since tokens expire, and keys of the store.
    pub(crate) fn as_of(&self) -> Option<AsOf> {
        let keys = self.options.api_keys.as_ref().map(KeyFile::known);
        let lasts = self.jwt.is_none() && self.stored_keys.is_none();
        lasts.then_some(AsOf(keys))
    }

    /// Whether it would still be found the same.
    pub(crate) fn is_as_of(&self, as_of: &AsOf) -> bool {
        match (&self.options.api_keys, &as_of.0) {
            (None, None) => true,
            (Some(file), Some(keys)) => file.is_known(keys),
            _ => false,
        }
    }

    /// Who the request counts for; it came from a client at this address.
    ///
    /// # Errors
    /// 401 where a credential is not valid or nobody answers, 500 where the service lacks what it
    /// would verify with.
    pub(crate) async fn resolve(
        &self,
        request: &Parts,
        client: IpAddr,
    ) -> Result<Identity, Problem> {
        let mut token = None;
        for kind in &self.options.order {
            let found = match kind {
                IdentityType::IpAddress => {
                    return Ok(self.of_address(client));
                }
                IdentityType::Global => return Ok(Identity::global()),
                // In boxes: what other requests have room for stays small.
                IdentityType::JwtSub => Box::pin(self.subject(request, &mut token)).await,
                IdentityType::Custom => Box::pin(self.custom(request, &mut token)).await,
                IdentityType::ApiKey => self.header(request, *kind, &self.options.api_key_header),
                IdentityType::UserId => self.header(request, *kind, &self.options.user_id_header),
                IdentityType::Phone => self.header(request, *kind, &self.options.phone_header),
                IdentityType::OauthAccount => {
                    self.header(request, *kind, &self.options.oauth_account_header)
                }
            };
            match found {
                Found::As(identity) => return Ok(identity),
                Found::Nobody => {}
                Found::Invalid(_) if self.options.skip_invalid => {}
                Found::Invalid(detail) => {
                    return Err(Problem::new(StatusCode::UNAUTHORIZED, detail));
                }
                Found::Failed(what) => {
                    tracing::error!(what, "identities cannot be verified");
                    return Err(Problem::new(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "The identity of the request cannot be verified at the moment",
                    ));
                }
            }
        }
        Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "The request says in none of the known ways whom it counts for",
        ))
    }

    /// The same identity by the text of an operator or another service, as `/usage` and `/v1/check`
    /// are given it.
    ///
    /// # Errors
    /// Why it cannot be an identity of this type.
    pub(crate) fn named(&self, kind: IdentityType, value: &[u8]) -> Result<Identity, String> {
        if value.is_empty() && kind != IdentityType::Global {
            return Err("it is empty".into());
        }
        match kind {
            IdentityType::Global => Ok(Identity::global()),
            IdentityType::IpAddress => {
                let text = std::str::from_utf8(value).unwrap_or_default();
                // A network is written as this program writes it.
                let address = text.split_once('/').map_or(text, |(address, _)| address);
                let address = address.trim_start_matches('[').trim_end_matches(']');
                let address = address.parse().map_err(
                    |_| "it is no address; write one such as 203.0.113.9 or 2001:db8::1",
                )?;
                Ok(self.of_address(address))
            }
            IdentityType::ApiKey => Ok(match self.of_api_key(value) {
                Found::As(identity) => identity,
                // Keys that are not known here may still be named by their owner.
                _ => Identity::new(kind, value),
            }),
            IdentityType::Phone => self.of_phone(value).ok_or_else(|| {
                "it is no phone number with a country code, such as +4930123456".into()
            }),
            _ => Ok(Identity::new(kind, value)),
        }
    }

    fn of_address(&self, address: IpAddr) -> Identity {
        let text = self.options.prefixes.client_key(address);
        Identity::of_text(IdentityType::IpAddress, text)
    }

    fn of_phone(&self, value: &[u8]) -> Option<Identity> {
        phone::normalised(value, self.options.phone_region)
            .map(|number| Identity::of_text(IdentityType::Phone, number))
    }

    /// By the file and the store; where neither has keys, as it is asserted.
    fn of_api_key(&self, value: &[u8]) -> Found {
        if let Some(file) = &self.options.api_keys
            && let Some(owner) = file.known().owner(value)
        {
            let identity = Identity::new(IdentityType::ApiKey, owner.name.as_bytes());
            return Found::As(identity.with_plan(owner.plan.cloned()));
        }
        match &self.stored_keys {
            Some(keys) => match keys.told(value) {
                Told::Of(identity) => Found::As(identity),
                Told::Unknown => Found::Invalid("The API key is not known".into()),
                Told::NotYet => Found::Failed("the API keys could not be read yet"),
            },
            None if self.options.api_keys.is_some() => {
                Found::Invalid("The API key is not known".into())
            }
            None => Found::As(Identity::new(IdentityType::ApiKey, value)),
        }
    }

    /// A header that identifies. Missing and empty are the same; two of them are not valid, since
    /// which one the service behind would read is anybody's guess.
    fn header(&self, request: &Parts, kind: IdentityType, name: &HeaderName) -> Found {
        let value = match only(&request.headers, name) {
            Err(detail) => return Found::Invalid(detail),
            Ok(None | Some([])) => return Found::Nobody,
            Ok(Some(value)) => value,
        };
        match kind {
            IdentityType::ApiKey => self.of_api_key(value),
            IdentityType::Phone => {
                let detail = "The phone number is none, or lacks its country code";
                let number = self.of_phone(value);
                number.map_or(Found::Invalid(detail.into()), Found::As)
            }
            _ => Found::As(Identity::new(kind, value)),
        }
    }

    async fn subject(&self, request: &Parts, token: &mut Option<Token>) -> Found {
        let (Some(options), Some(token)) = (&self.options.tokens, self.token(request, token).await)
        else {
            return Found::Nobody;
        };
        match token {
            Token::Absent => Found::Nobody,
            Token::Invalid => Found::Invalid(TOKEN_INVALID.into()),
            Token::Failed(what) => Found::Failed(what),
            Token::Verified(claims) => match claims.get(&options.claim) {
                None => Found::Invalid("The token lacks the claim that identifies".into()),
                Some(subject) => {
                    let plan = options.plan_claim.as_deref();
                    let plan = plan.and_then(|claim| claims.get(claim));
                    let identity = Identity::of_text(IdentityType::JwtSub, subject);
                    Found::As(identity.with_plan(plan.map(Into::into)))
                }
            },
        }
    }

    async fn custom(&self, request: &Parts, token: &mut Option<Token>) -> Found {
        let kind = IdentityType::Custom;
        let known = |value: Option<&[u8]>| match value {
            None | Some([]) => Found::Nobody,
            Some(value) => Found::As(Identity::new(kind, value)),
        };
        match &self.options.custom {
            None => Found::Nobody,
            Some(Custom::Header(name)) => match only(&request.headers, name) {
                Ok(value) => known(value),
                Err(detail) => Found::Invalid(detail),
            },
            Some(Custom::Cookie(name)) => known(cookie(&request.headers, name)),
            Some(Custom::Query(name)) => {
                match parameter(request.uri.query().unwrap_or_default(), name) {
                    Ok(value) => known(value.as_deref()),
                    Err(()) => {
                        Found::Invalid("The parameter that identifies is there twice".into())
                    }
                }
            }
            Some(Custom::Claim(pointer)) => match self.token(request, token).await {
                None | Some(Token::Absent) => Found::Nobody,
                Some(Token::Invalid) => Found::Invalid(TOKEN_INVALID.into()),
                Some(Token::Failed(what)) => Found::Failed(what),
                Some(Token::Verified(claims)) => {
                    known(claims.get(pointer).as_deref().map(str::as_bytes))
                }
            },
        }
    }

    /// The request's token, verified once. `None`: tokens are not verified here.
    async fn token<'a>(&self, request: &Parts, token: &'a mut Option<Token>) -> Option<&'a Token> {
        let jwt = self.jwt.as_ref()?;
        if token.is_none() {
            *token = Some(match jwt.claims(request).await {
                Ok(claims) => Token::Verified(claims),
                Err(Identified::Misconfigured(what)) => Token::Failed(what),
                Err(Identified::Invalid(_)) => Token::Invalid,
                Err(_) => Token::Absent,
            });
        }
        token.as_ref()
    }
}

const TOKEN_INVALID: &str = "The token is not valid";

/// The token of a request.
enum Token {
    Absent,
    Invalid,
    Failed(&'static str),
    Verified(JwtClaims),
}

/// The value of a header that must be there once at most.
fn only<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, Cow<'static, str>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(http::HeaderValue::as_bytes);
    match values.next() {
        None => Ok(first),
        Some(_) => Err(format!("The header {name} is there more than once").into()),
    }
}
