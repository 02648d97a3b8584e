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

/// Where the store of a URL is, without a login and without options, which may hold a password.
pub(crate) fn place(url: &str) -> &str {
    let url = url.split_once('?').map_or(url, |(url, _)| url);
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    place.rsplit_once('@').map_or(place, |(_, place)| place)
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
    use super::{name, place};

    #[test]
    fn b71_the_place_of_a_store_holds_no_password() {
        assert_eq!(place("redis://h:1/0"), "h:1/0");
        assert_eq!(place("redis://svc:s3cr3t@h:1/0?db=3"), "h:1/0");
        assert_eq!(place("redis://:s3@cr3t@h"), "h");
        assert_eq!(
            place("redis+sentinel://a,b/main?sentinel_password=s3cr3t"),
            "a,b/main"
        );
        assert_eq!(
            place("redis+unix:///run/redis.sock?password=s3cr3t@x"),
            "/run/redis.sock"
        );
    }

    #[test]
    fn a_store_is_called_by_its_scheme() {
        assert_eq!(name("memory://"), "memory");
        assert_eq!(name("redis://:pw@h:1/0"), "redis");
        assert_eq!(name("rediss://h"), "redis");
        assert_eq!(name("redis+cluster://a,b"), "redis");
        assert_eq!(name("valkey://h"), "valkey");
    }
}
