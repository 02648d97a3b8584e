//! Why there is no store.

use tollgate_core::BackendError;

/// Why there is no store. Never holds the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Not a URL, or one with settings that make no sense.
    #[error("backend URL: {0}")]
    Url(String),
    /// No store is known under this scheme.
    #[error(
        "backend URL: {scheme}:// names no store; use memory://, redis://, rediss://, redis+unix://, redis+cluster:// or redis+sentinel://"
    )]
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
