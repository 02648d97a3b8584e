//! Faults of clocks (`clock` in docs/faults.md).

use crate::support::{admitted, fresh, ms, redis, refused, seconds, stores};
use tollgate_testkit::{Flavor, RedisServer, wait_until};

#[tokio::test]
async fn b16_a_clock_that_goes_to_and_fro_mints_no_tokens() {
    for store in stores().await {
        let limit = store.limit("10/10s");
        store.at(100_000);
        admitted(&limit.acquire("k").cost(10).await.unwrap(), 0);
        for turn in 0..20 {
            store.at(if turn % 2 == 0 { 90_000 } else { 100_000 });
            let decision = limit.acquire("k").await.unwrap();
            assert!(!decision.allowed(), "{}, turn {turn}", store.name);
        }
        store.at(101_000);
        admitted(&limit.acquire("k").await.unwrap(), 0);
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(1));
    }
}

#[tokio::test]
async fn b18_a_jump_ahead_neither_overflows_nor_locks_out() {
    for store in stores().await {
        let limit = store.limit("10/10s");
        admitted(&limit.acquire("k").cost(10).await.unwrap(), 0);
        store.at(3_600_000);
        for left in (0..10).rev() {
            admitted(&limit.acquire("k").await.unwrap(), left);
        }
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(1));
        // The clock is corrected: nobody waits for an hour.
        store.at(1_000);
        let back = limit.acquire("k").await.unwrap();
        let wait = back.retry_after().unwrap_or_default();
        assert!(
            back.allowed() || wait <= seconds(70),
            "{}: {back:?}",
            store.name
        );
        store.at(71_000);
        let later = limit.acquire("k").await.unwrap();
        assert!(later.allowed(), "{}: {later:?}", store.name);
    }
}

#[tokio::test]
async fn b20_a_bucket_refills_within_a_second() {
    for store in stores().await {
        let limit = store.limit("10/s");
        for left in (0..10).rev() {
            admitted(&limit.acquire("k").await.unwrap(), left);
        }
        store.at(500);
        for left in (0..5).rev() {
            admitted(&limit.acquire("k").await.unwrap(), left);
        }
        refused(&limit.acquire("k").await.unwrap(), 0, ms(100));
    }
}

#[tokio::test]
async fn b22_a_replica_has_the_value_and_its_expiry() {
    let mut tried = 0;
    for flavor in [
        Flavor::Redis62,
        Flavor::Redis,
        Flavor::Redis8,
        Flavor::Valkey,
    ] {
        if flavor.binary().is_none() {
            continue;
        }
        tried += 1;
        let primary = RedisServer::builder().flavor(flavor).start().await;
        let builder = RedisServer::builder().flavor(flavor);
        let replica = builder.replica_of(primary.port()).start().await;
        let linked = async || {
            let info = replica.command(&["INFO", "replication"]).await.text();
            info.unwrap_or_default().contains("master_link_status:up")
        };
        wait_until("the replica's link", seconds(20), linked).await;

        let backend = crate::support::connect(&primary.url()).await;
        let limiter = tollgate::Limiter::builder(backend)
            .timeout(seconds(20))
            .build();
        for algorithm in [
            "token_bucket",
            "sliding_window",
            "fixed_window",
            "sliding_log",
        ] {
            let quota = format!("5/h {algorithm}").parse().unwrap();
            let limit = limiter.policy(&fresh("b22"), [quota]).unwrap();
            // The server's own time, read in the script that writes.
            admitted(&limit.acquire("k").await.unwrap(), 4);
        }
        let keys = primary.keys("*").await;
        assert_eq!(keys.len(), 4, "{flavor:?}");
        for key in keys {
            let here = primary.command(&["DUMP", &key]).await;
            let same = async || replica.command(&["DUMP", &key]).await == here;
            wait_until("the value on the replica", seconds(5), same).await;
            let ttl = async |server: &RedisServer| {
                server.command(&["PTTL", &key]).await.integer().unwrap()
            };
            let (here, there) = (ttl(&primary).await, ttl(&replica).await);
            assert!(
                there > 0 && (here - there).abs() <= 1_000,
                "{flavor:?} {key}"
            );
        }
    }
    assert!(tried > 0, "there is no server");
}

#[tokio::test]
async fn s10_s71_redis_counts_by_its_own_clock() {
    // A limiter without a clock of its own: the server's time is what answers report.
    let backend = crate::support::connect(tollgate_testkit::shared_redis().await.url()).await;
    let limiter = tollgate::Limiter::builder(backend)
        .timeout(seconds(20))
        .build();
    for algorithm in [
        "token_bucket",
        "sliding_window",
        "fixed_window",
        "sliding_log",
    ] {
        let quota = format!("5/h {algorithm}").parse().unwrap();
        let limit = limiter.policy(&fresh("s10"), [quota]).unwrap();
        let decision = limit.acquire("k").await.unwrap();
        assert!(decision.allowed());
        let skew =
            tollgate::Clock::now(&tollgate::SystemClock).saturating_since(decision.charged_at());
        // It is this machine's, so the same time but for the way there and back.
        assert!(skew < seconds(10), "{algorithm}: {skew:?}");
    }
    // And a caller's clock decides nothing unless it is asked to.
    let store = redis().await;
    assert_eq!(store.now(), crate::support::T0);
}
