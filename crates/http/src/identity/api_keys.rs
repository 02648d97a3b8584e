//! API keys that this service verifies itself: it keeps their digests only.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::header::HeaderName;
use http::request::Parts;
use sha2::{Digest, Sha256};

use super::request::{Several, only};
use super::{API_KEY, Identified, Identity, IdentitySource};

/// Known API keys, by their SHA-256, each with its owner and plan.
///
/// A key that is not known is invalid (401). Whoever holds the list cannot use it to call the
/// service; it does not protect keys that can be guessed, so keys must be random and long. What
/// is compared is the digest of what was sent, so the time that takes tells nothing of a key.
///
/// ```
/// use http::Request;
/// use tollgate_http::{ApiKeys, Identified, IdentitySource};
///
/// let keys = ApiKeys::new("x-api-key")
///     .unwrap()
///     .with(ApiKeys::digest("k-9f1c"), "acme", Some("pro"));
/// let ask = |key: &str| {
///     let (parts, ()) = Request::builder().header("x-api-key", key).body(()).unwrap().into_parts();
///     keys.identify_now(&parts)
/// };
/// assert!(matches!(ask("k-9f1c"), Some(Identified::As(it)) if it.plan() == Some("pro")));
/// assert!(matches!(ask("k-0000"), Some(Identified::Invalid(_))));
/// ```
#[derive(Clone)]
pub struct ApiKeys {
    header: HeaderName,
    known: Arc<HashMap<[u8; 32], Known>>,
}

#[derive(Clone)]
struct Known {
    owner: Box<str>,
    plan: Option<Arc<str>>,
}

/// Who has an API key, as [`ApiKeys::owner`] finds them.
#[derive(Clone, Copy, Debug)]
pub struct ApiKeyOwner<'a> {
    /// The owner, who is the identity.
    pub name: &'a str,
    /// The plan that was kept beside the key.
    pub plan: Option<&'a Arc<str>>,
}

impl ApiKeys {
    /// No key yet, in the header of this name. `None`: it is no name of a header.
    #[must_use]
    pub fn new(header: &str) -> Option<Self> {
        Some(Self {
            header: HeaderName::from_bytes(header.as_bytes()).ok()?,
            known: Arc::default(),
        })
    }

    /// The digest under which a key is known.
    #[must_use]
    pub fn digest(key: impl AsRef<[u8]>) -> [u8; 32] {
        Sha256::digest(key).into()
    }

    /// With a key of `owner`. All keys of an owner share a budget, so a key can be replaced
    /// without a fresh one; the later of two entries for one digest counts.
    #[must_use]
    pub fn with(mut self, digest: [u8; 32], owner: &str, plan: Option<&str>) -> Self {
        let known = Known {
            owner: owner.into(),
            plan: plan.map(Into::into),
        };
        Arc::make_mut(&mut self.known).insert(digest, known);
        self
    }

    /// With the keys of a list: a line for each, `digest owner [plan]`, the digest in hex as
    /// `sha256sum` prints it. Empty lines and those that begin with `#` are skipped.
    ///
    /// ```
    /// use tollgate_http::ApiKeys;
    ///
    /// let list = "# printf %s k-9f1c | sha256sum
    /// ab77938b3b5faf3bd096d3a185a49353a0d8362b66ed3ab7297575343cb97b10 acme pro";
    /// assert_eq!(ApiKeys::new("x-api-key").unwrap().with_list(list)?.len(), 1);
    /// # Ok::<(), tollgate_http::ApiKeysError>(())
    /// ```
    ///
    /// # Errors
    /// The first line that is none, and a digest that is there twice.
    pub fn with_list(mut self, text: &str) -> Result<Self, ApiKeysError> {
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line.split_whitespace();
            let digest = match words.next() {
                None => continue,
                Some(word) if word.starts_with('#') => continue,
                Some(word) => hex(word).ok_or(ApiKeysError::Digest(number))?,
            };
            let owner = words.next().ok_or(ApiKeysError::Owner(number))?;
            let plan = words.next();
            if words.next().is_some() {
                return Err(ApiKeysError::TooMuch(number));
            }
            if self.known.contains_key(&digest) {
                return Err(ApiKeysError::Twice(number));
            }
            self = self.with(digest, owner, plan);
        }
        Ok(self)
    }

    /// Whose key this is. `None`: it is not known.
    #[must_use]
    pub fn owner(&self, key: impl AsRef<[u8]>) -> Option<ApiKeyOwner<'_>> {
        let known = self.known.get(&Self::digest(key))?;
        Some(ApiKeyOwner {
            name: &known.owner,
            plan: known.plan.as_ref(),
        })
    }

    /// How many keys are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

impl IdentitySource for ApiKeys {
    fn identify_now(&self, request: &Parts) -> Option<Identified> {
        let key = match only(&request.headers, &self.header) {
            Ok(None | Some([])) => return Some(Identified::Unknown),
            Ok(Some(key)) => key,
            Err(Several) => return Some(Identified::Invalid("there are several API keys")),
        };
        Some(match self.known.get(&Self::digest(key)) {
            None => Identified::Invalid("the API key is not known"),
            Some(known) => {
                let mut identity = Identity::new(API_KEY, known.owner.as_bytes());
                if let Some(plan) = &known.plan {
                    identity = identity.with_plan(Arc::clone(plan));
                }
                Identified::As(identity)
            }
        })
    }
}

fn hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| (pair[at] as char).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some(bytes)
}

/// How many keys, and where they are looked for.
impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeys")
            .field("header", &self.header)
            .field("keys", &self.known.len())
            .finish()
    }
}

/// A list of keys that cannot be read. It tells the line, and nothing of what is in it: somebody
/// may have put the key itself there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiKeysError {
    /// No digest.
    #[error(
        "API keys, line {0}: it does not begin with 64 hex digits; write the SHA-256 of the key, as `printf %s KEY | sha256sum` prints it"
    )]
    Digest(usize),
    /// No owner.
    #[error("API keys, line {0}: no owner; write `digest owner [plan]`")]
    Owner(usize),
    /// More than digest, owner and plan.
    #[error("API keys, line {0}: there is something after the plan; write `digest owner [plan]`")]
    TooMuch(usize),
    /// The digest was there before.
    #[error("API keys, line {0}: the same key is in an earlier line; keep one of them")]
    Twice(usize),
}
