//! A store that is told when to answer, and charges that come to wait before it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{Mode, Scripted, at, quotas};
use tokio::task::JoinHandle;
use tollgate::{
    BackendError, Coalesced, Cost, CounterBackend, Decision, Key, Policy, Subject, Timestamp,
};
use tollgate_testkit::wait_until;

pub(crate) const PATIENT: Duration = Duration::from_secs(20);

pub(crate) type Answer = Result<Decision, BackendError>;

#[derive(Clone)]
pub(crate) struct Lab {
    pub(crate) store: Scripted,
    pub(crate) backend: Arc<Coalesced<Scripted>>,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
}

impl Lab {
    /// Over a store whose calls wait for the test.
    pub(crate) fn new(quota: &str) -> Self {
        Self::over(Scripted::new(Mode::Held), quota)
    }

    pub(crate) fn over(store: Scripted, quota: &str) -> Self {
        Self {
            backend: Arc::new(Coalesced::new(store.clone())),
            store,
            policy: Policy::new("p", quotas(quota)).unwrap(),
            now: at(0),
        }
    }

    pub(crate) fn acquire<'a>(
        &'a self,
        key: &'a Key<'a>,
        cost: Cost,
    ) -> impl Future<Output = Answer> + 'a {
        let subject = Subject::new(&self.policy, key).at(self.now);
        self.backend.acquire(subject, cost)
    }

    pub(crate) fn spawn(&self, key: &'static str, cost: Cost) -> JoinHandle<Answer> {
        let lab = self.clone();
        tokio::spawn(async move { lab.acquire(&Key::from(key), cost).await })
    }

    /// A charge that has come to wait before this returns.
    pub(crate) async fn queue(&self, key: &'static str, cost: Cost) -> JoinHandle<Answer> {
        let before = self.backend.waiting();
        let caller = self.spawn(key, cost);
        eventually(|| self.backend.waiting() == before + 1).await;
        caller
    }

    /// Lets the next call of the store go on.
    pub(crate) async fn release(&self) {
        self.store.held().await.send(Ok(())).unwrap();
    }

    pub(crate) async fn remaining(&self, key: &str) -> u64 {
        self.store.set(Mode::Works);
        let key = Key::from(key);
        let subject = Subject::new(&self.policy, &key).at(self.now);
        let peeked = self.store.peek(subject, Cost::ONE).await.unwrap();
        peeked.remaining().unwrap()
    }
}

pub(crate) async fn eventually(condition: impl Fn() -> bool + Send + Sync) {
    wait_until("the condition holds", PATIENT, async || condition()).await;
}

pub(crate) fn cost(cost: u64) -> Cost {
    Cost::new(cost).unwrap()
}

pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
