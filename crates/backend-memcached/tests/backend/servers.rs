//! Several servers.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::{Cost, CounterBackend, ErrorKind, Key, Policy, Subject};
use tollgate_memcached::MemcachedBackend;
use tollgate_testkit::MemcachedServer;

use super::{backend, policy};

const KEYS: usize = 60;

async fn three() -> [MemcachedServer; 3] {
    [
        MemcachedServer::start().await,
        MemcachedServer::start().await,
        MemcachedServer::start().await,
    ]
}

fn url<'a>(servers: impl IntoIterator<Item = &'a MemcachedServer>) -> String {
    let addresses = servers
        .into_iter()
        .map(|server| server.address().to_string());
    format!("memcached://{}", addresses.collect::<Vec<_>>().join(","))
}

async fn charge(
    backend: &MemcachedBackend,
    policy: &Policy,
    number: usize,
) -> Result<bool, ErrorKind> {
    let key = Key::from(format!("k{number}"));
    let decision = backend.acquire(Subject::new(policy, &key), Cost::ONE).await;
    decision
        .map(|decision| decision.allowed())
        .map_err(|error| error.kind())
}

#[tokio::test]
async fn processes_that_list_the_servers_in_another_order_agree() {
    let servers = three().await;
    let policy = policy("1/h");
    let one = backend(url(&servers)).await;
    let other = backend(url(servers.iter().rev())).await;
    for number in 0..KEYS {
        assert_eq!(charge(&one, &policy, number).await, Ok(true));
        assert_eq!(charge(&other, &policy, number).await, Ok(false));
    }
    // Each has its part, and the ping.
    for server in &servers {
        let items = server.stat("curr_items").await;
        assert!(items > 5, "{items} of {KEYS}");
    }
}

#[tokio::test]
async fn a_dead_server_of_several_fails_its_own_keys_and_no_others() {
    let mut servers = three().await;
    let policy = policy("1000/h");
    let backend = backend(url(&servers)).await;
    for number in 0..KEYS {
        charge(&backend, &policy, number).await.unwrap();
    }
    let its = servers[1].stat("curr_items").await - 1;
    servers[1].kill();
    let mut outcomes: BTreeMap<bool, u64> = BTreeMap::new();
    for _ in 0..2 {
        outcomes.clear();
        for number in 0..KEYS {
            let outcome = charge(&backend, &policy, number).await;
            if let Err(kind) = outcome {
                assert_eq!(kind, ErrorKind::Unavailable);
            }
            *outcomes.entry(outcome.is_ok()).or_default() += 1;
        }
    }
    assert_eq!(outcomes[&false], its, "nothing moves to another server");
    assert!(outcomes[&true] > 0);
    let error = backend.ping().await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&servers[1].address().to_string()),
        "{error}"
    );
    servers[1].restart().await;
    backend.ping().await.unwrap();
    for number in 0..KEYS {
        assert_eq!(charge(&backend, &policy, number).await, Ok(true));
    }
}

#[tokio::test]
async fn a_silent_server_of_several_is_named() {
    let mut servers = three().await;
    let url = url(&servers);
    let one = MemcachedBackend::builder(&*url).timeout(Duration::from_millis(300));
    let backend = one.connect().await.unwrap();
    servers[1].pause();
    let at_start = MemcachedBackend::builder(&*url).connect_timeout(Duration::from_millis(300));
    for error in [
        backend.ping().await.unwrap_err(),
        at_start.connect().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let name = servers[1].address().to_string();
        assert!(error.to_string().contains(&name), "{error}");
    }
    servers[1].resume();
    backend.ping().await.unwrap();
}
