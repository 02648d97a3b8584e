//! What goes on in the background for as long as the service: looking at files and stores for
//! changes. Whoever panics there is begun anew, or rules, keys and blocks would stay as they are
//! from then on and nobody would be told.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;

/// Between a panic and the next beginning: a fault that is always there must not fill the log.
const PAUSE: Duration = Duration::from_secs(1);

/// Tasks that end when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Tasks(JoinSet<()>);

impl Tasks {
    /// Goes on with `work`, and begins it anew whenever it panics. `what` is for the log.
    pub(crate) fn keep<F, W>(&mut self, what: &'static str, mut work: W)
    where
        W: FnMut() -> F + Send + 'static,
        F: Future<Output = Infallible> + Send + 'static,
    {
        self.0.spawn(async move {
            loop {
                // A task of its own holds the panic; it ends with the set, so with this one.
                let mut once = JoinSet::new();
                once.spawn(work());
                match once.join_next().await {
                    Some(Err(error)) if error.is_panic() => {
                        tracing::error!(what, "a background task panicked; it begins anew");
                    }
                    // The runtime is shutting down.
                    _ => return,
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_panics_begins_anew() {
        let (told, mut heard) = mpsc::unbounded_channel();
        let begun = Arc::new(AtomicUsize::new(0));
        let mut tasks = Tasks::default();
        let counted = Arc::clone(&begun);
        tasks.keep("a test", move || {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            let told = told.clone();
            async move {
                assert!(number >= 2, "the first two panic");
                let _ = told.send(number);
                std::future::pending().await
            }
        });
        assert_eq!(heard.recv().await, Some(2));
        assert_eq!(begun.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn what_goes_on_ends_when_it_is_dropped() {
        let (told, mut heard) = mpsc::unbounded_channel::<()>();
        let mut tasks = Tasks::default();
        tasks.keep("a test", move || {
            let told = told.clone();
            async move {
                let _told = told;
                std::future::pending().await
            }
        });
        drop(tasks);
        assert_eq!(heard.recv().await, None);
    }
}
