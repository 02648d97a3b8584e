//! One task for all permits of a limiter: it renews what is held, and sees to it that what was
//! dropped is given back.
//!
//! It starts with the first permit, on the runtime of whoever takes it, and again on another should
//! that one end. Who takes a slot only writes it down; the task is told where it has to wake earlier
//! than it would.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tollgate_core::{BackendError, ErrorKind};

use super::lease::Lease;
use super::registry::Registry;
use crate::time::Instant;

/// So many calls to the store are begun at one time; the next ones wait for these.
const AT_ONCE: usize = 64;

/// How often a slot is given back while the store does not answer.
const RELEASES: u32 = 5;

/// A release that is under way.
type Releasing = Pin<Box<dyn Future<Output = Result<bool, BackendError>> + Send>>;

pub(super) enum Message {
    /// Something is due earlier than the task thinks.
    Wake,
    Release(Arc<Lease>, Option<Releasing>),
    Drain(oneshot::Sender<()>),
}

/// What is held, and the way to the task.
#[derive(Default)]
pub(crate) struct Keeper {
    registry: Arc<Registry>,
    last_fence: AtomicU64,
}

impl Keeper {
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Renews it from now on. `Err`: this process has as many already.
    pub(super) fn hold(&self, lease: &Arc<Lease>, fence: u64) -> Result<(), u32> {
        self.last_fence.fetch_max(fence, Ordering::AcqRel);
        if self.registry.enter(lease)? {
            self.send(Message::Wake);
        }
        Ok(())
    }

    /// Holds it without the store; its number. `Err`: this process has all slots already.
    pub(super) fn hold_here(&self, lease: &Arc<Lease>, now: u64) -> Result<u64, u32> {
        self.registry.enter_here(lease)?;
        let next = |last: u64| now.max(last + 1);
        let step = self
            .last_fence
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(next(last)));
        Ok(next(step.unwrap_or_else(|last| last)))
    }

    /// Gives it back without blocking. The call to the store begins now, so that what this process
    /// asks next comes after it; the task sees to its end.
    pub(super) fn release(&self, lease: Arc<Lease>) {
        self.registry.remove(&lease);
        let mut releasing = None;
        // Where nobody could drive it, or a second panic would end the process, the task begins it.
        if Handle::try_current().is_ok() && !std::thread::panicking() {
            let leaving = Arc::clone(&lease);
            let mut call: Releasing =
                Box::pin(async move { leaving.of.store.release(&leaving).await });
            let begin = || call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            // A drop never panics, whatever the store does.
            match catch_unwind(AssertUnwindSafe(begin)) {
                Ok(Poll::Ready(Ok(_))) => return,
                Ok(Poll::Ready(Err(_))) | Err(_) => {}
                Ok(Poll::Pending) => releasing = Some(call),
            }
        }
        self.send(Message::Release(lease, releasing));
    }

    /// Gives back all that is held, and waits until nothing is under way.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        if self.registry.with(|state| state.task.is_some()) {
            self.send(Message::Drain(done));
            // The task ends only when nobody can send to it.
            let _ = drained.await;
        }
    }

    /// Without a runtime there is nobody to do it: the slot is free once its time has passed.
    fn send(&self, message: Message) {
        let unsent = self.registry.with(|state| match &state.task {
            Some(task) => task.send(message).err().map(|unsent| unsent.0),
            None => Some(message),
        });
        // There is no task yet, or its runtime has ended.
        if let Some(message) = unsent
            && let Ok(runtime) = Handle::try_current()
        {
            let (task, messages) = mpsc::unbounded_channel();
            // The receiver is alive: it is held here.
            let _ = task.send(message);
            // Two that begin at the same time are two tasks: the first ends when it has done what it
            // was sent.
            self.registry.with(|state| state.task = Some(task));
            // Not under the lock: a runtime that is ending drops it at once, and all it holds.
            runtime.spawn(Task::new(Arc::clone(&self.registry), messages).run());
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The task ends when nobody can send to it.
        self.registry.with(|state| state.task = None);
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

/// What a call to the store came to.
enum Done {
    Renewed(Arc<Lease>, Instant, Result<bool, BackendError>),
    Released,
}

struct Task {
    registry: Arc<Registry>,
    messages: mpsc::UnboundedReceiver<Message>,
    /// What is to be given back when there is room.
    leaving: Vec<Arc<Lease>>,
    calls: JoinSet<Done>,
    drains: Vec<oneshot::Sender<()>>,
}

impl Task {
    fn new(registry: Arc<Registry>, messages: mpsc::UnboundedReceiver<Message>) -> Self {
        Self {
            registry,
            messages,
            leaving: Vec::new(),
            calls: JoinSet::new(),
            drains: Vec::new(),
        }
    }

    async fn run(mut self) {
        let mut open = true;
        loop {
            self.start_calls();
            if self.calls.is_empty() && self.leaving.is_empty() {
                for drain in self.drains.drain(..) {
                    let _ = drain.send(());
                }
                if !open {
                    return;
                }
            }
            let next = self.registry.set_alarm();
            let room = self.calls.len() < AT_ONCE;
            tokio::select! {
                message = self.messages.recv(), if open => match message {
                    Some(message) => self.take(message),
                    None => open = false,
                },
                Some(done) = self.calls.join_next(), if !self.calls.is_empty() => {
                    // A store that panics has not renewed; the next turn comes.
                    if let Ok(Done::Renewed(lease, began, answer)) = done {
                        self.renewed(lease, began, answer);
                    }
                }
                () = tokio::time::sleep_until(next), if room => {}
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Wake => {}
            Message::Release(lease, Some(call)) => {
                self.calls.spawn(async move {
                    if call.await.is_err() {
                        release(&lease).await;
                    }
                    Done::Released
                });
            }
            Message::Release(lease, None) => self.leaving.push(lease),
            Message::Drain(done) => {
                self.drains.push(done);
                for lease in self.registry.take_all() {
                    lease.lose();
                    self.leaving.push(lease);
                }
            }
        }
    }

    /// Renewals before releases: a late release costs others a wait, a late renewal a holder its
    /// slot.
    fn start_calls(&mut self) {
        let room = AT_ONCE.saturating_sub(self.calls.len());
        for lease in self.registry.take_due(room) {
            let began = Instant::now();
            // This process was late itself: it was frozen, or had no turn. The store may have given
            // the slot to somebody else meanwhile, and the holder may have seen the clock.
            if lease.until() <= began {
                self.lose(&lease);
                continue;
            }
            self.calls.spawn(async move {
                let renewed = renew(&lease, began).await;
                Done::Renewed(lease, began, renewed)
            });
        }
        while self.calls.len() < AT_ONCE
            && let Some(lease) = self.leaving.pop()
        {
            self.calls.spawn(async move {
                release(&lease).await;
                Done::Released
            });
        }
    }

    fn renewed(&self, lease: Arc<Lease>, began: Instant, answer: Result<bool, BackendError>) {
        // Given back meanwhile.
        if !self.registry.holds(&lease) {
            return;
        }
        match answer {
            Ok(true) => {
                lease.renewed(began);
                self.registry.schedule(&lease, began + lease.of.ttl / 3);
            }
            Ok(false) => self.lose(&lease),
            Err(error) => self.overdue(&lease, &error),
        }
    }

    /// It was not renewed: again soon, while there is time.
    fn overdue(&self, lease: &Arc<Lease>, error: &BackendError) {
        let now = Instant::now();
        let pause = pause(lease);
        // The last decision is made while the slot is still held, so that a holder who keeps it is
        // never told that it is lost.
        if now + 2 * pause < lease.until() {
            self.registry.schedule(lease, now + pause);
            return;
        }
        let kept = lease.of.store.counts_here(&lease.of, error) && self.registry.keep_here(lease);
        if !kept {
            self.lose(lease);
        }
    }

    fn lose(&self, lease: &Arc<Lease>) {
        self.registry.remove(lease);
        lease.lose();
    }
}

/// Between two attempts to renew a slot.
fn pause(lease: &Lease) -> Duration {
    (lease.of.ttl / 10).min(Duration::from_secs(1))
}

/// Renews a slot. A store that does not answer is given up on while the slot is still held, if that
/// is not too near already.
async fn renew(lease: &Lease, began: Instant) -> Result<bool, BackendError> {
    let end = lease.until();
    let limit = Some(end - pause(lease)).filter(|limit| *limit > began);
    let renewing = lease.of.store.renew(lease);
    match tokio::time::timeout_at(limit.unwrap_or(end), renewing).await {
        Ok(answer) => Ok(answer?.ok),
        Err(_) => Err(BackendError::new(
            ErrorKind::Timeout,
            "a slot could not be renewed within its time to live",
        )),
    }
}

/// Gives a slot back, again and again for a while if the store does not answer.
async fn release(lease: &Lease) {
    for attempt in 1..=RELEASES {
        match lease.of.store.release(lease).await {
            Ok(_) => return,
            Err(error) if attempt == RELEASES || Instant::now() >= lease.until() => {
                tracing::debug!(name = &*lease.of.name, %error, "a slot was not given back: it is free once its time has passed");
                return;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100) * 2_u32.pow(attempt)).await,
        }
    }
}
