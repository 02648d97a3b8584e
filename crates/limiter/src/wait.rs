//! Charging with patience.

use std::time::Duration;

use tollgate_core::{Decision, Key};

use crate::acquire::chargeable;
use crate::time::Instant;
use crate::{Error, RateLimit};

pub(crate) async fn acquire(
    limit: &RateLimit,
    key: &Key<'_>,
    cost: u64,
    max_wait: Duration,
) -> Result<Decision, Error> {
    let cost = chargeable(limit.policy(), cost, None)?;
    let limiter = limit.limiter();
    let start = Instant::now();
    loop {
        let subject = limiter.subject(limit.policy(), key);
        let decision = limiter.0.stack.acquire_exactly(subject, cost).await?;
        limit.made(&decision);
        let left = max_wait.saturating_sub(start.elapsed());
        match decision.retry_after() {
            Some(wait) if !decision.allowed() && wait <= left => tokio::time::sleep(wait).await,
            _ => return Ok(decision),
        }
    }
}
