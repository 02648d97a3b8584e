//! A store of the test's own, and what stands at its door: counts, delays, loses.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tollgate::{
    BackendError, Coalesced, Cost, CounterBackend, Decision, Key, Policy, SharedBackend, Subject,
};
use tollgate_testkit::{
    DynamoProxy, FaultProxy, LocalDynamo, MemcachedServer, Mischief, RedisServer, Rule, wait_until,
};

use crate::support::{PATIENT, T0, connect, dynamodb_table, dynamodb_url, fresh};

pub(super) enum Door {
    Redis(RedisServer, FaultProxy),
    Memcached(MemcachedServer, FaultProxy),
    Dynamo(LocalDynamo, DynamoProxy),
}

impl Door {
    pub(super) async fn redis() -> Self {
        let server = RedisServer::start().await;
        let proxy = FaultProxy::start(server.address()).await;
        Self::Redis(server, proxy)
    }

    pub(super) async fn memcached() -> Self {
        let server = MemcachedServer::start().await;
        let proxy = FaultProxy::start_memcached(server.address()).await;
        Self::Memcached(server, proxy)
    }

    pub(super) async fn dynamodb() -> Self {
        let server = LocalDynamo::start().await;
        dynamodb_table(&server.endpoint()).await;
        let proxy = DynamoProxy::start(server.address()).await;
        Self::Dynamo(server, proxy)
    }

    /// The way through the door.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Redis(_, proxy) | Self::Memcached(_, proxy) => proxy.url(),
            Self::Dynamo(_, proxy) => dynamodb_url(&proxy.endpoint()),
        }
    }

    /// The way around it.
    pub(super) fn straight(&self) -> String {
        match self {
            Self::Redis(server, _) => server.url(),
            Self::Memcached(server, _) => server.url(),
            Self::Dynamo(server, _) => dynamodb_url(&server.endpoint()),
        }
    }

    /// How many writes have come, refunds included.
    pub(super) fn writes(&self) -> u64 {
        match self {
            Self::Redis(_, proxy) => proxy.commands_named("EVALSHA"),
            Self::Memcached(_, proxy) => proxy.commands_named("MS"),
            Self::Dynamo(_, proxy) => proxy.calls("UpdateItem"),
        }
    }

    /// Each trip takes so long from now on.
    pub(super) fn slow(&self, by: Duration) {
        match self {
            Self::Redis(_, proxy) | Self::Memcached(_, proxy) => proxy.delay_replies(by),
            Self::Dynamo(_, proxy) => proxy.always(Mischief::Delay(by)),
        }
    }

    /// The next write is made, and nobody hears of it.
    pub(super) fn lose_next_answer(&self) {
        match self {
            Self::Redis(_, proxy) => proxy.on(Rule::command("EVALSHA").forward_then_cut()),
            Self::Memcached(_, proxy) => proxy.on(Rule::command("MS").forward_then_cut()),
            Self::Dynamo(_, proxy) => proxy.once("UpdateItem", Mischief::LoseAnswer),
        }
    }

    /// Takes whatever comes, and answers nothing.
    pub(super) fn stay_silent(&self) {
        match self {
            Self::Redis(_, proxy) | Self::Memcached(_, proxy) => proxy.stay_silent(),
            Self::Dynamo(_, proxy) => proxy.always(Mischief::Silence),
        }
    }

    /// Whoever comes is sent away, and those inside are thrown out.
    pub(super) async fn refuse(&self) {
        match self {
            Self::Redis(_, proxy) | Self::Memcached(_, proxy) => proxy.refuse().await,
            Self::Dynamo(_, proxy) => proxy.always(Mischief::Cut),
        }
    }

    pub(super) async fn restore(&self) {
        match self {
            Self::Redis(_, proxy) | Self::Memcached(_, proxy) => proxy.restore().await,
            Self::Dynamo(_, proxy) => proxy.well(),
        }
    }
}

type Answer = Result<Decision, BackendError>;

/// Callers of one process who charge one key, through the door.
pub(super) struct Callers {
    pub(super) backend: Arc<Coalesced<SharedBackend>>,
    pub(super) policy: Policy,
}

impl Callers {
    pub(super) async fn new(door: &Door, quotas: &str) -> Self {
        let quotas = tollgate::Quota::parse_list(quotas).unwrap();
        Self {
            backend: Arc::new(Coalesced::new(connect(&door.url()).await)),
            policy: Policy::new(&fresh("shared"), quotas).unwrap(),
        }
    }

    pub(super) fn spawn(&self, cost: u64) -> JoinHandle<Answer> {
        let (backend, policy) = (Arc::clone(&self.backend), self.policy.clone());
        tokio::spawn(async move {
            let key = Key::from("k");
            let cost = Cost::new(cost).unwrap();
            backend
                .acquire(Subject::new(&policy, &key).at(T0), cost)
                .await
        })
    }

    /// Three units by a charge and a batch, so that what either needs is there: a value that is known,
    /// scripts that are loaded.
    pub(super) async fn warm(&self) {
        let key = Key::from("k");
        let subject = Subject::new(&self.policy, &key).at(T0);
        self.backend.acquire(subject, Cost::ONE).await.unwrap();
        let batch = self.backend.acquire_batch(subject, &[Cost::ONE; 2]).await;
        assert!(batch.unwrap().iter().all(Decision::allowed));
    }

    pub(super) async fn charge(&self, cost: u64) -> Answer {
        self.spawn(cost).await.unwrap()
    }

    /// A charge that is under way, and others that wait for it. Returns when they do.
    pub(super) async fn first_and_others(
        &self,
        door: &Door,
        others: impl IntoIterator<Item = u64>,
    ) -> (JoinHandle<Answer>, Vec<JoinHandle<Answer>>) {
        let before = door.writes();
        let first = self.spawn(1);
        let left = async || door.writes() > before;
        wait_until("the first charge is under way", PATIENT, left).await;
        let others: Vec<_> = others.into_iter().map(|cost| self.spawn(cost)).collect();
        let all = async || self.backend.waiting() == others.len();
        wait_until("the others wait for it", PATIENT, all).await;
        (first, others)
    }

    /// Waits until nobody waits to leave any more.
    pub(super) async fn all_left(&self) {
        let none = async || self.backend.waiting() == 0;
        wait_until("those who waited have left", PATIENT, none).await;
    }

    /// What another process finds is left.
    pub(super) async fn left(&self, door: &Door) -> u64 {
        let other = connect(&door.straight()).await;
        let key = Key::from("k");
        let subject = Subject::new(&self.policy, &key).at(T0);
        let peeked = other.peek(subject, Cost::ONE).await.unwrap();
        peeked.remaining().unwrap()
    }

    /// Waits until another process finds so much left.
    pub(super) async fn wait_for_left(&self, door: &Door, right: u64) {
        let is_right = async || self.left(door).await == right;
        wait_until(&format!("{right} are left"), PATIENT, is_right).await;
    }
}
