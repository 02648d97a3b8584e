//! Charges that share trips to Redis.

use std::sync::Arc;
use std::time::Duration;

use crate::processes::{Second, charge_at_once, limiter};
use crate::support::{PATIENT, T0, connect, fresh};
use tollgate::{
    Coalesced, Cost, CounterBackend, Decision, Key, Limiter, Policy, Quota, SharedBackend, Subject,
};
use tollgate_testkit::{FaultProxy, RedisCluster, RedisServer, conformance, shared_redis};

async fn coalesced() -> Coalesced<SharedBackend> {
    Coalesced::new(connect(shared_redis().await.url()).await)
}

conformance!(over_redis, coalesced().await);

/// So many charges at once on each of some keys, by the server's clock or in virtual time.
async fn storm<B: CounterBackend>(
    backend: &Arc<B>,
    policy: &Policy,
    keys: u64,
    charges: u64,
    virtual_time: bool,
) -> Vec<Vec<Decision>> {
    let tasks: Vec<_> = (0..keys * charges)
        .map(|n| {
            let (backend, policy) = (Arc::clone(backend), policy.clone());
            tokio::spawn(async move {
                let name = format!("k{}", n % keys);
                let key = Key::from(&name);
                let mut subject = Subject::new(&policy, &key);
                subject.at = virtual_time.then_some(T0);
                backend.acquire(subject, Cost::ONE).await.unwrap()
            })
        })
        .collect();
    let mut decisions = vec![Vec::new(); keys as usize];
    for (n, task) in (0..).zip(tasks) {
        decisions[(n % keys) as usize].push(task.await.unwrap());
    }
    decisions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_share_calls_and_each_admits_exactly_its_limit() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = Arc::new(Coalesced::new(connect(&proxy.url()).await));
    for virtual_time in [false, true] {
        // Once more than a second passes a token comes back: none does in an hour.
        let policy = Policy::new(&fresh("many"), ["3/3h".parse().unwrap()]).unwrap();
        let before = proxy.commands_named("EVALSHA");
        let decisions = storm(&backend, &policy, 200, 5, virtual_time).await;
        for decisions in decisions {
            let mut left: Vec<_> = decisions
                .iter()
                .filter(|decision| decision.allowed())
                .map(|decision| decision.remaining().unwrap())
                .collect();
            left.sort_unstable();
            assert_eq!(left, [0, 1, 2]);
        }
        let calls = proxy.commands_named("EVALSHA") - before;
        assert!(calls < 200, "{calls} calls for 1,000 charges");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_each_key_admits_exactly_its_limit() {
    let cluster = RedisCluster::start().await;
    let url = format!("redis+cluster://{}", cluster.masters()[0].address());
    let backend = Arc::new(Coalesced::new(connect(&url).await));
    let policy = Policy::new(&fresh("slots"), ["3/3h".parse().unwrap()]).unwrap();
    for decisions in storm(&backend, &policy, 100, 6, false).await {
        assert_eq!(decisions.iter().filter(|d| d.allowed()).count(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_one_hot_key_admit_exactly_the_limit_and_meet_no_error() {
    let url = shared_redis().await.url();
    let here = limiter(url, true).await;
    assert!(here.to_string().contains("Coalesced("), "{here}");
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(Second::start(url, true).await);
    }
    for (quotas, limit) in [
        ("1000/60s token_bucket", 1_000),
        ("1000/60s sliding_window", 1_000),
        ("1000/60s, 700/60s fixed_window", 700),
        ("300/60s sliding_log", 300),
    ] {
        let name = fresh("hot");
        let ours = here
            .policy(&name, Quota::parse_list(quotas).unwrap())
            .unwrap();
        for other in &mut others {
            other.storm(&name, quotas, 500).await;
        }
        // An error would be an answer that nobody enforced, which fails.
        let mut admitted = charge_at_once(&ours, 500).await;
        for other in &mut others {
            admitted += other.admitted().await;
        }
        assert_eq!(admitted, limit, "{quotas}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stalls_times_out_those_who_wait_and_is_asked_again() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let limiter = Limiter::builder(connect(&proxy.url()).await)
        .timeout(Duration::from_millis(100))
        .forget_refusals()
        .coalesce(true)
        .build();
    let quotas = Quota::parse_list("100000/h").unwrap();
    let limit = limiter.policy(&fresh("stall"), quotas).unwrap();
    limit.acquire("k").await.unwrap();
    proxy.stay_silent();
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let limit = limit.clone();
            tokio::spawn(async move { limit.acquire("k").await.unwrap() })
        })
        .collect();
    for call in calls {
        assert!(!call.await.unwrap().origin().is_enforced());
    }
    proxy.restore().await;
    tollgate_testkit::wait_until("it is asked again", PATIENT, async || {
        limit.acquire("k").await.unwrap().origin().is_enforced()
    })
    .await;
}
