//! Counters and their expiry (`atomicity-ttl` in docs/faults.md).

use std::collections::BTreeMap;

use crate::support::{PATIENT, Store, T0, admitted, fresh, ms, refused, seconds, stores, us};
use tollgate::{
    Breaker, Clock, Cost, CounterBackend, Limiter, Quota, QuotaFault, Subject, SystemClock,
};
use tollgate_testkit::{FaultProxy, RedisServer, Reply, Rule, wait_until};

async fn pttl(server: &RedisServer, key: &str) -> i64 {
    server.command(&["PTTL", key]).await.integer().unwrap()
}

#[tokio::test]
async fn b01_a_cut_connection_never_leaves_a_counter_without_an_expiry() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let quota: Quota = "3/10s fixed_window".parse().unwrap();
    let (mut cut, mut counted) = (0, 0);
    for run in 0..200_u64 {
        // After the first command of the connection, after the second, and so on; every other time
        // before the command arrives instead.
        let rule = Rule::any().skip(run / 2 % 6);
        proxy.on(if run % 2 == 0 {
            rule.forward_then_cut()
        } else {
            rule.cut()
        });
        let before = proxy.connections();
        if let Ok(backend) = tollgate::connect(&proxy.url()).await {
            let soon = Breaker {
                cooldown: ms(5),
                ..Breaker::default()
            };
            let limiter = Limiter::builder(backend)
                .timeout(PATIENT)
                .breaker(soon)
                .build();
            let limit = limiter.policy(&fresh("b01"), [quota]).unwrap();
            for _ in 0..3 {
                limit.acquire("k").await.unwrap();
            }
            let enforced = async || limit.acquire("k").await.unwrap().origin().is_enforced();
            wait_until("a connection that is not cut", seconds(10), enforced).await;
            for key in server
                .keys(&format!("tollgate:v1:{}:*", limit.name()))
                .await
            {
                let left = pttl(&server, &key).await;
                // -2: it has expired meanwhile; -1 would be for ever. The margin is a minute.
                assert!(left == -2 || (0..=70_000).contains(&left), "{key}: {left}");
                counted += 1;
            }
        }
        cut += u64::from(proxy.connections() > before + 1);
        proxy.restore().await;
    }
    assert!(cut > 50, "only {cut} runs were cut and went on");
    assert!(counted > 100, "only {counted} runs counted");
    for separate in ["EXPIRE", "PEXPIRE", "SET", "INCR", "HSET", "GET"] {
        assert_eq!(proxy.commands_named(separate), 0, "{separate}");
    }
}

#[tokio::test]
async fn b01_s9_a_decision_is_one_evalsha_and_nothing_else() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let store = Store::over("redis", crate::support::connect(&proxy.url()).await);
    for algorithm in tollgate::Algorithm::ALL {
        let limit = store.limit(&format!("3/10s {algorithm}, 100/h"));
        // The first may have to load a script.
        limit.acquire("k").await.unwrap();
        let (all, scripts) = (proxy.commands(), proxy.commands_named("EVALSHA"));
        for _ in 0..10 {
            limit.acquire("k").await.unwrap();
        }
        limit.peek("k").await.unwrap();
        assert_eq!(proxy.commands_named("EVALSHA"), scripts + 11, "{algorithm}");
        assert_eq!(proxy.commands(), all + 11, "{algorithm}");
    }
}

#[tokio::test]
async fn b03_a_first_charge_of_more_than_one_has_an_expiry() {
    let server = RedisServer::start().await;
    let url = server.url();
    let mut all = stores().await;
    all.push(Store::over("own", crate::support::connect(&url).await));
    for store in all {
        let limit = store.limit("10/60s fixed_window");
        let first = limit.acquire("k").cost(5).await.unwrap();
        admitted(&first, 5);
        assert_eq!(first.reset_after(), Some(seconds(60)));
        if store.name == "own" {
            // What is counted, and the hour that state in virtual time is kept besides.
            let [key] = &server.keys("*").await[..] else {
                panic!("one record")
            };
            let left = pttl(&server, key).await;
            assert!((1..=60_000 + 3_600_001).contains(&left), "{left}");
        }
        store.at(60_000);
        admitted(&limit.acquire("k").cost(10).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn b03_by_the_servers_own_clock_the_expiry_is_the_windows_end() {
    let server = RedisServer::start().await;
    let backend = crate::support::connect(&server.url()).await;
    let limiter = Limiter::builder(backend).timeout(PATIENT).build();
    for (quota, longest) in [
        ("10/60s fixed_window", 60_000),
        ("10/60s sliding_window", 120_000),
        ("10/60s sliding_log", 60_000),
        ("10/60s", 30_000),
        ("7/60s", 42_858),
    ] {
        let limit = limiter
            .policy(&fresh("b03"), [quota.parse().unwrap()])
            .unwrap();
        let first = limit.acquire("k").cost(5).await.unwrap();
        assert!(first.allowed());
        let pattern = format!("tollgate:v1:{}:*", limit.name());
        let [key] = &server.keys(&pattern).await[..] else {
            panic!("one record")
        };
        // Rounded up to the millisecond, and one more; no margin besides.
        let left = pttl(&server, key).await;
        assert!((1..=longest + 2).contains(&left), "{quota}: {left}");
    }
}

#[tokio::test]
async fn b04_a_counter_that_lost_its_expiry_is_harmless_and_gets_one_again() {
    let server = RedisServer::start().await;
    let store = Store::over("redis", crate::support::connect(&server.url()).await);
    // Used up at the start of a period: the wait, and when two are left after one more. The sliding
    // window counts what was used for another period, less and less of it.
    for (algorithm, wait, later) in [
        ("token_bucket", us(3_333_334), 10_000),
        ("fixed_window", seconds(10), 10_000),
        ("sliding_log", seconds(10), 10_000),
        ("sliding_window", us(13_333_334), 20_000),
    ] {
        store.at(0);
        let limit = store.limit(&format!("3/10s {algorithm}"));
        for _ in 0..3 {
            assert!(limit.acquire("k").await.unwrap().allowed());
        }
        let name = format!("tollgate:v1:{}:*", limit.name());
        let [key] = &server.keys(&name).await[..] else {
            panic!("one record")
        };
        assert_eq!(server.command(&["PERSIST", key]).await, Reply::Integer(1));
        assert_eq!(pttl(&server, key).await, -1);
        refused(&limit.acquire("k").await.unwrap(), 0, wait);
        // A refusal repairs it.
        let left = pttl(&server, key).await;
        assert!(
            (1..=20_000 + 3_600_001).contains(&left),
            "{algorithm}: {left}"
        );
        if algorithm == "sliding_window" {
            store.at(10_000);
            refused(&limit.acquire("k").await.unwrap(), 0, us(3_333_334));
        }
        store.at(later);
        admitted(&limit.acquire("k").await.unwrap(), 2);
    }
}

#[tokio::test]
async fn b05_no_window_is_stretched() {
    // In virtual time, three times the limit evenly spread over each of five seconds.
    for store in stores().await {
        let limit = store.limit("1000/s fixed_window");
        let key = tollgate::Key::from("k");
        let mut per_second = [0; 5];
        for offered in 0..15_000 {
            let at = T0 + us(offered * 1_000_000 / 3_000);
            let subject = Subject::new(limit.policy(), &key).at(at);
            let decision = store.limiter.backend().acquire(subject, Cost::ONE).await;
            if decision.unwrap().allowed() {
                per_second[(offered / 3_000) as usize] += 1;
            }
        }
        assert_eq!(per_second, [1_000; 5], "{}", store.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b05_no_window_is_stretched_by_the_servers_own_clock() {
    const RATE: u64 = 1_000;
    const OFFERED: u64 = 3 * RATE;
    let server = RedisServer::start().await;
    let backend = crate::support::connect(&server.url()).await;
    let limiter = Limiter::builder(backend)
        .timeout(PATIENT)
        .forget_refusals()
        .build();
    let limit = limiter
        .policy("b05", ["1000/s fixed_window".parse().unwrap()])
        .unwrap();
    // The script is there before the first second begins.
    limit.acquire("another").await.unwrap();

    // The server's clock is this machine's. 3,000 a second, evenly, from the edge of a second: each
    // when it is due, whether those before it are answered or not.
    let started = SystemClock.now().as_micros();
    let edge = (started / 1_000_000 + 1) * 1_000_000;
    let from = tokio::time::Instant::now() + us(edge - started);
    let mut calls = Vec::new();
    for offered in 0..5 * OFFERED {
        let due = from + us(offered * 1_000_000 / OFFERED);
        if due > tokio::time::Instant::now() {
            tokio::time::sleep_until(due).await;
        }
        let limit = limit.clone();
        calls.push(tokio::spawn(
            async move { limit.acquire("k").await.unwrap() },
        ));
    }
    let mut seconds: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for call in calls {
        let decision = call.await.unwrap();
        let second = decision.charged_at().as_micros() / 1_000_000 - edge / 1_000_000;
        let (offered, passed) = seconds.entry(second).or_default();
        *offered += 1;
        *passed += u64::from(decision.allowed());
    }
    let mut total = 0;
    for second in 0..5 {
        let (offered, passed) = seconds.get(&second).copied().unwrap_or_default();
        assert!(offered > RATE, "only {offered} came in second {second}");
        assert_eq!(passed, RATE, "of {offered} in second {second}");
        total += passed;
    }
    assert_eq!(total, 5 * RATE);
}

#[tokio::test]
async fn b07_a_window_of_nothing_is_refused_and_one_of_100_ms_works() {
    let error = Quota::fixed_window(10, ms(0)).unwrap_err();
    assert_eq!(error.fault(), QuotaFault::PeriodTooShort);
    assert!(error.to_string().starts_with("period:"), "{error}");
    for store in stores().await {
        let limit = store.limit("10/100ms fixed_window");
        for left in (0..10).rev() {
            admitted(&limit.acquire("k").await.unwrap(), left);
        }
        refused(&limit.acquire("k").await.unwrap(), 0, ms(100));
        store.at(100);
        admitted(&limit.acquire("k").await.unwrap(), 9);
    }
}

#[tokio::test]
async fn b09_an_entry_past_its_expiry_starts_anew_swept_or_not() {
    for store in stores().await {
        for (cost, left) in [(1, 1), (2, 0)] {
            let limit = store.limit("2/1s fixed_window");
            store.at(0);
            admitted(&limit.acquire("k").await.unwrap(), 1);
            admitted(&limit.acquire("k").await.unwrap(), 0);
            store.at(5_000);
            admitted(&limit.acquire("k").cost(cost).await.unwrap(), left);
        }
    }
}
