//! Faults of clocks (`clock` in docs/faults.md).

use crate::support::{
    RATES, Rate, admitted, fresh, give_back, ms, redis, refused, seconds, stores, us,
};
use tollgate::{ErrorKind, FailurePolicy};
use tollgate_testkit::{FaultProxy, Flavor, RedisServer, Rule, wait_until};

#[tokio::test]
async fn b16_a_clock_that_goes_to_and_fro_mints_no_tokens() {
    const THEN: u64 = 100_000_000;
    for store in stores().await {
        for rate in RATES {
            let limit = store.limit(rate.text);
            store.at_us(THEN);
            admitted(&limit.acquire("k").cost(rate.limit).await.unwrap(), 0);
            for turn in 0..20 {
                let now = if turn % 2 == 0 {
                    THEN - 10_000_000
                } else {
                    THEN
                };
                store.at_us(now);
                let wait = us(THEN + rate.time(1) - now);
                refused(&limit.acquire("k").await.unwrap(), 0, wait);
            }
            // What was refused and asked in between moved nothing.
            store.at_us(THEN + rate.time(1) - 1);
            refused(&limit.acquire("k").await.unwrap(), 0, us(1));
            store.at_us(THEN + rate.time(1));
            admitted(&limit.acquire("k").await.unwrap(), 0);
            let wait = us(rate.time(2) - rate.time(1));
            refused(&limit.acquire("k").await.unwrap(), 0, wait);
        }
    }
}

#[tokio::test]
async fn b18_a_jump_ahead_neither_overflows_nor_locks_out() {
    const AHEAD: u64 = 3_600_000_000;
    for store in stores().await {
        for rate in RATES {
            let limit = store.limit(rate.text);
            let all = rate.limit;
            store.at(0);
            admitted(&limit.acquire("k").cost(all).await.unwrap(), 0);
            store.at_us(AHEAD);
            let back = rate.tokens(AHEAD).min(all);
            for left in (0..10).rev() {
                let cost = if left == 9 {
                    back.saturating_sub(9).max(1)
                } else {
                    1
                };
                if left < back {
                    admitted(&limit.acquire("k").cost(cost).await.unwrap(), left);
                }
            }
            // Full, it has lost what came back beyond; not full yet, nothing.
            let wait = if back == all {
                rate.time(1)
            } else {
                rate.time(back + 1) - AHEAD
            };
            refused(&limit.acquire("k").await.unwrap(), 0, us(wait));

            // The clock is corrected: nobody waits for an hour, and nothing is minted.
            let corrected = 1_000_000;
            store.at_us(corrected);
            refused(&limit.acquire("k").await.unwrap(), 0, us(rate.time(1)));
            // That was stored, though it was a refusal: the time since then counts.
            store.at_us(corrected + rate.time(1) - 1);
            refused(&limit.acquire("k").await.unwrap(), 0, us(1));
            store.at_us(corrected + rate.time(1));
            admitted(&limit.acquire("k").await.unwrap(), 0);
            store.at(71_000);
            let since = rate.tokens(70_000_000).min(all + 1);
            admitted(&limit.acquire("k").await.unwrap(), since - 2);
        }
    }
}

/// Where a used up window or log has come by the far future, and from when it admits again.
struct Moved {
    quota: &'static str,
    wait: u64,
    left: u64,
}

#[tokio::test]
async fn b18_a_far_window_or_log_is_brought_back_for_good() {
    // At 1 s of periods of 5 s. The sliding window has a seventh of its 7 back a seventh into the
    // next window; everything that a log holds counts as made now.
    let quotas = [
        Moved {
            quota: "7/5s fixed_window",
            wait: 4_000_000,
            left: 6,
        },
        Moved {
            quota: "7/5s sliding_window",
            wait: 4_714_286,
            left: 0,
        },
        Moved {
            quota: "7/5s sliding_log",
            wait: 5_000_000,
            left: 6,
        },
        // Of a period of more than a minute, which is then what is tolerated.
        Moved {
            quota: "7/300s fixed_window",
            wait: 299_000_000,
            left: 6,
        },
        Moved {
            quota: "7/300s sliding_window",
            wait: 341_857_143,
            left: 0,
        },
        Moved {
            quota: "7/300s sliding_log",
            wait: 300_000_000,
            left: 6,
        },
    ];
    for store in stores().await {
        for Moved { quota, wait, left } in &quotas {
            let limit = store.limit(quota);
            store.at(0);
            admitted(&limit.acquire("k").cost(7).await.unwrap(), 0);
            store.at(3_600_000);
            for left in (0..7).rev() {
                admitted(&limit.acquire("k").await.unwrap(), left);
            }
            store.at(1_000);
            refused(&limit.acquire("k").await.unwrap(), 0, us(*wait));
            // Stored, or it would be brought back to each later moment, and never admit again.
            store.at_us(1_000_000 + wait - 1);
            refused(&limit.acquire("k").await.unwrap(), 0, us(1));
            store.at_us(1_000_000 + wait);
            admitted(&limit.acquire("k").await.unwrap(), *left);
        }
    }
}

#[tokio::test]
async fn b18_a_clock_that_is_slow_by_little_is_handed_nothing() {
    for store in stores().await {
        for (quota, wait) in [
            ("10/10s", 60_000_000 + 1_000_000),
            ("7/5s", 60_000_000 + 714_286),
            ("7/5s fixed_window", 60_000_000 + 5_000_000),
            ("7/5s sliding_window", 60_000_000 + 5_714_286),
            ("7/5s sliding_log", 60_000_000 + 5_000_000),
        ] {
            let limit = store.limit(quota);
            store.at(60_000);
            let all = limit.policy().capacity();
            admitted(&limit.acquire("k").cost(all).await.unwrap(), 0);
            store.at(0);
            refused(&limit.acquire("k").await.unwrap(), 0, us(wait));
        }
    }
}

#[tokio::test]
async fn b18_b122_a_refund_after_a_jump_gives_back_what_it_says() {
    for store in stores().await {
        for rate in RATES {
            let limit = store.limit(rate.text);
            store.at_us(3_600_000_000);
            let charged = limit.acquire("k").cost(rate.limit).await.unwrap();
            admitted(&charged, 0);
            // Back: the bucket is just empty now, and three are given back to it.
            store.at(1_000);
            give_back(&store, &limit, 3, &charged).await;
            admitted(&limit.peek("k").await.unwrap(), 3);
            admitted(&limit.acquire("k").cost(3).await.unwrap(), 0);
            refused(&limit.acquire("k").await.unwrap(), 0, us(rate.time(1)));
            store.at_us(1_000_000 + rate.time(1));
            admitted(&limit.acquire("k").await.unwrap(), 0);
            // Ahead again, far enough to be full: giving back is not above that.
            store.at_us(rate.period + 10_000_000);
            give_back(&store, &limit, 3, &charged).await;
            admitted(&limit.peek("k").await.unwrap(), rate.limit);
        }
    }
}

#[tokio::test]
async fn b20_a_bucket_refills_within_a_second() {
    for store in stores().await {
        for rate in [
            Rate::new("10/s", 10, 1_000_000, 1),
            Rate::new("10/4s", 10, 4_000_000, 1),
            Rate::new("7/5s", 7, 5_000_000, 1),
            Rate::new("99991/day", 99_991, 86_400_000_000, 1_000),
        ] {
            // Two within each second and within each half one, however fast it is.
            for (start, now) in [(0, 500_000), (0, 900_000), (100_000, 900_000)] {
                let limit = store.limit(rate.text);
                store.at_us(start);
                admitted(&limit.acquire("k").cost(rate.limit).await.unwrap(), 0);
                store.at_us(now);
                let back = rate.tokens(now - start);
                for left in (0..back).rev() {
                    admitted(&limit.acquire("k").await.unwrap(), left);
                }
                let wait = us(start + rate.time(back + 1) - now);
                refused(&limit.acquire("k").await.unwrap(), 0, wait);
            }
        }
        let limit = store.limit("10/s");
        store.at(0);
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
        // WAIT is about what its own connection has written, which comes after the charges.
        let mut fence = primary.client().await.unwrap();
        fence.call(&["SET", "fence", "1"]).await.unwrap();
        let acknowledged = fence.call(&["WAIT", "1", "10000"]).await.unwrap();
        assert_eq!(acknowledged.integer(), Some(1), "{flavor:?}");
        for key in keys {
            let here = primary.command(&["DUMP", &key]).await;
            assert_eq!(replica.command(&["DUMP", &key]).await, here, "{flavor:?}");
            let ttl = async |server: &RedisServer| {
                server.command(&["PTTL", &key]).await.integer().unwrap()
            };
            // Asked in between, so that the time that asking takes is no difference.
            let (before, there, after) = (
                ttl(&primary).await,
                ttl(&replica).await,
                ttl(&primary).await,
            );
            assert!(
                there > 0 && (after - 50..=before + 50).contains(&there),
                "{flavor:?} {key}: {there} is not within {after} to {before}"
            );
        }
    }
    assert!(tried > 0, "there is no server");
}

#[tokio::test]
async fn b22_a_server_that_refuses_to_write_after_reading_the_time_is_reported() {
    // An old one that hides its version, so that it can only be found out when it is used.
    let server = RedisServer::start().await;
    let refuses = "-ERR Write commands not allowed after non deterministic commands\r\n";
    for (policy, admitted) in [(FailurePolicy::Open, true), (FailurePolicy::Closed, false)] {
        let proxy = FaultProxy::start(server.address()).await;
        proxy.on(Rule::command("EVALSHA").answer(refuses).always());
        let limiter = tollgate::Limiter::builder(crate::support::connect(&proxy.url()).await)
            .timeout(seconds(20))
            .on_failure(policy)
            .build();
        for (number, algorithm) in tollgate::Algorithm::ALL.into_iter().enumerate() {
            let quota = format!("5/h {algorithm}").parse().unwrap();
            let limit = limiter.policy(&fresh("b22"), [quota]).unwrap();
            let decision = limit.acquire("k").await.unwrap();
            assert_eq!(decision.allowed(), admitted, "{algorithm}");
            assert!(!decision.origin().is_enforced(), "{algorithm}");
            // Never an admission that nobody counted as such.
            let health = limiter.health();
            assert_eq!(health.unenforced, number as u64 + 1);
            assert_eq!(health.reason, Some(ErrorKind::Unsupported));
            assert!(!health.enforcing);
        }
        assert_eq!(proxy.commands_named("EVALSHA"), 4, "no call is repeated");
    }
    assert!(server.keys("tollgate:v1:b22*").await.is_empty());
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
