//! The bound of the pool, and callers that leave.

use std::sync::Arc;
use std::task::{Context, Poll};

use tollgate_core::{Cost, CounterBackend, Key, Subject};
use tollgate_testkit::{FaultProxy, MemcachedServer, wait_until};

use super::{PATIENCE, backend, charge, policy};

#[tokio::test]
async fn there_are_never_more_connections_than_the_pool_has() {
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    let backend = Arc::new(backend(format!("{}?pool=3", proxy.url())).await);
    let policy = policy("1000/h");
    let tasks: Vec<_> = (0..60)
        .map(|n| {
            let (backend, policy) = (Arc::clone(&backend), policy.clone());
            tokio::spawn(async move {
                let key = Key::from(format!("k{n}"));
                backend
                    .acquire(Subject::new(&policy, &key), Cost::ONE)
                    .await
            })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap().unwrap().allowed());
    }
    assert_eq!(proxy.connections(), 3);
}

#[tokio::test]
async fn a_caller_who_leaves_while_it_connects_leaves_the_connection_to_the_next() {
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    proxy.refuse().await;
    let builder = tollgate_memcached::MemcachedBackend::builder(proxy.url());
    let backend = builder
        .timeout(PATIENCE)
        .connect_or_degrade()
        .await
        .unwrap();
    proxy.restore().await;
    // `restore` looks by connecting.
    let looked = async || proxy.connections() == 1 && proxy.open_connections() == 0;
    wait_until("the look to end", PATIENCE, looked).await;
    let policy = policy("1000/h");
    {
        let call = charge(&backend, &policy, None, 1);
        tokio::pin!(call);
        // Polled once: the task that connects has begun.
        let once =
            |context: &mut Context<'_>| Poll::Ready(call.as_mut().poll(context).is_pending());
        assert!(std::future::poll_fn(once).await);
    }
    let connected = async || format!("{backend:?}").contains("idle: 1");
    wait_until("the connection", PATIENCE, connected).await;
    assert!(charge(&backend, &policy, None, 1).await.unwrap().allowed());
    assert_eq!(proxy.connections(), 2);
}
