//! One task for all permits of a limiter: it renews what is held, and gives back what was dropped.
//!
//! It starts with the first permit, on the runtime of whoever takes it, and again on another should
//! that one end. Callers only send it messages, so that a drop never blocks.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tollgate_core::BackendError;

use super::lease::Lease;
use super::slots::Place;
use crate::time::{FOREVER, Instant};

/// So many calls to the store are under way at one time; the next ones wait for these.
const AT_ONCE: usize = 64;

/// How often a slot is given back while the store does not answer.
const RELEASES: u32 = 5;

type Id = usize;

enum Message {
    Hold(Arc<Lease>),
    Release(Arc<Lease>),
    Forget(Id),
    Drain(oneshot::Sender<()>),
}

/// The way to the task.
#[derive(Default)]
pub(crate) struct Keeper(Mutex<Option<mpsc::UnboundedSender<Message>>>);

impl Keeper {
    /// Renews it from now on.
    pub(super) fn hold(&self, lease: Arc<Lease>) {
        self.send(Message::Hold(lease));
    }

    /// Gives it back, and renews it no more.
    pub(super) fn release(&self, lease: Arc<Lease>) {
        self.send(Message::Release(lease));
    }

    /// It was given back.
    pub(super) fn forget(&self, lease: &Arc<Lease>) {
        self.send(Message::Forget(id(lease)));
    }

    /// Gives back all that is held, and waits until nothing is under way.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        if self.0.lock().is_some() {
            self.send(Message::Drain(done));
            // The task ends only when nobody can send to it.
            let _ = drained.await;
        }
    }

    /// Without a runtime there is nobody to do it: the slot is free once its time has passed.
    fn send(&self, message: Message) {
        let mut sender = self.0.lock();
        let message = match &*sender {
            Some(task) => match task.send(message) {
                Ok(()) => return,
                // Its runtime has ended.
                Err(mpsc::error::SendError(message)) => message,
            },
            None => message,
        };
        if let Ok(runtime) = Handle::try_current() {
            let (task, messages) = mpsc::unbounded_channel();
            // The receiver is alive: it is held here.
            let _ = task.send(message);
            runtime.spawn(Task::new(messages).run());
            *sender = Some(task);
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

fn id(lease: &Arc<Lease>) -> Id {
    Arc::as_ptr(lease).addr()
}

/// What a call to the store came to.
enum Done {
    Renewed(Arc<Lease>, Instant, Result<bool, BackendError>),
    Released,
}

struct Task {
    messages: mpsc::UnboundedReceiver<Message>,
    /// What is held, and when it is due next.
    held: HashMap<Id, (Arc<Lease>, Instant)>,
    due: BTreeMap<(Instant, Id), ()>,
    /// What is to be given back when there is room.
    leaving: Vec<Arc<Lease>>,
    calls: JoinSet<Done>,
    drains: Vec<oneshot::Sender<()>>,
}

impl Task {
    fn new(messages: mpsc::UnboundedReceiver<Message>) -> Self {
        Self {
            messages,
            held: HashMap::new(),
            due: BTreeMap::new(),
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
            let next = self.next_due();
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
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Hold(lease) => {
                let due = Instant::now() + lease.of.ttl / 3;
                self.schedule(lease, due);
            }
            Message::Release(lease) => {
                self.remove(id(&lease));
                self.leaving.push(lease);
            }
            Message::Forget(id) => {
                self.remove(id);
            }
            Message::Drain(done) => {
                self.drains.push(done);
                self.due.clear();
                for (_, (lease, _)) in self.held.drain() {
                    lease.lose();
                    self.leaving.push(lease);
                }
            }
        }
    }

    fn schedule(&mut self, lease: Arc<Lease>, due: Instant) {
        let id = id(&lease);
        self.remove(id);
        self.held.insert(id, (lease, due));
        self.due.insert((due, id), ());
    }

    fn remove(&mut self, id: Id) -> Option<Arc<Lease>> {
        let (lease, due) = self.held.remove(&id)?;
        self.due.remove(&(due, id));
        Some(lease)
    }

    fn next_due(&self) -> Instant {
        let full = self.calls.len() >= AT_ONCE;
        match self.due.keys().next() {
            Some((due, _)) if !full => *due,
            _ => Instant::now() + FOREVER,
        }
    }

    /// Renewals before releases: a late release costs others a wait, a late renewal a holder its
    /// slot.
    fn start_calls(&mut self) {
        let now = Instant::now();
        while self.calls.len() < AT_ONCE
            && let Some((&(due, id), ())) = self.due.first_key_value()
            && due <= now
        {
            self.due.remove(&(due, id));
            let Some((lease, at)) = self.held.get_mut(&id) else {
                continue;
            };
            // Should the call never end, the next is due when the slot would be lost.
            *at = lease.until();
            self.due.insert((*at, id), ());
            let lease = Arc::clone(lease);
            if lease.until() <= now {
                self.overdue(lease, None);
                continue;
            }
            self.calls.spawn(async move {
                let began = Instant::now();
                let answer = lease.of.store.renew(&lease).await;
                Done::Renewed(Arc::clone(&lease), began, answer.map(|answer| answer.ok))
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

    fn renewed(&mut self, lease: Arc<Lease>, began: Instant, answer: Result<bool, BackendError>) {
        // Given back meanwhile.
        if !self.held.contains_key(&id(&lease)) {
            return;
        }
        match answer {
            Ok(true) => {
                lease.renewed(began);
                let due = began + lease.of.ttl / 3;
                self.schedule(lease, due);
            }
            Ok(false) => {
                self.remove(id(&lease));
                lease.lose();
            }
            Err(error) => self.overdue(lease, Some(error)),
        }
    }

    /// It was not renewed: again soon, while there is time.
    fn overdue(&mut self, lease: Arc<Lease>, error: Option<BackendError>) {
        let now = Instant::now();
        let pause = (lease.of.ttl / 10).min(Duration::from_secs(1));
        // The last decision is made while the slot is still held, so that a holder who keeps it is
        // never told that it is lost.
        if now + 2 * pause < lease.until() {
            self.schedule(lease, now + pause);
            return;
        }
        let error = error.unwrap_or_else(|| {
            BackendError::new(
                tollgate_core::ErrorKind::Timeout,
                "a slot could not be renewed within its time to live",
            )
        });
        if lease.place() == Place::Store && lease.of.store.counts_here(&lease.of, &error) {
            lease.keep_here();
            let due = now + lease.of.ttl / 3;
            self.schedule(lease, due);
        } else {
            self.remove(id(&lease));
            lease.lose();
        }
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
