//! The task that takes what has come together to the store, again and again while more comes.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tollgate_core::{self as core, BackendError, Cost, CounterBackend, Decision, ErrorKind};

use super::Shared;
use super::batch::{Batch, Watch};

/// How many trips may go on that nobody waits for any more, to give back what they charge. Beyond
/// it they are cut short, as a call is that is dropped.
const MAX_DESERTED: usize = 64;

type Answers = Result<Vec<Option<Vec<Decision>>>, BackendError>;

/// What is under way: it frees its lanes when it ends, however that comes.
pub(super) struct Trip<B: CounterBackend> {
    shared: Arc<Shared<B>>,
    lanes: Vec<u64>,
    group: Option<u64>,
    batches: Vec<Arc<Batch>>,
    /// Whether the lanes are somebody else's by now.
    left: bool,
}

impl<B: CounterBackend> Trip<B> {
    /// Goes on where somebody else has come to an end. Takes what waits when it first runs: until
    /// then more may come.
    pub(super) fn spawn(
        handle: &Handle,
        shared: &Arc<Shared<B>>,
        lanes: &[u64],
        group: Option<u64>,
    ) {
        let trip = Self {
            shared: Arc::clone(shared),
            lanes: lanes.to_vec(),
            group,
            batches: Vec::new(),
            left: false,
        };
        handle.spawn(trip.run());
    }

    async fn run(mut self) {
        while self.load() {
            self.fly().await;
            if self.left {
                return;
            }
            // Those who were just answered run first, and what they ask next goes along.
            tokio::task::yield_now().await;
        }
    }

    /// Takes what waits; whether there is anything. If not, the lanes are free.
    fn load(&mut self) -> bool {
        self.batches.clear();
        let next = {
            let mut lanes = self.shared.lanes.lock();
            let next = lanes.next((&self.lanes, self.group));
            self.shared.meters.waiting.set(lanes.queued() as f64);
            next
        };
        self.lanes.clear();
        for (lane, batch) in next {
            self.lanes.push(lane);
            self.batches.push(batch);
        }
        self.left = self.lanes.is_empty();
        !self.left
    }

    async fn fly(&mut self) {
        let watch = Arc::new(Watch::default());
        let mut sent: Vec<(Arc<Batch>, Vec<Cost>)> = Vec::with_capacity(self.batches.len());
        for batch in &self.batches {
            let costs = batch.depart(&watch);
            if !costs.is_empty() {
                sent.push((Arc::clone(batch), costs));
            }
        }
        if sent.is_empty() {
            return;
        }
        let charges: usize = sent.iter().map(|(_, costs)| costs.len()).sum();
        self.shared.meters.charges.record(charges as f64);
        let answers = self.watched(&watch, &sent).await;
        let mut apart = Vec::new();
        match answers {
            None => {}
            Some(Ok(answers)) => {
                for ((batch, costs), answers) in sent.into_iter().zip(answers) {
                    match answers {
                        Some(answers) => {
                            let refunds = batch.answer(answers.into_iter().map(Ok));
                            self.shared.give_back(batch, refunds);
                        }
                        None => apart.push((batch, costs)),
                    }
                }
            }
            Some(Err(error)) => sent.iter().for_each(|(batch, _)| batch.fail(&error)),
        }
        // Those that could not be decided in company.
        for alone in apart {
            let alone = [alone];
            let asked = self.watched(&watch, &alone).await;
            let [(batch, _)] = alone;
            match asked {
                None => {}
                Some(Ok(answers)) => {
                    let answers = answers.into_iter().flatten().flatten();
                    let refunds = batch.answer(answers.map(Ok));
                    self.shared.give_back(batch, refunds);
                }
                Some(Err(error)) => batch.fail(&error),
            }
        }
    }

    /// Waits for an answer. If nobody else does any more, the lanes are left to others meanwhile: a
    /// store that hangs must not keep a key for itself.
    async fn watched(
        &mut self,
        watch: &Watch,
        sent: &[(Arc<Batch>, Vec<Cost>)],
    ) -> Option<Answers> {
        let shared = Arc::clone(&self.shared);
        let call = shared.ask(sent);
        let mut call = pin!(Unwinding { call });
        if !self.left {
            let mut deserted = pin!(watch.deserted.notified());
            let answer = poll_fn(|cx| {
                if let Poll::Ready(answer) = call.as_mut().poll(cx) {
                    return Poll::Ready(Some(answer));
                }
                deserted.as_mut().poll(cx).map(|()| None)
            })
            .await;
            if answer.is_some() {
                return answer;
            }
            self.left = true;
            self.shared.leave(&self.lanes, self.group);
        }
        let _deserted = Deserted::enter(&shared.deserted)?;
        Some(call.await)
    }
}

pin_project_lite::pin_project! {
    /// A call whose panic is an error: whoever waits for it must not wait for ever.
    struct Unwinding<F> { #[pin] call: F }
}

impl<F: Future<Output = Answers>> Future for Unwinding<F> {
    type Output = Answers;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.project().call;
        catch_unwind(AssertUnwindSafe(|| call.poll(cx))).unwrap_or_else(|_| {
            let message = "the backend panicked";
            Poll::Ready(Err(BackendError::new(ErrorKind::Other, message)))
        })
    }
}

/// One of the trips that go on although nobody waits for them.
struct Deserted<'a>(&'a AtomicUsize);

impl<'a> Deserted<'a> {
    fn enter(count: &'a AtomicUsize) -> Option<Self> {
        let entered = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < MAX_DESERTED).then_some(entered)
    }
}

impl Drop for Deserted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Before its end only if the runtime ends: what was sent has no answer, and what was not must find
/// its own way.
impl<B: CounterBackend> Drop for Trip<B> {
    fn drop(&mut self) {
        let error = BackendError::new(ErrorKind::Unavailable, "the runtime ended during the call");
        for batch in &self.batches {
            batch.fail(&error);
        }
        if self.left {
            return;
        }
        let stranded = self.shared.lanes.lock().close((&self.lanes, self.group));
        for batch in stranded {
            batch.strand();
        }
    }
}

impl<B: CounterBackend> Shared<B> {
    /// Asks the backend in the way that fits what there is.
    async fn ask(&self, sent: &[(Arc<Batch>, Vec<Cost>)]) -> Answers {
        match sent {
            [(batch, costs)] => {
                let subject = batch.subject();
                let answers = match costs[..] {
                    [cost] => vec![self.inner.acquire(subject, cost).await?],
                    _ => self.inner.acquire_batch(subject, costs).await?,
                };
                Ok(vec![Some(answers)])
            }
            many => {
                let batches: Vec<_> = many
                    .iter()
                    .map(|(batch, costs)| core::Batch {
                        subject: batch.subject(),
                        costs,
                    })
                    .collect();
                self.inner.acquire_many(&batches).await
            }
        }
    }
}
