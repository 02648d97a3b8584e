//! A charge of which only the wait matters.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::{Acquire, AcquireFuture, Error};

/// A charge that is made when it is awaited, and answers `None` within the limit, else the wait.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
/// let messages = limiter.policy("messages", Quota::parse_list("20/minute")?)?;
/// assert_eq!(messages.hit("alice").cost(20).await?, None);
/// assert!(messages.hit("alice").await?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is counted until it is awaited"]
pub struct Hit<'a>(Acquire<'a>);

impl<'a> Hit<'a> {
    pub(crate) const fn new(acquire: Acquire<'a>) -> Self {
        Self(acquire)
    }

    /// How much: 1 to the capacity of the policy.
    pub fn cost(self, cost: u64) -> Self {
        Self(self.0.cost(cost))
    }
}

impl<'a> IntoFuture for Hit<'a> {
    type Output = Result<Option<Duration>, Error>;
    type IntoFuture = HitFuture<'a>;

    fn into_future(self) -> HitFuture<'a> {
        HitFuture(self.0.into_future())
    }
}

/// The future of a hit.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct HitFuture<'a>(AcquireFuture<'a>);

impl Future for HitFuture<'_> {
    type Output = Result<Option<Duration>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let decision = ready!(Pin::new(&mut self.0).poll(cx))?;
        Poll::Ready(Ok(match decision.allowed() {
            true => None,
            // What can never be admitted was an error before.
            false => Some(decision.retry_after().unwrap_or_default()),
        }))
    }
}
