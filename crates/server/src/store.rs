//! Reaching the store that a URL names.

use tollgate::{Connect, ConnectError, SharedBackend};

/// What the store of a URL is called in probes: its scheme, whatever way leads there.
pub(crate) fn name(url: &str) -> &str {
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    match scheme {
        "rediss" => "redis",
        "valkeys" => "valkey",
        _ => scheme.split_once('+').map_or(scheme, |(family, _)| family),
    }
}

/// The store, which must answer now if `require` says so.
pub(crate) async fn connect(
    url: &str,
    prefix: &str,
    require: bool,
) -> Result<SharedBackend, ConnectError> {
    Connect::new(url)
        .prefix(prefix)
        .require(require)
        .connect()
        .await
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
