//! What a limiter says about itself.

use tokio::sync::watch;
use tollgate_core::{ErrorKind, Timestamp};

use crate::{BreakerState, FailurePolicy, Limiter};

/// Whether limits are being enforced, and if not, why.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = tollgate::Limiter::builder(tollgate::connect("memory://").await?).build();
/// let health = limiter.health();
/// assert!(health.enforcing);
/// assert_eq!(health.detail(), "enforcing");
/// assert_eq!(health.unenforced, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether the store decided the last time it was asked.
    pub enforcing: bool,
    /// Since when that is so, by the wall clock.
    pub since: Timestamp,
    /// Why limits are not enforced: the latest failure, but for "the breaker is open", which hides
    /// what opened it. `None` while they are.
    pub reason: Option<ErrorKind>,
    /// What is answered meanwhile, where a policy has no rule of its own.
    pub on_failure: FailurePolicy,
    /// How many decisions were not the store's, since the start.
    pub unenforced: u64,
    /// Whether the store is being asked.
    pub breaker: BreakerState,
    /// What an operator should know about the store although it works.
    pub warnings: Vec<String>,
}

impl Health {
    /// One sentence for a readiness report.
    #[must_use]
    pub const fn detail(&self) -> &'static str {
        if self.enforcing {
            return "enforcing";
        }
        degraded(self.on_failure)
    }
}

pub(crate) const fn degraded(on_failure: FailurePolicy) -> &'static str {
    match on_failure {
        FailurePolicy::Open => {
            "failing open: rate limit backend unreachable, no limit is being enforced"
        }
        FailurePolicy::Closed => {
            "failing closed: rate limit backend unreachable, requests are refused"
        }
        FailurePolicy::Local => {
            "limiting locally: rate limit backend unreachable, limits are per process"
        }
    }
}

/// Tells when limits cease to be enforced, are enforced again, or the breaker changes state.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = tollgate::Limiter::builder(tollgate::connect("memory://").await?).build();
/// let mut watch = limiter.watch();
/// assert!(watch.health().enforcing);
/// let task = tokio::spawn(async move {
///     loop {
///         let health = watch.changed().await;
///         println!("{}", health.detail());
///     }
/// });
/// # task.abort();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Watch {
    limiter: Limiter,
    changes: watch::Receiver<u64>,
}

impl Watch {
    pub(crate) const fn new(limiter: Limiter, changes: watch::Receiver<u64>) -> Self {
        Self { limiter, changes }
    }

    /// Waits for a change since the last call, or since [`Limiter::watch`], and says what holds now.
    /// Several changes that come together are one.
    ///
    /// # Cancellation
    /// A call that is dropped loses no change.
    pub async fn changed(&mut self) -> Health {
        self.changes
            .changed()
            .await
            .expect("the limiter, which holds the sender, is held here");
        self.health()
    }

    /// What holds now.
    #[must_use]
    pub fn health(&self) -> Health {
        self.limiter.health()
    }
}
