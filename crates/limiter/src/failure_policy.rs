//! What is answered when the store does not answer.

use std::fmt;
use std::str::FromStr;

/// What is answered when the store does not answer.
///
/// ```
/// use tollgate::FailurePolicy;
///
/// assert_eq!("closed".parse(), Ok(FailurePolicy::Closed));
/// assert_eq!(FailurePolicy::default(), FailurePolicy::Open);
/// assert!("ajar".parse::<FailurePolicy>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum FailurePolicy {
    /// Admit. The service stays up, and during an outage nothing is limited.
    #[default]
    Open,
    /// Refuse, as "unavailable". Nothing passes unlimited, and an outage of the store is one of the
    /// service.
    Closed,
    /// Count in this process until the store is back. Each process admits the whole quota, so
    /// together they admit up to as many times the quota as there are processes.
    Local,
}

impl FailurePolicy {
    /// The name used in settings, logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Local => "local",
        }
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FailurePolicy {
    type Err = UnknownFailurePolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Open, Self::Closed, Self::Local]
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or(UnknownFailurePolicy)
    }
}

/// Text that names no failure policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failure policy: use open, closed or local")]
pub struct UnknownFailurePolicy;
