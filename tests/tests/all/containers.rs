//! A store on a machine of its own, as far as the network goes: frozen, killed and restarted.
//!
//! Where no container engine answers there is no image either, and a child process takes its place:
//! the same faults, without the network in between.

use std::time::Duration;

use crate::support::{dynamodb_table, dynamodb_url, ms, seconds};
use tokio::time::Instant;
use tollgate::{Breaker, Limiter, Origin, SharedBackend};
use tollgate_testkit::{
    DynamoContainer, DynamoFlavor, DynamoServer, Flavor, MemcachedContainer, MemcachedServer,
    RedisContainer, RedisServer, wait_until,
};

enum Machine {
    Container(Box<RedisContainer>),
    Process(RedisServer),
    Memcached(Box<MemcachedContainer>),
    MemcachedProcess(MemcachedServer),
    Dynamo(Box<DynamoContainer>),
    DynamoProcess(DynamoServer),
}

impl Machine {
    async fn start() -> Self {
        match RedisContainer::start(Flavor::Redis).await {
            Some(container) => Self::Container(Box::new(container)),
            None => Self::Process(RedisServer::start().await),
        }
    }

    async fn start_memcached() -> Self {
        match MemcachedContainer::start().await {
            Some(container) => Self::Memcached(Box::new(container)),
            None => Self::MemcachedProcess(MemcachedServer::start().await),
        }
    }

    async fn start_dynamodb() -> Self {
        match DynamoContainer::start().await {
            Some(container) => {
                dynamodb_table(&container.endpoint()).await;
                Self::Dynamo(Box::new(container))
            }
            None => {
                let process = DynamoServer::start(DynamoFlavor::Dynoxide).await;
                dynamodb_table(&process.endpoint()).await;
                Self::DynamoProcess(process)
            }
        }
    }

    async fn backend(&self) -> SharedBackend {
        let url = match self {
            Self::Container(container) => container.url(),
            Self::Process(process) => process.url(),
            Self::Memcached(container) => container.url(),
            Self::MemcachedProcess(process) => process.url(),
            Self::Dynamo(container) => dynamodb_url(&container.endpoint()),
            Self::DynamoProcess(process) => dynamodb_url(&process.endpoint()),
        };
        tollgate::connect(&url).await.unwrap()
    }

    async fn pause(&mut self) {
        match self {
            Self::Container(container) => container.pause().await,
            Self::Process(process) => process.pause(),
            Self::Memcached(container) => container.pause().await,
            Self::MemcachedProcess(process) => process.pause(),
            Self::Dynamo(container) => container.pause().await,
            Self::DynamoProcess(process) => process.pause(),
        }
    }

    async fn resume(&mut self) {
        match self {
            Self::Container(container) => container.resume().await,
            Self::Process(process) => process.resume(),
            Self::Memcached(container) => container.resume().await,
            Self::MemcachedProcess(process) => process.resume(),
            Self::Dynamo(container) => container.resume().await,
            Self::DynamoProcess(process) => process.resume(),
        }
    }

    async fn kill(&mut self) {
        match self {
            Self::Container(container) => container.kill().await,
            Self::Process(process) => process.kill(),
            Self::Memcached(container) => container.kill().await,
            Self::MemcachedProcess(process) => process.kill(),
            Self::Dynamo(container) => container.kill().await,
            Self::DynamoProcess(process) => process.kill(),
        }
    }

    async fn restart(&mut self) {
        match self {
            Self::Container(container) => container.restart().await,
            Self::Process(process) => process.restart().await,
            Self::Memcached(container) => container.restart().await,
            Self::MemcachedProcess(process) => process.restart().await,
            Self::Dynamo(container) => container.restart().await,
            Self::DynamoProcess(process) => process.restart().await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b65_b67_a_machine_that_freezes_or_dies_holds_nobody_up_and_is_used_again() {
    is_survived(Machine::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b65_b67_a_memcached_that_freezes_or_dies_holds_nobody_up_and_is_used_again() {
    is_survived(Machine::start_memcached().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b65_b67_a_dynamodb_that_freezes_or_dies_holds_nobody_up_and_is_used_again() {
    is_survived(Machine::start_dynamodb().await).await;
}

async fn is_survived(mut machine: Machine) {
    const TIMEOUT: Duration = Duration::from_millis(100);
    const COOLDOWN: Duration = Duration::from_millis(300);
    let limiter = Limiter::builder(machine.backend().await)
        .timeout(TIMEOUT)
        .breaker(Breaker {
            cooldown: COOLDOWN,
            ..Breaker::default()
        })
        .build();
    let limit = limiter
        .policy("machine", ["1000000/s".parse().unwrap()])
        .unwrap();
    let ask = async || {
        let started = Instant::now();
        let decision = limit.acquire("k").await.unwrap();
        assert!(decision.allowed());
        assert!(
            started.elapsed() < TIMEOUT + ms(50),
            "{:?}",
            started.elapsed()
        );
        decision.origin()
    };
    for freeze in [true, false] {
        let counted = async || ask().await == Origin::Shared;
        wait_until("counting", seconds(5), counted).await;
        if freeze {
            machine.pause().await;
        } else {
            machine.kill().await;
        }
        for _ in 0..30 {
            assert_eq!(ask().await, Origin::FailOpen);
        }
        assert!(!limiter.health().enforcing);
        if freeze {
            machine.resume().await;
        } else {
            machine.restart().await;
        }
        let back = Instant::now();
        wait_until("counting again", seconds(5), counted).await;
        assert!(
            back.elapsed() < COOLDOWN + seconds(1),
            "{:?}",
            back.elapsed()
        );
    }
}
