//! A URL as it may be shown: without what may be a secret.

/// Scheme, host and path. What comes before the last `@` is hidden, and a query is left out. `None`
/// for what is no URL, or where it is not plain what is what: it may be a password.
pub(crate) fn shown(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let plain = |text: &str, more: &[u8]| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
    };
    if scheme.is_empty() || scheme.len() > 32 || !plain(scheme, b"+-.") {
        return None;
    }
    // An @ behind a ? may be part of a password before the host, or of a setting behind it.
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, _)) if login.contains('?') => return Some(format!("{scheme}://***")),
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    let place = rest.split(['?', '#']).next().unwrap_or_default();
    // Anything else is no host, and who knows what it is.
    let place = if plain(place, b"-._~:,/[]") {
        place
    } else {
        "***"
    };
    Some(format!("{scheme}://{login}{place}"))
}

/// The same with stars for everything that is hidden, a query too: [`is_hidden`] unless it is the
/// whole URL.
pub(super) fn starred(url: &str) -> String {
    match shown(url) {
        Some(shown) if shown == url || is_hidden(&shown) => shown,
        Some(shown) => format!("{shown}?***"),
        None => "***".into(),
    }
}

/// Whether stars stand in the place of a part.
pub(super) fn is_hidden(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest == "***" || rest.starts_with("***@") || rest.ends_with("?***")
}

#[cfg(test)]
mod tests {
    use super::{is_hidden, shown, starred};

    #[test]
    fn what_is_printed_of_a_url_is_whole_or_known_to_be_hidden() {
        for url in ["redis://h:1/0", "memory://", "redis+unix:///run/redis.sock"] {
            assert_eq!(starred(url), url);
            assert!(!is_hidden(url), "{url}");
        }
        for url in [
            "redis://u:s3cr3t@h:1/0",
            "redis://:s3?cr3t@h",
            "redis://u:s3cr3t@ho st",
            "redis+sentinel://a,b/main?sentinel_password=s3cr3t",
            "s3cr3t",
        ] {
            let starred = starred(url);
            assert!(
                is_hidden(&starred) && !starred.contains("s3cr3t"),
                "{starred}"
            );
        }
    }

    #[test]
    fn b71_what_is_shown_of_a_url_holds_no_secret() {
        for (url, expected) in [
            ("redis://127.0.0.1:6379/0", Some("redis://127.0.0.1:6379/0")),
            ("redis://u:s3cr3t@h:1/0?x=1", Some("redis://***@h:1/0")),
            ("redis://:s3c@r3t/x@h", Some("redis://***@h")),
            ("redis://:s3?cr3t@h", Some("redis://***")),
            ("redis://h/?password=s3cr3t@x", Some("redis://***")),
            (
                "redis+cluster://u:p@a:1,[::1]:2",
                Some("redis+cluster://***@a:1,[::1]:2"),
            ),
            ("redis://u:s3cr3t@ho st", Some("redis://***@***")),
            ("rediss://h#s3cr3t", Some("rediss://h")),
            (
                "redis+unix:///run/redis.sock",
                Some("redis+unix:///run/redis.sock"),
            ),
            (
                "redis+sentinel://a,b/main?sentinel_password=s3cr3t",
                Some("redis+sentinel://a,b/main"),
            ),
            (
                "redis+unix:///run/redis.sock?password=s3cr3t@x",
                Some("redis+unix://***"),
            ),
            ("ftp://x", Some("ftp://x")),
            ("s3cr3t", None),
            ("s3 cr3t://h", None),
            ("", None),
        ] {
            assert_eq!(shown(url).as_deref(), expected, "{url}");
        }
    }
}
