//! Something that is made when it is first needed, once for all who wait, and made again when it
//! is lost: a connection, a cluster's map.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tollgate_core::{BackendError, ErrorKind};

/// How many callers wait for one attempt; the others fail at once.
const MAX_WAITING: usize = 1024;
/// The pause after the first failed attempt, doubled after each, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// A breaker's one probe that falls into a pause fails, and the next comes a cooldown later. So this
/// is how much later than a cooldown a store that is back may be used, and a fifth of a second at
/// most.
const LONGEST_PAUSE: Duration = Duration::from_millis(160);

type Making<T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>;

/// What is made may stop being usable.
pub(crate) trait Usable: Send + Sync + 'static {
    fn usable(&self) -> bool;
}

/// Ends its task when it is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(pub(crate) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) struct Flight<T>(Arc<Inner<T>>);

struct Inner<T> {
    make: Box<dyn Fn() -> Making<T> + Send + Sync>,
    state: Mutex<State<T>>,
    finished: Notify,
    waiting: AtomicUsize,
}

struct State<T> {
    value: Option<Arc<T>>,
    attempt: Option<Attempt>,
    attempts: u64,
    /// Why there is no value, and until when nobody tries again.
    failure: Option<(Instant, ErrorKind, String)>,
    failures: u32,
}

struct Attempt {
    number: u64,
    /// `None` for the moment in which it begins. Dropped with the attempt.
    task: Option<AbortOnDrop>,
}

impl<T> State<T> {
    fn begin(&mut self) -> u64 {
        self.attempts += 1;
        self.attempt = Some(Attempt {
            number: self.attempts,
            task: None,
        });
        self.attempts
    }
}

impl<T: Usable> Flight<T> {
    pub(crate) fn new<F>(make: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<T, BackendError>> + Send + 'static,
    {
        Self(Arc::new(Inner {
            make: Box::new(move || Box::pin(make())),
            state: Mutex::new(State {
                value: None,
                attempt: None,
                attempts: 0,
                failure: None,
                failures: 0,
            }),
            finished: Notify::new(),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// The value, once it is there. Waits for one attempt at most; the caller bounds how long.
    pub(crate) async fn get(&self) -> Result<Arc<T>, BackendError> {
        loop {
            let finished = self.0.finished.notified();
            tokio::pin!(finished);
            finished.as_mut().enable();
            if let Some(answer) = self.now_or_start() {
                return answer;
            }
            let _waiting = Waiting::enter(&self.0.waiting)?;
            finished.await;
        }
    }

    /// The value if it is there.
    pub(crate) fn peek(&self) -> Option<Arc<T>> {
        self.0.state.lock().value.clone()
    }

    fn now_or_start(&self) -> Option<Result<Arc<T>, BackendError>> {
        let mut state = self.0.state.lock();
        if let Some(value) = &state.value {
            if value.usable() {
                return Some(Ok(Arc::clone(value)));
            }
            state.value = None;
        }
        if state.attempt.is_none() {
            if let Some((until, kind, text)) = &state.failure
                && Instant::now() < *until
            {
                return Some(Err(BackendError::new(*kind, text.clone())));
            }
            let number = state.begin();
            drop(state);
            self.start(number);
        }
        None
    }

    /// Makes a new one while the old one stays in use.
    pub(crate) fn renew(&self) {
        let mut state = self.0.state.lock();
        if state.attempt.is_none() {
            let number = state.begin();
            drop(state);
            self.start(number);
        }
    }

    /// Drops `lost` unless it has been replaced already; nobody makes another for a while, and who
    /// asks meanwhile is told why.
    pub(crate) fn lose(&self, lost: &Arc<T>, pause: Duration, error: &BackendError) {
        let mut state = self.0.state.lock();
        if state
            .value
            .as_ref()
            .is_some_and(|value| Arc::ptr_eq(value, lost))
        {
            state.value = None;
            state.failure = Some((Instant::now() + pause, error.kind(), text_of(error)));
        }
    }

    /// Not under the lock: a runtime that is ending drops the task at once, and its end takes it.
    fn start(&self, number: u64) {
        let attempt = (self.0.make)();
        let mut finish = Finish {
            inner: Arc::downgrade(&self.0),
            result: None,
        };
        let task = tokio::spawn(async move {
            finish.result = Some(attempt.await);
            drop(finish);
        });
        let task = AbortOnDrop(task.abort_handle());
        let mut state = self.0.state.lock();
        if let Some(attempt) = state.attempt.as_mut().filter(|it| it.number == number) {
            attempt.task = Some(task);
            return;
        }
        // It has ended already.
        drop(state);
        drop(task);
    }
}

impl<T: Usable> fmt::Debug for Flight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        f.debug_struct("Flight")
            .field(
                "up",
                &state.value.as_ref().is_some_and(|value| value.usable()),
            )
            .field("failures", &state.failures)
            .finish()
    }
}

/// Tells those who wait what came of an attempt, also if its task was aborted or panicked.
struct Finish<T> {
    inner: Weak<Inner<T>>,
    result: Option<Result<T, BackendError>>,
}

impl<T> Drop for Finish<T> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.upgrade() else {
            return;
        };
        let result = self.result.take().unwrap_or_else(|| {
            Err(BackendError::new(
                ErrorKind::Unavailable,
                "the attempt to connect was cut short",
            ))
        });
        let mut state = inner.state.lock();
        let attempt = state.attempt.take();
        match result {
            Ok(value) => {
                state.value = Some(Arc::new(value));
                state.failure = None;
                state.failures = 0;
            }
            Err(error) => {
                let pause = pause_after(state.failures);
                state.failures = state.failures.saturating_add(1);
                state.failure = Some((Instant::now() + pause, error.kind(), text_of(&error)));
            }
        }
        drop(state);
        inner.finished.notify_waiters();
        drop(attempt);
    }
}

/// The error without its kind, which it prints first.
fn text_of(error: &BackendError) -> String {
    let text = error.to_string();
    text.split_once(": ")
        .map_or(text.clone(), |(_, text)| text.to_owned())
}

/// Up to a quarter longer, so that processes do not come back all at once.
fn pause_after(failures: u32) -> Duration {
    let pause = FIRST_PAUSE
        .saturating_mul(1 << failures.min(4))
        .min(LONGEST_PAUSE);
    let random = RandomState::new().hash_one(failures) % 64;
    pause + pause.mul_f64(random as f64 / 256.0)
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(waiting: &'a AtomicUsize) -> Result<Self, BackendError> {
        let entered = Self(waiting);
        if waiting.fetch_add(1, Ordering::Relaxed) < MAX_WAITING {
            return Ok(entered);
        }
        Err(BackendError::new(
            ErrorKind::Unavailable,
            "enough callers wait for the connection already",
        ))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b65_no_pause_makes_a_store_that_is_back_wait_longer_than_200_ms() {
        for failures in 0..1_000 {
            let pause = pause_after(failures);
            assert!(pause >= FIRST_PAUSE, "{failures}: {pause:?}");
            assert!(pause <= Duration::from_millis(200), "{failures}: {pause:?}");
        }
    }
}
