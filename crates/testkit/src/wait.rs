//! Waiting for something to become true, never for time to pass.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Polls `condition` until it holds.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tollgate_testkit::wait_until;
///
/// let mut turns = 0;
/// wait_until("three turns", Duration::from_secs(1), async || { turns += 1; turns == 3 }).await;
/// # });
/// ```
///
/// # Panics
/// When it does not hold within `limit`, with `what` in the message.
pub async fn wait_until(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Gives a future a limit, so that a test fails with a reason instead of hanging.
///
/// # Panics
/// When it is not done within `limit`, with `what` in the message.
pub async fn within<T>(what: &str, limit: Duration, future: impl Future<Output = T> + Send) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {limit:?}"),
    }
}
