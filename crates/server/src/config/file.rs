//! The file given by `--config`.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::ConfigError;

/// The fields of the file, all optional. Each means what the flag of the same name does; an unknown
/// field is refused.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Address and port to listen on. Default `"127.0.0.1:8000"`.
    pub listen: Option<Text>,
    /// Where counters live. Default `"memory://"`.
    pub backend: Option<Text>,
    /// Where admitted requests go. Default: nowhere; they get the demo document.
    pub upstream: Option<Text>,
    /// How much each client may do, as one text or a list. Default `"100/60s"`.
    #[serde(default, deserialize_with = "joined")]
    pub quota: Option<Text>,
    /// How long the backend may take to decide. Default `"50ms"`.
    pub timeout: Option<Text>,
    /// `"open"`, `"closed"` or `"local"`. Default `"open"`.
    pub on_failure: Option<Text>,
    /// How long a refusal is remembered at most. Default `"1s"`.
    pub remember_refusals: Option<Text>,
    /// What the keys in the backend begin with. Default `"rate-limit"`.
    pub prefix: Option<Text>,
    /// Whether to exit when the backend cannot be reached at start. Default `true`.
    pub require_backend_at_start: Option<Text>,
    /// The most clients that the memory backend tells apart. Default `1000000`.
    pub max_keys: Option<Text>,
    /// Rate limit headers, as one text or a list. Default `"ietf,x-ratelimit"`.
    #[serde(default, deserialize_with = "joined")]
    pub headers: Option<Text>,
    /// Bodies of refusals, `"problem"` or `"plain"`. Default `"problem"`.
    pub body: Option<Text>,
    /// How many leading bits of an IPv4 address are one client. Default `32`.
    pub ipv4_prefix: Option<Text>,
    /// How many leading bits of an IPv6 address are one client. Default `64`.
    pub ipv6_prefix: Option<Text>,
    /// How long the upstream may take to begin its answer. Default `"30s"`.
    pub upstream_timeout: Option<Text>,
    /// The largest request body. Default: no bound.
    pub max_body: Option<Text>,
    /// How long a client may take to send the head of a request, or take no part of an answer. Default `"30s"`.
    pub header_timeout: Option<Text>,
    /// The most connections at once. Default `10000`.
    pub max_connections: Option<Text>,
    /// How long to keep serving after SIGTERM. Default `"1s"`.
    pub drain_delay: Option<Text>,
    /// How long requests in flight may take when stopping. Default `"30s"`.
    pub shutdown_timeout: Option<Text>,
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is no TOML, or has an unknown field or a value of a wrong type.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|cause| ConfigError::Unreadable {
            path: path.into(),
            cause,
        })?;
        toml::from_str(&text).map_err(|error| ConfigError::syntax(path, &text, &error))
    }
}

/// Fields may hold a password.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").finish_non_exhaustive()
    }
}

/// A string, a whole number or a boolean, as the text that a flag would have.
#[derive(Clone)]
pub struct Text(pub String);

/// It may be a password.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Text(..)")
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a whole number or a boolean")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_bool<E: Error>(self, flag: bool) -> Result<Text, E> {
                Ok(Text(flag.to_string()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

/// One text, or a list of texts as if it were joined by commas.
fn joined<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    struct List;
    impl<'de> Visitor<'de> for List {
        type Value = Text;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string, or a list of strings")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
            Ok(Text(text.to_owned()))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Text, A::Error> {
            let mut texts = Vec::new();
            while let Some(text) = list.next_element::<String>()? {
                texts.push(text);
            }
            Ok(Text(texts.join(", ")))
        }
    }
    deserializer.deserialize_any(List).map(Some)
}
