//! A store on a machine of its own, as far as the network goes: frozen, killed and restarted.
//!
//! Where no container engine answers there is no image either, and a child process takes its place:
//! the same faults, without the network in between.

use std::time::Duration;

use crate::support::{ms, seconds};
use tokio::time::Instant;
use tollgate::{Breaker, Limiter, Origin, SharedBackend};
use tollgate_testkit::{
    Flavor, MemcachedContainer, MemcachedServer, RedisContainer, RedisServer, wait_until,
};

enum Machine {
    Container(Box<RedisContainer>),
    Process(RedisServer),
    Memcached(Box<MemcachedContainer>),
    MemcachedProcess(MemcachedServer),
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

    async fn backend(&self) -> SharedBackend {
        match self {
            Self::Container(container) => tollgate::connect(&container.url()).await.unwrap(),
            Self::Process(process) => tollgate::connect(&process.url()).await.unwrap(),
            Self::Memcached(container) => tollgate::connect(&container.url()).await.unwrap(),
            Self::MemcachedProcess(process) => tollgate::connect(&process.url()).await.unwrap(),
        }
    }

    async fn pause(&mut self) {
        match self {
            Self::Container(container) => container.pause().await,
            Self::Process(process) => process.pause(),
            Self::Memcached(container) => container.pause().await,
            Self::MemcachedProcess(process) => process.pause(),
        }
    }

    async fn resume(&mut self) {
        match self {
            Self::Container(container) => container.resume().await,
            Self::Process(process) => process.resume(),
            Self::Memcached(container) => container.resume().await,
            Self::MemcachedProcess(process) => process.resume(),
        }
    }

    async fn kill(&mut self) {
        match self {
            Self::Container(container) => container.kill().await,
            Self::Process(process) => process.kill(),
            Self::Memcached(container) => container.kill().await,
            Self::MemcachedProcess(process) => process.kill(),
        }
    }

    async fn restart(&mut self) {
        match self {
            Self::Container(container) => container.restart().await,
            Self::Process(process) => process.restart().await,
            Self::Memcached(container) => container.restart().await,
            Self::MemcachedProcess(process) => process.restart().await,
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
