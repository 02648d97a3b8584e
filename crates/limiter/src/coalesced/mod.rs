//! The wrapper under which concurrent charges share a trip to the store.

mod batch;
mod lanes;
mod trip;

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Poll, Waker};

use metrics::{Gauge, Histogram};
use parking_lot::Mutex;
use tollgate_core::{
    self as core, BackendError, Cost, CounterBackend, Decision, Policy, Refund, SharedDocuments,
    SharedLeases, Subject,
};

use crate::identity::Seed;
use batch::{Batch, Waiter};
use lanes::{Entered, Lanes};
use trip::Trip;

/// How many charges may wait to leave.
const QUEUE: usize = 8_192;

/// Sends concurrent charges to the backend inside together.
///
/// # Behavior
/// - While a charge on a subject is under way, those that arrive leave together in the next trip, as
///   one `acquire_batch`: decided in the order in which they arrived, in one atomic step. Each is
///   answered as if it had come alone.
/// - A charge on a subject that nobody is asking about goes straight through, in the caller's own
///   future. Nothing waits for a timer or for others to come. One that has to wait does so for the
///   trip that is under way, and then for its own.
/// - Subjects are the same if their policy, identity and virtual time are. Where the backend can
///   decide several in one trip (see [`CounterBackend::merge_group`]: Redis), and a few trips are
///   under way already, charges on different subjects leave together too.
/// - A backend that answers at once ([`acquire_now`](CounterBackend::acquire_now)) is never kept
///   waiting, and nothing is ever coalesced over it.
/// - A batch, a trip and the queue are bounded. Beyond the bound of the queue a charge goes through
///   by itself, as it would without this wrapper.
/// - An error of a trip is the error of each charge in it.
/// - Peeks, refunds, resets, pings and calls of `acquire_batch` go straight through. They pass
///   charges that wait: a charge counts as made when it leaves, which is before it is answered and
///   after it was called for.
///
/// # Cancellation
/// A caller that gives up before the charge has left takes nothing. If it has left, the trip goes
/// on, for the others too, and what was charged is given back. A charge that went straight through
/// has been charged or not, as without this wrapper.
///
/// Once nobody waits for a trip any more, the next one leaves: a store that hangs keeps no key for
/// longer than its callers wait.
///
/// # Place
/// Innermost but for the store: `Fallback(CircuitBreaker(Timeout(Coalesced(redis))))`. In
/// `Coalesced(Timeout(redis))` the timeout would not bound how long a caller waits for the trip
/// before.
///
/// Charges are coalesced only in a tokio runtime, whose tasks make the trips. If that runtime ends,
/// those who waited for an answer in another are told that it has.
///
/// ```
/// use tollgate::{Coalesced, Cost, CounterBackend, Key, Policy, Quota, Subject};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = Coalesced::new(tollgate::connect("memory://").await?);
/// let policy = Policy::new("search", Quota::parse_list("10/s")?)?;
/// let key = Key::from("alice");
/// assert!(backend.acquire(Subject::new(&policy, &key), Cost::ONE).await?.allowed());
/// assert_eq!(backend.to_string(), "Coalesced(memory://)");
/// # Ok(())
/// # }
/// ```
pub struct Coalesced<B: CounterBackend> {
    shared: Arc<Shared<B>>,
    on: bool,
}

struct Shared<B> {
    inner: B,
    lanes: Mutex<Lanes>,
    seed: Seed,
    /// Trips that go on although nobody waits for them.
    deserted: AtomicUsize,
    meters: Meters,
}

/// What is measured of trips that carry what has waited.
pub(crate) struct Meters {
    /// How many charges one carries.
    pub(crate) charges: Histogram,
    /// How many are left waiting when one leaves.
    pub(crate) waiting: Gauge,
}

impl Meters {
    pub(crate) fn none() -> Self {
        Self {
            charges: Histogram::noop(),
            waiting: Gauge::noop(),
        }
    }
}

impl<B: CounterBackend> Coalesced<B> {
    /// Concurrent charges share trips to `inner`.
    pub fn new(inner: B) -> Self {
        Self::with(inner, true, Meters::none())
    }

    /// If not `on`, it is not there: every call goes straight through.
    pub(crate) fn with(inner: B, on: bool, meters: Meters) -> Self {
        Self {
            shared: Arc::new(Shared {
                inner,
                lanes: Mutex::new(Lanes::new(QUEUE)),
                seed: Seed::random(),
                deserted: AtomicUsize::new(0),
                meters,
            }),
            on,
        }
    }

    /// How many charges may wait to leave. Default: 8,192.
    #[must_use]
    pub fn queue(self, max: usize) -> Self {
        self.shared.lanes.lock().set_max_queued(max);
        self
    }

    /// How many charges wait to leave now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.lanes.lock().queued()
    }

    /// The backend inside.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.shared.inner
    }

    /// The backend inside; `None` while a trip is under way.
    #[must_use]
    pub fn into_inner(self) -> Option<B> {
        Arc::into_inner(self.shared).map(|shared| shared.inner)
    }

    fn enter(&self, subject: Subject<'_>, cost: Cost, waker: &Waker) -> Turn<'_, B> {
        if !self.on {
            return Turn::Ask(None);
        }
        let shared = &self.shared;
        let id = shared.seed.hash(subject) ^ subject.at.map_or(0, |at| at.as_micros() + 1);
        let group = shared.inner.merge_group(subject);
        let entered = shared.lanes.lock().enter(id, group, subject, cost, waker);
        match entered {
            Entered::Lead => Turn::Ask(Some(Leading { shared, id, group })),
            Entered::Wait(batch, index) => Turn::Wait(Waiter::new(shared, batch, index)),
            Entered::Alone => Turn::Ask(None),
        }
    }
}

/// What a caller does.
enum Turn<'a, B: CounterBackend> {
    Ask(Option<Leading<'a, B>>),
    Wait(Waiter<'a, B>),
}

/// A caller who asks about a subject by itself. When that ends, in whatever way, those go who have
/// come meanwhile.
struct Leading<'a, B: CounterBackend> {
    shared: &'a Arc<Shared<B>>,
    id: u64,
    group: Option<u64>,
}

impl<B: CounterBackend> Drop for Leading<'_, B> {
    fn drop(&mut self) {
        self.shared.leave(&[self.id], self.group);
    }
}

impl<B: CounterBackend> Shared<B> {
    /// Hands lanes over to those who wait, or frees them.
    fn leave(self: &Arc<Self>, lanes: &[u64], group: Option<u64>) {
        let handle = self.lanes.lock().leave((lanes, group));
        if let Some(handle) = handle {
            Trip::spawn(&handle, self, lanes, group);
        }
    }

    /// Gives back what was charged to callers who have gone. Nobody waits for that, so it is tried
    /// once.
    fn give_back(self: &Arc<Self>, batch: Arc<Batch>, refunds: Vec<Refund>) {
        if refunds.is_empty() {
            return;
        }
        let shared = Arc::clone(self);
        let handle = batch.handle.clone();
        handle.spawn(async move {
            for refund in refunds {
                if let Err(error) = shared.inner.refund(batch.subject(), refund).await {
                    tracing::debug!(%error, cost = refund.cost, "a charge nobody waited for stays");
                }
            }
        });
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: CounterBackend> CounterBackend for Coalesced<B> {
    async fn acquire(&self, subject: Subject<'_>, cost: Cost) -> Result<Decision, BackendError> {
        loop {
            let entering = poll_fn(|cx| Poll::Ready(self.enter(subject, cost, cx.waker())));
            match entering.await {
                Turn::Ask(_leading) => return self.shared.inner.acquire(subject, cost).await,
                Turn::Wait(waiter) => {
                    if let Some(answer) = waiter.await {
                        return answer;
                    }
                }
            }
        }
    }

    fn acquire_now(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> Option<Result<Decision, BackendError>> {
        self.shared.inner.acquire_now(subject, cost)
    }

    fn acquire_batch(
        &self,
        subject: Subject<'_>,
        costs: &[Cost],
    ) -> impl Future<Output = Result<Vec<Decision>, BackendError>> + Send {
        self.shared.inner.acquire_batch(subject, costs)
    }

    fn peek(
        &self,
        subject: Subject<'_>,
        cost: Cost,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send {
        self.shared.inner.peek(subject, cost)
    }

    fn refund(
        &self,
        subject: Subject<'_>,
        refund: Refund,
    ) -> impl Future<Output = Result<Decision, BackendError>> + Send {
        self.shared.inner.refund(subject, refund)
    }

    fn reset(&self, subject: Subject<'_>) -> impl Future<Output = Result<(), BackendError>> + Send {
        self.shared.inner.reset(subject)
    }

    fn ping(&self) -> impl Future<Output = Result<(), BackendError>> + Send {
        self.shared.inner.ping()
    }

    fn acquire_many(
        &self,
        batches: &[core::Batch<'_>],
    ) -> impl Future<Output = Result<Vec<Option<Vec<Decision>>>, BackendError>> + Send {
        self.shared.inner.acquire_many(batches)
    }

    fn merge_group(&self, subject: Subject<'_>) -> Option<u64> {
        self.shared.inner.merge_group(subject)
    }

    fn prefers_coalescing(&self) -> bool {
        !self.on && self.shared.inner.prefers_coalescing()
    }

    /// None: only counting goes through here.
    fn leases(self: Arc<Self>) -> Option<SharedLeases> {
        None
    }

    fn documents(self: Arc<Self>) -> Option<SharedDocuments> {
        None
    }

    fn accepts(&self, policy: &Policy) -> Result<(), BackendError> {
        self.shared.inner.accepts(policy)
    }

    fn warnings(&self) -> Vec<String> {
        self.shared.inner.warnings()
    }
}

impl<B: CounterBackend> fmt::Debug for Coalesced<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = self.shared.lanes.lock();
        f.debug_struct("Coalesced")
            .field("inner", &self.shared.inner)
            .field("on", &self.on)
            .field("waiting", &lanes.queued())
            .field("queue", &lanes.max_queued())
            .finish()
    }
}

impl<B: CounterBackend> fmt::Display for Coalesced<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.on {
            write!(f, "Coalesced({})", self.shared.inner)
        } else {
            fmt::Display::fmt(&self.shared.inner, f)
        }
    }
}
