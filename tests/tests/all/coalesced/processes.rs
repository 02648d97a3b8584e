//! Several processes on one hot key: never an error, exactly the limit.

use crate::processes::{Second, charge_at_once, limiter};
use crate::support::{dynamodb, fresh};
use tollgate::Quota;
use tollgate_testkit::{shared_memcached, shared_redis};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_one_hot_key_of_redis_admit_exactly_the_limit() {
    share_a_hot_key(shared_redis().await.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_one_hot_key_of_memcached_admit_exactly_the_limit() {
    share_a_hot_key(shared_memcached().await.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_one_hot_key_of_dynamodb_admit_exactly_the_limit() {
    share_a_hot_key(&dynamodb().await).await;
}

async fn share_a_hot_key(url: &str) {
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
