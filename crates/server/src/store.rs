//! Reaching the store that a URL names.

use std::error::Error;
use std::time::Duration;

use tollgate::{Connect, ConnectError, SharedBackend};

use crate::config::{ConfigError, Given, Source, shown, values};
use crate::output::chain;

/// What the store of a URL is called in probes: its scheme, whatever way leads there.
pub(crate) fn name(url: &str) -> &str {
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    match scheme {
        "rediss" => "redis",
        "valkeys" => "valkey",
        _ => scheme.split_once('+').map_or(scheme, |(family, _)| family),
    }
}

/// The store, which must answer now. Its client is as patient as the command.
pub(crate) async fn connect(
    url: &str,
    prefix: &str,
    timeout: Duration,
) -> Result<SharedBackend, ConnectError> {
    Connect::new(url)
        .prefix(prefix)
        .timeout(timeout)
        .require(true)
        .connect()
        .await
}

/// The URL of a command that has no default for it.
pub(crate) fn given(given: &Given<'_>) -> Result<(String, Source), ConfigError> {
    given
        .find("backend", values::text)?
        .ok_or(ConfigError::Missing {
            field: "backend",
            fix: "such as redis://127.0.0.1:6379",
        })
}

/// What the keys begin with.
pub(crate) fn prefix(given: &Given<'_>) -> Result<String, ConfigError> {
    let prefix = given.find("prefix", values::text)?;
    Ok(prefix
        .map(|(prefix, _)| prefix)
        .unwrap_or_else(|| tollgate_core::DEFAULT_PREFIX.into()))
}

/// Why a store failed, with where its URL was given and the URL without its secrets.
pub(crate) fn failed(
    given_by: Option<&Source>,
    url: &str,
    error: &(dyn Error + 'static),
) -> String {
    let mut message = String::new();
    if let Some(given_by) = given_by {
        message = format!("{given_by}: ");
    }
    if let Some(url) = shown(url) {
        message.push_str(&url);
        message.push_str(": ");
    }
    message + &problem(error)
}

/// What is wrong with a store, without its URL.
pub(crate) fn problem(error: &(dyn Error + 'static)) -> String {
    if let Some(ConnectError::Disabled { scheme, feature }) = error.downcast_ref() {
        return format!(
            "{scheme}:// is not part of this build of the program; it is with \
             cargo run --features {feature} -- .."
        );
    }
    let text = chain(error);
    let text = text.strip_prefix("backend URL: ").unwrap_or(&text);
    text.strip_prefix("backend: ").unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_store_is_called_by_its_scheme() {
        assert_eq!(name("memory://"), "memory");
        assert_eq!(name("redis://:pw@h:1/0"), "redis");
        assert_eq!(name("rediss://h"), "redis");
        assert_eq!(name("redis+cluster://a,b"), "redis");
        assert_eq!(name("valkey://h"), "valkey");
    }
}
