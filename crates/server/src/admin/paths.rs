//! Which paths are answered here and never forwarded.

use std::borrow::Cow;

/// Who proxies ask whether a request may pass.
pub(super) const FORWARD_AUTH: &str = "/v1/forward-auth";

/// Whether the admin surface answers this path. (`/health` and `/ready` are everybody's.)
pub(crate) fn is_admin(path: &str) -> bool {
    const TREES: [&str; 5] = ["rules", "usage", "v1", "docs", "redoc"];
    let Some(path) = path.strip_prefix('/') else {
        return false;
    };
    match path.split_once('/') {
        Some((tree, _)) => TREES.contains(&tree),
        None => matches!(
            path,
            "rules" | "metrics" | "docs" | "redoc" | "openapi.json"
        ),
    }
}

/// A path as logs and traces may show it: without the identity that it names.
pub(crate) fn shown(path: &str) -> Cow<'_, str> {
    let Some(rest) = path.strip_prefix("/usage/") else {
        return Cow::Borrowed(path);
    };
    match rest.rsplit_once('/') {
        Some((_, what @ ("reset" | "refund" | "block"))) => {
            Cow::Owned(format!("/usage/***/{what}"))
        }
        _ => Cow::Borrowed("/usage/***"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s55_local_paths_are_these_and_no_others() {
        for local in [
            "/rules",
            "/rules/a",
            "/usage/x",
            "/usage/x/reset",
            "/metrics",
            "/docs",
            "/docs/x.js",
            "/redoc",
            "/openapi.json",
            "/v1/check",
            "/v1/forward-auth",
            "/v1/",
        ] {
            assert!(is_admin(local), "{local}");
        }
        for backend in [
            "/",
            "/orders",
            "/rulesets",
            "//rules",
            "/usage",
            "/v1",
            "/metrics/x",
            "/Rules",
            "/api/rules",
            "/openapi.json/",
            "rules",
            "*",
            "/health",
            "/ready",
        ] {
            assert!(!is_admin(backend), "{backend}");
        }
    }

    #[test]
    fn s60_identities_in_paths_are_not_shown() {
        assert_eq!(shown("/usage/s3cr3t"), "/usage/***");
        assert_eq!(shown("/usage/s3/cr3t"), "/usage/***");
        assert_eq!(shown("/usage/s3cr3t/reset"), "/usage/***/reset");
        assert_eq!(shown("/usage/"), "/usage/***");
        assert_eq!(shown("/rules/a"), "/rules/a");
    }
}
