//! Charges on one subject that wait for the next trip, and who waits for them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tollgate_core::{
    BackendError, Cost, CounterBackend, Decision, Key, Origin, Policy, Refund, Subject, Timestamp,
};

use super::Shared;

type Answer = Result<Decision, BackendError>;

/// Charges on one subject in the order in which they came. They leave together.
pub(super) struct Batch {
    policy: Policy,
    key: Key<'static>,
    at: Option<Timestamp>,
    /// Where a task for them can run.
    pub(super) handle: Handle,
    max: usize,
    slots: Mutex<Slots>,
}

struct Slots {
    all: Vec<Slot>,
    /// How many wait for an answer.
    live: usize,
    /// Who is told when nobody does any more.
    watch: Option<Arc<Watch>>,
}

struct Slot {
    cost: Cost,
    waker: Option<Waker>,
    state: State,
}

enum State {
    /// Has not left.
    Waiting,
    /// Is on its way.
    Sent,
    /// Is on its way, and the caller has gone: what is charged must be given back.
    Orphaned,
    Answered(Answer),
    /// Has not left, and nobody will take it there: the caller must begin anew.
    Stranded,
    Done,
}

/// Counts the batches of a trip that somebody waits for, and says when there are none.
#[derive(Default)]
pub(super) struct Watch {
    batches: AtomicUsize,
    pub(super) deserted: Notify,
}

impl Watch {
    fn leave(&self) {
        if self.batches.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.deserted.notify_one();
        }
    }
}

impl Batch {
    /// An empty one, for `max` charges at most and probably about `likely`.
    pub(super) fn new(subject: Subject<'_>, handle: Handle, max: usize, likely: usize) -> Self {
        Self {
            policy: subject.policy.clone(),
            key: subject.key.clone().into_owned(),
            at: subject.at,
            handle,
            max,
            slots: Mutex::new(Slots {
                all: Vec::with_capacity(likely),
                live: 0,
                watch: None,
            }),
        }
    }

    /// What it is about.
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            policy: &self.policy,
            key: &self.key,
            at: self.at,
        }
    }

    pub(super) fn is_of(&self, subject: Subject<'_>) -> bool {
        self.at == subject.at && self.key == *subject.key && self.policy == *subject.policy
    }

    /// How many have joined, the ones that have gone again included.
    pub(super) fn len(&self) -> usize {
        self.slots.lock().all.len()
    }

    /// Adds a charge and who is to be woken, unless it is full. Only while it waits in its lane.
    pub(super) fn join(&self, cost: Cost, waker: &Waker) -> Option<usize> {
        let mut slots = self.slots.lock();
        if slots.all.len() >= self.max {
            return None;
        }
        slots.live += 1;
        slots.all.push(Slot {
            cost,
            waker: Some(waker.clone()),
            state: State::Waiting,
        });
        Some(slots.all.len() - 1)
    }

    /// The costs of those who are still there, who are now on their way. Those who have gone take
    /// nothing.
    pub(super) fn depart(&self, watch: &Arc<Watch>) -> Vec<Cost> {
        let mut slots = self.slots.lock();
        let mut costs = Vec::with_capacity(slots.live);
        for slot in &mut slots.all {
            if matches!(slot.state, State::Waiting) {
                slot.state = State::Sent;
                costs.push(slot.cost);
            }
        }
        if slots.live > 0 {
            watch.batches.fetch_add(1, Ordering::AcqRel);
            slots.watch = Some(Arc::clone(watch));
        }
        costs
    }

    /// Hands out the answers in order. Says what was charged to those who have gone.
    pub(super) fn answer(&self, answers: impl IntoIterator<Item = Answer>) -> Vec<Refund> {
        let mut refunds = Vec::new();
        let mut answers = answers.into_iter();
        self.settle(|state| {
            let wanted = match state {
                State::Sent => true,
                State::Orphaned => false,
                _ => return,
            };
            let answer = answers.next().unwrap_or_else(|| {
                Err(BackendError::new(
                    tollgate_core::ErrorKind::Malformed,
                    "the store answered fewer charges than it was asked for",
                ))
            });
            if wanted {
                *state = State::Answered(answer);
            } else {
                if let Ok(decision) = &answer {
                    add_refund(&mut refunds, decision);
                }
                *state = State::Done;
            }
        });
        refunds
    }

    /// Tells everybody who is on the way that it failed.
    pub(super) fn fail(&self, error: &BackendError) {
        self.answer(std::iter::repeat_with(|| Err(error.clone())));
    }

    /// Sends those who have not left back to begin anew.
    pub(super) fn strand(&self) {
        self.settle(|state| {
            if matches!(state, State::Waiting) {
                *state = State::Stranded;
            }
        });
    }

    /// Nobody waits any more once `each` has changed every state.
    fn settle(&self, mut each: impl FnMut(&mut State)) {
        let mut slots = self.slots.lock();
        let mut wakers = Vec::with_capacity(slots.live);
        for slot in &mut slots.all {
            each(&mut slot.state);
            wakers.extend(slot.waker.take());
        }
        let deserted = std::mem::take(&mut slots.live) == 0;
        let watch = slots.watch.take();
        drop(slots);
        if !deserted && let Some(watch) = watch {
            watch.leave();
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Adds what a decision charged, in one sum for each moment.
fn add_refund(refunds: &mut Vec<Refund>, decision: &Decision) {
    if decision.granted() == 0 || decision.origin() != Origin::Shared {
        return;
    }
    let (cost, charged_at) = (decision.granted(), decision.charged_at());
    match refunds
        .iter_mut()
        .find(|refund| refund.charged_at == charged_at)
    {
        Some(refund) => refund.cost = refund.cost.saturating_add(cost),
        None => refunds.push(Refund { cost, charged_at }),
    }
}

/// A caller who waits for the answer to one charge of a batch; `None`: begin anew.
pub(super) struct Waiter<'a, B: CounterBackend> {
    shared: &'a Arc<Shared<B>>,
    batch: Option<Arc<Batch>>,
    index: usize,
    /// Whether it has joined in this very poll, with its waker.
    joined: bool,
}

impl<'a, B: CounterBackend> Waiter<'a, B> {
    /// One who has just joined; to be polled before the poll that it joined in ends.
    pub(super) const fn new(shared: &'a Arc<Shared<B>>, batch: Arc<Batch>, index: usize) -> Self {
        Self {
            shared,
            batch: Some(batch),
            index,
            joined: true,
        }
    }
}

impl<B: CounterBackend> Future for Waiter<'_, B> {
    type Output = Option<Answer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.joined) {
            return Poll::Pending;
        }
        let index = self.index;
        let Some(batch) = &self.batch else {
            return Poll::Pending;
        };
        let mut slots = batch.slots.lock();
        let slot = &mut slots.all[index];
        let outcome = match std::mem::replace(&mut slot.state, State::Done) {
            State::Answered(answer) => Some(answer),
            State::Stranded => None,
            waiting => {
                slot.state = waiting;
                match &mut slot.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                return Poll::Pending;
            }
        };
        drop(slots);
        self.batch = None;
        Poll::Ready(outcome)
    }
}

/// A caller who gives up: takes nothing if the charge has not left, and has it given back if it has.
impl<B: CounterBackend> Drop for Waiter<'_, B> {
    fn drop(&mut self) {
        let Some(batch) = self.batch.take() else {
            return;
        };
        let mut refunds = Vec::new();
        let mut deserted = None;
        let mut slots = batch.slots.lock();
        let slot = &mut slots.all[self.index];
        let waker = slot.waker.take();
        let left = match std::mem::replace(&mut slot.state, State::Done) {
            State::Waiting => true,
            State::Sent => {
                slot.state = State::Orphaned;
                true
            }
            State::Answered(Ok(decision)) => {
                add_refund(&mut refunds, &decision);
                false
            }
            _ => false,
        };
        if left {
            slots.live -= 1;
            if slots.live == 0 {
                deserted = slots.watch.take();
            }
        }
        drop(slots);
        drop(waker);
        if let Some(watch) = deserted {
            watch.leave();
        }
        self.shared.give_back(batch, refunds);
    }
}
