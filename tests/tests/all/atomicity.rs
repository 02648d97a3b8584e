//! Counters and their expiry (`atomicity-ttl` in docs/faults.md).

use std::collections::BTreeMap;

use crate::support::{PATIENT, Store, T0, admitted, fresh, ms, refused, seconds, stores};
use tollgate::{Breaker, Limiter, Quota, QuotaFault};
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
            for key in server.keys("*").await {
                assert!(pttl(&server, &key).await > 0, "{key}");
            }
        }
        store.at(60_000);
        admitted(&limit.acquire("k").cost(10).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn b04_a_counter_that_lost_its_expiry_is_harmless_and_gets_one_again() {
    let server = RedisServer::start().await;
    let store = Store::over("redis", crate::support::connect(&server.url()).await);
    for algorithm in tollgate::Algorithm::ALL {
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
        let decision = limit.acquire("k").await.unwrap();
        let wait = decision.retry_after().unwrap();
        assert!(
            !decision.allowed() && wait <= seconds(20),
            "{algorithm}: {wait:?}"
        );
        assert!(
            pttl(&server, key).await > 0,
            "{algorithm}: a refusal repairs it"
        );
        store.at(20_000);
        admitted(&limit.acquire("k").await.unwrap(), 2);
    }
}

#[tokio::test]
async fn b05_no_window_is_stretched() {
    // In virtual time, three times the limit evenly spread over each of five seconds. Over a network
    // a smaller one, for the time it takes.
    for store in stores().await {
        let rate = if store.name == "redis" { 200 } else { 1_000 };
        let limit = store.limit(&format!("{rate}/s fixed_window"));
        let mut per_second = [0; 5];
        for offered in 0..15 * rate {
            let at = std::time::Duration::from_micros(offered * 1_000_000 / (3 * rate));
            store.clock.set(T0 + at);
            if limit.acquire("k").await.unwrap().allowed() {
                per_second[(offered / (3 * rate)) as usize] += 1;
            }
        }
        assert_eq!(per_second, [rate; 5], "{}", store.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b05_no_window_is_stretched_by_the_servers_own_clock() {
    let server = RedisServer::start().await;
    let backend = crate::support::connect(&server.url()).await;
    let limiter = Limiter::builder(backend)
        .timeout(PATIENT)
        .forget_refusals()
        .build();
    // 400/s, so that the offer is several times that on any machine.
    let limit = limiter
        .policy("b05", ["400/s fixed_window".parse().unwrap()])
        .unwrap();
    let run = async |limit: tollgate::RateLimit| {
        let mut seen = Vec::new();
        let mut first = None;
        loop {
            let decision = limit.acquire("k").await.unwrap();
            let second = decision.charged_at().as_micros() / 1_000_000;
            if second >= *first.get_or_insert(second) + 5 {
                return seen;
            }
            seen.push((second, decision.allowed()));
        }
    };
    let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(run(limit.clone()))).collect();
    let mut seconds: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for task in tasks {
        for (second, allowed) in task.await.unwrap() {
            let (offered, passed) = seconds.entry(second).or_default();
            *offered += 1;
            *passed += u64::from(allowed);
        }
    }
    // The first and the last are not whole.
    let whole: Vec<_> = seconds.values().skip(1).take(3).collect();
    assert_eq!(whole.len(), 3);
    for (offered, passed) in whole {
        assert!(*offered > 400, "only {offered} were offered in a second");
        assert_eq!(*passed, 400, "of {offered}");
    }
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
