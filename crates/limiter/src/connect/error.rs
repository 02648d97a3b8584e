//! Why there is no store.

use tollgate_core::BackendError;

/// The schemes of this build. Those of Redis go by the name of Valkey too.
const SCHEMES: &[&str] = &[
    #[cfg(feature = "memory")]
    "memory://",
    #[cfg(feature = "redis")]
    "redis://",
    #[cfg(feature = "redis-tls")]
    "rediss://",
    #[cfg(feature = "redis")]
    "redis+unix://",
    #[cfg(feature = "redis")]
    "redis+cluster://",
    #[cfg(feature = "redis")]
    "redis+sentinel://",
    #[cfg(feature = "dynamodb")]
    "dynamodb://",
    #[cfg(feature = "memcached")]
    "memcached://",
];

/// Why there is no store. Never holds the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Not a URL, or one with settings that make no sense.
    #[error("backend URL: {0}")]
    Url(String),
    /// No store is known under this scheme.
    #[error("backend URL: {scheme}:// names no store; this build knows {}", SCHEMES.join(", "))]
    Unknown {
        /// The scheme.
        scheme: String,
    },
    /// The scheme is known, and not part of this build.
    #[error(
        "backend URL: {scheme}:// is not part of this build; turn on the feature `{feature}` of tollgate"
    )]
    Disabled {
        /// The scheme.
        scheme: String,
        /// The feature that has it.
        feature: &'static str,
    },
    /// The store cannot be used, or could not be reached although it is required.
    #[error("backend: {0}")]
    Backend(#[from] BackendError),
}

impl ConnectError {
    pub(super) fn url(message: impl Into<String>) -> Self {
        Self::Url(message.into())
    }

    pub(super) fn disabled(scheme: &str, feature: &'static str) -> Self {
        Self::Disabled {
            scheme: scheme.into(),
            feature,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_is_told_those_of_this_build() {
        let message = ConnectError::Unknown {
            scheme: "etcd".into(),
        }
        .to_string();
        assert!(message.contains("etcd:// names no store"), "{message}");
        for (scheme, known) in [
            ("memory://", cfg!(feature = "memory")),
            ("redis://", cfg!(feature = "redis")),
            ("rediss://", cfg!(feature = "redis-tls")),
            ("redis+sentinel://", cfg!(feature = "redis")),
        ] {
            assert_eq!(message.contains(scheme), known, "{scheme}: {message}");
        }
    }
}
