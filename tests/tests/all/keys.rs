//! Building keys (`keys` in docs/faults.md), and what a store is told of them.

use crate::support::{Store, fresh, stores};
use tollgate::Key;
use tollgate_testkit::RedisServer;

#[tokio::test]
async fn b78_b82_b102_whatever_a_key_is_it_is_counted_apart() {
    for store in stores().await {
        let limit = store.limit("1/60s");
        let long = |last: char| format!("{}{last}", "k".repeat(2_999));
        let pairs: [[Key<'_>; 2]; 9] = [
            [["did:key:abc", "s"], ["did:key", "abc:s"]].map(Key::from_parts),
            [["21", "1"], ["2", "11"]].map(Key::from_parts),
            [["a", ""], ["", "a"]].map(Key::from_parts),
            [["a|b", "c"], ["a", "b|c"]].map(Key::from_parts),
            [["a\0", "b"], ["a", "\0b"]].map(Key::from_parts),
            [Key::from(""), Key::from("\0")],
            [Key::from("a b"), Key::from("a\r\nset pwn 0 0 1\r\n1\r\n")],
            [Key::from(long('x')), Key::from(long('y'))],
            [Key::from("é".repeat(1_100)), Key::from("é".repeat(1_101))],
        ];
        for key in pairs.iter().flatten() {
            for allowed in [true, false] {
                let decision = limit.acquire(key).await.unwrap();
                assert_eq!(
                    decision.allowed(),
                    allowed,
                    "{} on {}",
                    key.digest(),
                    store.name
                );
            }
        }
    }
}

#[tokio::test]
async fn b104_identities_of_different_sources_do_not_share_a_name_space() {
    for store in stores().await {
        let limit = store.limit("1/60s");
        for source in ["header", "ip"] {
            let key = Key::from_parts([source, "203.0.113.9"]);
            assert!(limit.acquire(&key).await.unwrap().allowed(), "{source}");
            assert!(!limit.acquire(&key).await.unwrap().allowed(), "{source}");
        }
    }
}

#[tokio::test]
async fn s69_a_store_is_told_a_digest_and_never_the_identity() {
    let server = RedisServer::start().await;
    let store = Store::over("redis", crate::support::connect(&server.url()).await);
    let limit = store
        .limiter
        .policy("login", ["5/h".parse().unwrap()])
        .unwrap();
    let phone = "+49 151 23456789";
    limit.acquire(phone).await.unwrap();
    // Deterministic, so that a later look finds it; fixed length, whatever the identity.
    assert_eq!(
        server.keys("*").await,
        [format!("tollgate:v1:login:{}", Key::from(phone).digest())]
    );
    limit.acquire("x".repeat(10_000)).await.unwrap();
    for key in server.keys("*").await {
        assert_eq!(key.len(), "tollgate:v1:login:".len() + 22, "{key}");
        assert!(!key.contains("151"));
    }
    assert!(!format!("{limit:?} {:?}", Key::from(phone)).contains("151"));
}

#[tokio::test]
async fn s68_the_prefix_keeps_applications_apart() {
    let server = RedisServer::start().await;
    for prefix in ["shop", "blog"] {
        let backend = tollgate::Connect::new(&server.url())
            .prefix(prefix)
            .connect()
            .await;
        let store = Store::over("redis", backend.unwrap());
        let name = fresh("one");
        let limit = store
            .limiter
            .policy(&name, ["1/h".parse().unwrap()])
            .unwrap();
        assert!(limit.acquire("k").await.unwrap().allowed());
        let pattern = format!("{prefix}:v1:{name}:*");
        assert_eq!(server.keys(&pattern).await.len(), 1);
    }
    assert_eq!(server.keys("*").await.len(), 2);
}
