//! A store that did not answer properly. It says nothing about the quota.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a backend could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No answer in time. The charge may have been made.
    Timeout,
    /// The store cannot be reached, or the connection broke.
    Unavailable,
    /// The circuit breaker is open: the store was not asked.
    CircuitOpen,
    /// The store is up but cannot serve yet: loading its data, failing over, resharding.
    NotReady,
    /// The store takes no writes here: a replica, or a disk that fails.
    ReadOnly,
    /// The store is out of memory.
    OutOfMemory,
    /// The store asks to slow down.
    Throttled,
    /// Other writers won too often.
    Contended,
    /// The store refuses these credentials.
    Auth,
    /// The store is too old, or lacks something that is needed.
    Unsupported,
    /// An answer, or a stored record, that makes no sense.
    Malformed,
    /// Wrong settings.
    Config,
    /// Anything else.
    Other,
}

impl ErrorKind {
    /// The name used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::CircuitOpen => "circuit_open",
            Self::NotReady => "not_ready",
            Self::ReadOnly => "read_only",
            Self::OutOfMemory => "out_of_memory",
            Self::Throttled => "throttled",
            Self::Contended => "contended",
            Self::Auth => "auth",
            Self::Unsupported => "unsupported",
            Self::Malformed => "malformed",
            Self::Config => "config",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The store did not answer properly.
///
/// Cheap to clone, for a trip that several callers shared.
///
/// Text and source never hold an identity, a password or a URL with one.
///
/// ```
/// use tollgate_core::{BackendError, ErrorKind};
///
/// let error = BackendError::new(ErrorKind::Timeout, "no answer within 50ms");
/// assert!(error.is_transient() && error.may_have_charged());
/// assert_eq!(error.to_string(), "timeout: no answer within 50ms");
/// ```
#[derive(Clone)]
pub struct BackendError {
    kind: ErrorKind,
    context: Cow<'static, str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl BackendError {
    /// An error of a kind, with what happened.
    pub fn new(kind: ErrorKind, context: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    /// With the error that caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// Why.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may work later without anybody changing the settings.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        !matches!(
            self.kind,
            ErrorKind::Auth | ErrorKind::Unsupported | ErrorKind::Config
        )
    }

    /// Whether the charge may have been made although no answer came.
    #[must_use]
    pub const fn may_have_charged(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::Malformed | ErrorKind::Other
        )
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.context)
    }
}

impl fmt::Debug for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendError")
            .field("kind", &self.kind)
            .field("context", &self.context)
            .field("source", &self.source)
            .finish()
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
