//! A timer for what is nearly never late.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep};

/// A timer that is set rarely: while deadlines only move on, it is left as it is, and looks at the
/// latest when it rings.
#[derive(Debug, Default)]
pub(super) struct Patience(Option<Pin<Box<Sleep>>>);

impl Patience {
    /// Whether it has been polled, and will wake who did: it rings once.
    pub(super) fn is_waiting(&self) -> bool {
        self.0.as_ref().is_some_and(|sleep| !sleep.is_elapsed())
    }

    /// Ready once the deadline is past.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        // A timer never rings for a task that has used up its turn, as one does in every turn whose
        // other end never stops sending.
        if !has_budget_remaining() && Instant::now() >= deadline {
            return Poll::Ready(());
        }
        let sleep = self
            .0
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= deadline || Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::time::Duration;

    use super::*;

    /// The runtime's timers are late by a millisecond or two.
    fn assert_reached(deadline: Instant) {
        let late = Instant::now().checked_duration_since(deadline);
        assert!(
            late.is_some_and(|late| late < Duration::from_millis(10)),
            "{late:?}"
        );
    }

    #[tokio::test]
    async fn a_deadline_that_moves_on_or_back_is_kept() {
        tokio::time::pause();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut patience = Patience::default();
        for early in [10, 20] {
            let once = poll_fn(|cx| Poll::Ready(patience.poll(cx, at(early)).is_ready()));
            assert!(!once.await);
        }
        poll_fn(|cx| patience.poll(cx, at(20))).await;
        assert_reached(at(20));
        poll_fn(|cx| patience.poll(cx, at(15))).await;
        assert_reached(at(20));
        let later = poll_fn(|cx| Poll::Ready(patience.poll(cx, at(60)).is_ready()));
        assert!(!later.await);
        poll_fn(|cx| patience.poll(cx, at(30))).await;
        assert_reached(at(30));
    }

    #[tokio::test]
    async fn a_task_that_used_up_its_turn_is_late_all_the_same() {
        tokio::time::pause();
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut patience = Patience::default();
        let in_use = async |patience: &mut Patience| {
            poll_fn(|cx| {
                while has_budget_remaining() {
                    let _ = pin!(tokio::task::coop::consume_budget()).poll(cx);
                }
                Poll::Ready(patience.poll(cx, deadline).is_ready())
            })
            .await
        };
        assert!(!in_use(&mut patience).await);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(in_use(&mut patience).await);
    }
}
