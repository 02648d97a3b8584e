//! What `/ready` asks: the limiter's health, after a look at the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tollgate_http::{HealthReport, ReportHealth, Reporting};

use crate::time::Instant;
use crate::{Health, Limiter};

/// So long an answer of the store stands, so that probes cannot be used to flood it.
const FRESH: Duration = Duration::from_millis(250);

/// Asks the store, at most every 250 ms, and reports the health of a limiter: without traffic
/// nobody else would notice a change. For `tollgate_http::Ready`.
///
/// ```
/// use tollgate::{Limiter, Probe};
/// use tollgate_http::Ready;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
/// let ready = Ready::new(Probe::new(limiter));
/// assert_eq!(ready.response().await.status(), 200);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Probe {
    limiter: Limiter,
    asked: Arc<Mutex<Option<Instant>>>,
}

impl Probe {
    /// Of this limiter.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            asked: Arc::default(),
        }
    }

    /// What holds now.
    ///
    /// # Cancellation
    /// A call that is dropped changes nothing; the next one asks.
    pub async fn health(&self) -> Health {
        // Held while the store is asked: those who come meanwhile wait for the same answer, for
        // as long as a decision may take.
        let mut asked = self.asked.lock().await;
        if asked.is_none_or(|asked| asked.elapsed() >= FRESH) {
            // The limiter keeps the answer, and tells of a change.
            let _ = self.limiter.ping().await;
            *asked = Some(Instant::now());
        }
        drop(asked);
        self.limiter.health()
    }
}

impl ReportHealth for Probe {
    fn report(&self) -> Reporting<'_> {
        Box::pin(async { HealthReport::from(&self.health().await) })
    }
}

impl From<&Health> for HealthReport {
    fn from(health: &Health) -> Self {
        let mut report = if health.enforcing {
            Self::enforcing(health.since)
        } else {
            Self::degraded(health.detail(), health.since)
        };
        report.reason = health.reason.map(|it| it.as_str().into());
        report.on_failure = Some(health.on_failure.as_str().into());
        report.unenforced = health.unenforced;
        report.breaker = Some(health.breaker.as_str().into());
        report.warnings.clone_from(&health.warnings);
        report
    }
}

#[cfg(feature = "http-config")]
impl From<tollgate_http::OnFailure> for crate::FailurePolicy {
    fn from(setting: tollgate_http::OnFailure) -> Self {
        use tollgate_http::OnFailure;
        match setting {
            OnFailure::Open => Self::Open,
            OnFailure::Closed => Self::Closed,
            OnFailure::Local => Self::Local,
        }
    }
}
