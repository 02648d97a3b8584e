//! Charges on different keys that share trips: only Redis decides them in one.

use std::sync::Arc;

use crate::support::{T0, connect, fresh};
use tollgate::{Coalesced, Cost, CounterBackend, Decision, Key, Policy, Subject};
use tollgate_testkit::{FaultProxy, RedisCluster, RedisServer};

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
