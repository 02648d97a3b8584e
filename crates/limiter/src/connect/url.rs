//! The parts of a backend URL that are looked at here. Each backend reads its own.

use super::ConnectError;

/// What stands before `://`, in lower case.
pub(super) fn scheme(url: &str) -> Result<String, ConnectError> {
    let is_scheme = |scheme: &&str| {
        (1..=32).contains(&scheme.len())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    url.split_once("://")
        .map(|(scheme, _)| scheme)
        .filter(is_scheme)
        .map(str::to_ascii_lowercase)
        .ok_or_else(|| {
            ConnectError::url("it must begin with a scheme, such as memory:// or redis://")
        })
}

/// `redis`, `rediss`, `valkey` or `valkeys`, alone or with `+unix`, `+cluster` or `+sentinel`.
pub(super) fn is_redis(scheme: &str) -> bool {
    let (store, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    matches!(store, "redis" | "rediss" | "valkey" | "valkeys")
        && matches!(kind, "" | "unix" | "cluster" | "sentinel")
}

/// The feature that has a scheme of Redis.
#[cfg(not(feature = "redis"))]
pub(super) fn redis_feature(scheme: &str) -> &'static str {
    if is_tls(scheme) { "redis-tls" } else { "redis" }
}

/// Refuses an encrypted scheme that is not part of this build.
#[cfg(feature = "redis")]
pub(super) fn require_tls(scheme: &str) -> Result<(), ConnectError> {
    if is_tls(scheme) && cfg!(not(feature = "redis-tls")) {
        return Err(ConnectError::disabled(scheme, "redis-tls"));
    }
    Ok(())
}

/// Whether a scheme of Redis is encrypted.
fn is_tls(scheme: &str) -> bool {
    scheme.starts_with("rediss") || scheme.starts_with("valkeys")
}

/// `memory://` and its one setting.
#[cfg(feature = "memory")]
pub(super) fn max_keys(url: &str) -> Result<Option<u64>, ConnectError> {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (place, settings) = rest.split_once('?').unwrap_or((rest, ""));
    if !matches!(place, "" | "/") {
        return Err(ConnectError::url(
            "memory:// names no place; its only setting is ?max_keys=",
        ));
    }
    let mut max = None;
    for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
        let number = setting
            .strip_prefix("max_keys=")
            .ok_or_else(|| ConnectError::url("the only setting of memory:// is max_keys"))?;
        let number = number.parse().ok().filter(|number| *number > 0);
        max = Some(number.ok_or_else(|| ConnectError::url("max_keys: use a number from 1 up"))?);
    }
    Ok(max)
}
