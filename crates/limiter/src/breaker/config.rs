//! When a breaker opens, and for how long.

use std::time::Duration;

/// When a breaker opens, and for how long.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Breaker;
///
/// let eager = Breaker { failures: 1, cooldown: Duration::from_millis(200), ..Breaker::default() };
/// assert_eq!(eager.ratio, Some(0.5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breaker {
    /// So many failures in a row open it; 0 counts as 1. Default: 5.
    pub failures: u32,
    /// This part of failures among the calls of a window opens it; `None`: only failures in a row
    /// do. Default: 0.5.
    pub ratio: Option<f64>,
    /// Fewer calls in a window than this say nothing about the ratio. Default: 20.
    pub min_calls: u32,
    /// How long a window is. One begins with a failure. Default: 10 s.
    pub window: Duration,
    /// How long it stays open before it probes. Default: 1 s.
    pub cooldown: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 5,
            ratio: Some(0.5),
            min_calls: 20,
            window: Duration::from_secs(10),
            cooldown: Duration::from_secs(1),
        }
    }
}

/// Whether calls go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// All do.
    #[default]
    Closed,
    /// One does, to find out whether the store works again.
    HalfOpen,
    /// None does.
    Open,
}

impl BreakerState {
    /// The name used in logs and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}
