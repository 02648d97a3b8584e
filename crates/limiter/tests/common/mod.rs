//! A store that does as it is told, and ears for logs and metrics.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod log;
pub mod recorder;

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate::{
    BackendError, Batch, CasBackend, Cost, CounterBackend, Decision, ErrorKind, Quota, Refund,
    Subject, Timestamp,
};
use tollgate_testkit::MapStore;

/// How a [`Scripted`] store behaves.
#[derive(Clone, Copy, Debug, Default)]
pub enum Mode {
    #[default]
    Works,
    Fails(ErrorKind),
    Hangs,
    Slow(Duration),
    /// Each call waits until the test lets it go on, see [`Scripted::held`].
    Held,
    /// Each call lets others run so many times.
    Yields(usize),
    Panics,
}

type Release = oneshot::Sender<Result<(), ErrorKind>>;

/// A store that works, fails, hangs or waits, and counts who asks it. Clones are the same store.
#[derive(Clone, Default)]
pub struct Scripted(Arc<Inner>);

struct Inner {
    store: CasBackend<MapStore>,
    mode: Mutex<Mode>,
    immediate: AtomicBool,
    calls: AtomicU64,
    held: Mutex<VecDeque<Release>>,
    log: Mutex<Vec<String>>,
    merges: AtomicBool,
    prefers: AtomicBool,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            store: CasBackend::new(MapStore::default()),
            mode: Mutex::default(),
            immediate: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            held: Mutex::default(),
            log: Mutex::default(),
            merges: AtomicBool::new(false),
            prefers: AtomicBool::new(false),
        }
    }
}

impl Scripted {
    pub fn new(mode: Mode) -> Self {
        let store = Self::default();
        store.set(mode);
        store
    }

    /// Answers `acquire_now` too, while it works or fails at once.
    pub fn immediate(self) -> Self {
        self.0.immediate.store(true, Ordering::SeqCst);
        self
    }

    /// Decides charges on several keys in one trip, but for keys that begin with `!`.
    pub fn merging(self) -> Self {
        self.0.merges.store(true, Ordering::SeqCst);
        self
    }

    /// Says that charges should be coalesced.
    pub fn preferring(self) -> Self {
        self.0.prefers.store(true, Ordering::SeqCst);
        self
    }

    /// The charges that have reached the store, a line a call: `k 1`, or `a 1 1 | b 2` for several
    /// keys; and `refund k 2`.
    pub fn log(&self) -> Vec<String> {
        self.0.log.lock().unwrap().clone()
    }

    fn note(&self, line: String) {
        self.0.log.lock().unwrap().push(line);
    }

    pub fn set(&self, mode: Mode) {
        *self.0.mode.lock().unwrap() = mode;
    }

    /// How many calls have reached the store.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// Waits for a held call, and lets it go on, or fail, when the sender is used.
    pub async fn held(&self) -> Release {
        loop {
            if let Some(release) = self.0.held.lock().unwrap().pop_front() {
                return release;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn enter(&self) -> Result<(), BackendError> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        let mode = *self.0.mode.lock().unwrap();
        let failed = match mode {
            Mode::Works => None,
            Mode::Fails(kind) => Some(kind),
            Mode::Hangs => pending().await,
            Mode::Slow(wait) => {
                tokio::time::sleep(wait).await;
                None
            }
            Mode::Held => {
                let (release, released) = oneshot::channel();
                self.0.held.lock().unwrap().push_back(release);
                released.await.unwrap_or(Ok(())).err()
            }
            Mode::Yields(times) => {
                for _ in 0..times {
                    tokio::task::yield_now().await;
                }
                None
            }
            Mode::Panics => panic!("as told"),
        };
        failed.map_or(Ok(()), |kind| Err(BackendError::new(kind, "as told")))
    }
}

impl CounterBackend for Scripted {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.note(line(subject, &[cost]));
        self.enter().await?;
        self.0.store.acquire(subject, cost).await
    }

    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        let mode = *self.0.mode.lock().unwrap();
        let at_once = matches!(mode, Mode::Works | Mode::Fails(_));
        if !at_once || !self.0.immediate.load(Ordering::SeqCst) {
            return None;
        }
        let call = pin!(self.acquire(subject, cost));
        match call.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => unreachable!("this mode does not wait"),
        }
    }

    async fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        self.note(line(subject, costs));
        self.enter().await?;
        self.0.store.acquire_batch(subject, costs).await
    }

    async fn peek(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        self.enter().await?;
        self.0.store.peek(subject, cost).await
    }

    async fn refund(&self, subject: Subject<'_>, refund: Refund) -> Result<Decision, BackendError> {
        let key = String::from_utf8_lossy(subject.key.as_bytes());
        self.note(format!("refund {key} {}", refund.cost));
        self.enter().await?;
        self.0.store.refund(subject, refund).await
    }

    async fn reset(&self, subject: Subject<'_>) -> Result<(), BackendError> {
        self.enter().await?;
        self.0.store.reset(subject).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.enter().await
    }

    async fn acquire_many(
        &self,
        batches: &[Batch<'_>],
    ) -> Result<Vec<Option<Vec<Decision>>>, BackendError> {
        let lines: Vec<_> = batches.iter().map(|b| line(b.subject, b.costs)).collect();
        self.note(lines.join(" | "));
        self.enter().await?;
        let mut answers = Vec::new();
        for Batch { subject, costs } in batches {
            answers.push(if subject.key.as_bytes().starts_with(b"!") {
                None
            } else {
                Some(self.0.store.acquire_batch(*subject, costs).await?)
            });
        }
        Ok(answers)
    }

    fn merge_group(&self, _: Subject<'_>) -> Option<u64> {
        self.0.merges.load(Ordering::SeqCst).then_some(7)
    }

    fn prefers_coalescing(&self) -> bool {
        self.0.prefers.load(Ordering::SeqCst)
    }

    fn warnings(&self) -> Vec<String> {
        vec!["it does as it is told".into()]
    }
}

fn line(subject: Subject<'_>, costs: &[Cost]) -> String {
    let mut line = String::from_utf8_lossy(subject.key.as_bytes()).into_owned();
    for cost in costs {
        line.push_str(&format!(" {}", cost.min()));
        if cost.max() > cost.min() {
            line.push_str(&format!("-{}", cost.max()));
        }
    }
    line
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl fmt::Display for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("scripted")
    }
}

/// Quotas from text.
pub fn quotas(text: &str) -> Vec<Quota> {
    Quota::parse_list(text).unwrap()
}

/// The start of a minute, an hour and a day, and so many milliseconds.
pub fn at(millis: u64) -> Timestamp {
    let day = 86_400_000_000;
    Timestamp::from_micros(1_700_000_000_000_000 / day * day) + Duration::from_millis(millis)
}
