//! Many writers of one key.

use std::sync::Arc;

use tollgate_core::{Cost, CounterBackend, Key, Policy, Subject};
use tollgate_memcached::MemcachedBackend;
use tollgate_testkit::MemcachedServer;

use super::{T0, backend, policy};

/// So many charges from each backend at once; how many were admitted. Nobody gets an error.
async fn storm(backends: &[Arc<MemcachedBackend>], policy: &Policy, each: usize) -> usize {
    let tasks: Vec<_> = backends
        .iter()
        .flat_map(|backend| std::iter::repeat_n(backend, each))
        .map(|backend| {
            let (backend, policy) = (Arc::clone(backend), policy.clone());
            tokio::spawn(async move {
                let key = Key::from("k");
                let subject = Subject::new(&policy, &key).at(T0);
                backend.acquire(subject, Cost::ONE).await
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += usize::from(task.await.unwrap().unwrap().allowed());
    }
    admitted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_writers_on_one_key_get_exactly_the_burst() {
    let server = MemcachedServer::start().await;
    let one = [Arc::new(backend(server.url()).await)];
    for algorithm in [
        "token_bucket",
        "sliding_window",
        "fixed_window",
        "sliding_log",
    ] {
        // All of one process, where they take turns.
        let policy = policy(&format!("40/h {algorithm}"));
        assert_eq!(storm(&one, &policy, 64).await, 40, "{algorithm}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_processes_on_one_key_get_exactly_the_burst() {
    let server = MemcachedServer::start().await;
    let mut many = Vec::new();
    for _ in 0..64 {
        // Each like a process of its own: no turns, no memory in common.
        many.push(Arc::new(backend(format!("{}?pool=1", server.url())).await));
    }
    for algorithm in ["token_bucket", "sliding_log"] {
        let policy = policy(&format!("40/h {algorithm}"));
        assert_eq!(storm(&many, &policy, 1).await, 40, "{algorithm}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b11_two_that_start_on_nothing_admit_exactly_the_limit() {
    let server = MemcachedServer::start().await;
    let two = [
        Arc::new(backend(server.url()).await),
        Arc::new(backend(server.url()).await),
    ];
    for algorithm in [
        "token_bucket",
        "sliding_window",
        "fixed_window",
        "sliding_log",
    ] {
        let policy = policy(&format!("100/60s {algorithm}"));
        assert_eq!(storm(&two, &policy, 200).await, 100, "{algorithm}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b84_two_at_once_on_an_absent_key_admit_exactly_the_limit() {
    let server = MemcachedServer::start().await;
    let two = [
        Arc::new(backend(server.url()).await),
        Arc::new(backend(server.url()).await),
    ];
    for _ in 0..20 {
        let policy = policy("50/60s");
        assert_eq!(storm(&two, &policy, 50).await, 50);
    }
}
