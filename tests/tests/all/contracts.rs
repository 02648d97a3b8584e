//! Lines of `docs/contracts.md` that are about counting on a shared store.

use std::sync::Arc;

use crate::support::{
    PATIENT, Store, T0, admitted, connect, dynamodb, fresh, ms, refused, seconds, stores,
};
use tokio::sync::Mutex;
use tollgate::redis::{RedisBackend, RedisExecutor, ScriptCall, error_kind};
use tollgate::{
    Algorithm, BackendError, CasBackend, ConcurrencyError, ErrorKind, Limiter, ManualClock,
    SharedBackend,
};
use tollgate_testkit::{Flavor, MapStore, RedisClient, RedisServer, Reply, shared_memcached};

/// A client that the application has already.
#[derive(Clone, Debug)]
struct Application(Arc<Mutex<RedisClient>>);

impl Application {
    async fn call(&self, words: &[&[u8]]) -> Result<Reply, BackendError> {
        let answered = self.0.lock().await.call(words).await;
        answered.map_err(|e| BackendError::new(ErrorKind::Unavailable, "lost").with_source(e))
    }

    async fn once(&self, call: ScriptCall<'_>) -> Result<Reply, BackendError> {
        let mut words = vec![
            &b"EVALSHA"[..],
            call.script.sha().as_bytes(),
            b"1",
            call.key.as_bytes(),
        ];
        words.extend(call.args.iter());
        self.call(&words).await
    }
}

impl RedisExecutor for Application {
    async fn run(&self, call: ScriptCall<'_>) -> Result<Vec<i64>, BackendError> {
        let mut reply = self.once(call).await?;
        if matches!(&reply, Reply::Error(e) if e.starts_with("NOSCRIPT")) {
            let source = call.script.source().as_bytes();
            self.call(&[b"SCRIPT", b"LOAD", source]).await?;
            reply = self.once(call).await?;
        }
        match reply {
            Reply::Integer(number) => Ok(vec![number]),
            Reply::Array(items) => Ok(items.iter().filter_map(Reply::integer).collect()),
            Reply::Error(text) => Err(BackendError::new(error_kind(&text), text)),
            other => panic!("scripts answer integers, not {other:?}"),
        }
    }
}

#[tokio::test]
async fn s3_an_applications_own_client_serves_and_no_second_connection_is_made() {
    let server = RedisServer::start().await;
    let connections = async || {
        let list = server.command(&["CLIENT", "LIST"]).await.text().unwrap();
        // Less the one that asks.
        list.lines().count() - 1
    };
    let application = Application(Arc::new(Mutex::new(server.client().await.unwrap())));
    assert_eq!(connections().await, 1);
    let backend = RedisBackend::with_executor(application.clone());
    let store = Store::over("the application's", SharedBackend::new(backend));
    for algorithm in Algorithm::ALL {
        let limit = store.limit(&format!("5/60s {algorithm}, 100/h"));
        for left in (0..5).rev() {
            admitted(&limit.acquire("k").await.unwrap(), left);
        }
        assert!(!limit.acquire("k").await.unwrap().allowed());
    }
    assert_eq!(connections().await, 1);
    // It is still the application's.
    let pong = application.call(&[b"PING"]).await.unwrap();
    assert_eq!(pong, Reply::Text("PONG".into()));
}

#[tokio::test]
async fn s6_a_bucket_refills_all_the_time_and_has_no_edge() {
    for store in stores().await {
        let limit = store.limit("100/60s");
        // Just before and just after what would be the edge of a window.
        store.at(59_999);
        admitted(&limit.acquire("k").cost(100).await.unwrap(), 0);
        store.at(60_001);
        refused(&limit.acquire("k").await.unwrap(), 0, ms(598));
        store.at(59_999 + 600);
        admitted(&limit.acquire("k").await.unwrap(), 0);
        store.at(59_999 + 30_600);
        admitted(&limit.acquire("k").cost(50).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn s7_the_burst_is_a_setting_of_its_own() {
    for store in stores().await {
        let limit = store.limit("100/60s burst=20");
        admitted(&limit.acquire("k").cost(20).await.unwrap(), 0);
        refused(&limit.acquire("k").await.unwrap(), 0, ms(600));
        let limit = store.limit("100/60s");
        admitted(&limit.acquire("k").cost(100).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn s8_one_record_an_identity_and_not_one_entry_a_request() {
    let server = RedisServer::start().await;
    let store = Store::over("redis", crate::support::connect(&server.url()).await);
    for quotas in [
        "100000/h",
        "100000/h sliding_window",
        "100000/h fixed_window",
        "100000/h, 9/s",
    ] {
        let limit = store.limit(quotas);
        let pattern = format!("*:{}:*", limit.name());
        limit.acquire("k").await.unwrap();
        let [key] = &server.keys(&pattern).await[..] else {
            panic!("{quotas}: one key")
        };
        let size = async || {
            let usage = server.command(&["MEMORY", "USAGE", key]).await;
            usage.integer().unwrap()
        };
        let first = size().await;
        for _ in 0..200 {
            limit.acquire("k").await.unwrap();
        }
        assert_eq!(server.keys(&pattern).await.len(), 1, "{quotas}");
        assert!(
            size().await <= first + 32,
            "{quotas}: {first} became {}",
            size().await
        );
    }
}

#[tokio::test]
async fn s26_reset_is_until_full_and_retry_after_until_one_fits_and_never_0() {
    for store in stores().await {
        let limit = store.limit("5/s");
        let last = limit.acquire("k").cost(5).await.unwrap();
        assert_eq!(last.reset_after(), Some(seconds(1)));
        refused(&limit.acquire("k").await.unwrap(), 0, ms(200));
        for algorithm in Algorithm::ALL {
            store.at(0);
            let limit = store.limit(&format!("1/ms {algorithm}"));
            limit.acquire("k").await.unwrap();
            let decision = limit.acquire("k").await.unwrap();
            let wait = decision.retry_after().unwrap();
            assert!(!wait.is_zero(), "{algorithm} on {}", store.name);
        }
    }
}

#[tokio::test]
async fn s66_a_log_keeps_admissions_only_and_for_a_window() {
    let server = RedisServer::start().await;
    let url = server.url();
    let mut all = stores().await;
    all.push(Store::over("own", crate::support::connect(&url).await));
    for store in all {
        let limit = store.limit("3/10s sliding_log");
        for (at, left) in [(0, 2), (4_000, 1), (8_000, 0)] {
            store.at(at);
            let decision = limit.acquire("k").await.unwrap();
            admitted(&decision, left);
            // When its oldest entry leaves.
            assert_eq!(decision.reset_after(), Some(ms(10_000 - at)));
        }
        for _ in 0..10 {
            refused(&limit.acquire("k").await.unwrap(), 0, seconds(2));
        }
        store.at(10_000);
        admitted(&limit.acquire("k").await.unwrap(), 0);
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(4));
    }
    let clocked = Limiter::builder(crate::support::connect(&url).await)
        .timeout(PATIENT)
        .build();
    let limit = clocked
        .policy("s66", ["3/10s sliding_log".parse().unwrap()])
        .unwrap();
    limit.acquire("k").await.unwrap();
    ttl_is(&server, "s66", 10_000).await;
}

#[tokio::test]
async fn s67_a_bucket_is_kept_for_as_long_as_it_needs_to_refill() {
    let server = RedisServer::start().await;
    let backend = crate::support::connect(&server.url()).await;
    let limiter = Limiter::builder(backend).timeout(PATIENT).build();
    let limit = limiter
        .policy("s67", ["100/100s".parse().unwrap()])
        .unwrap();
    let decision = limit.acquire("k").cost(40).await.unwrap();
    assert_eq!(decision.reset_after(), Some(seconds(40)));
    ttl_is(&server, "s67", 40_000).await;
    let decision = limit.acquire("k").cost(60).await.unwrap();
    admitted(&decision, 0);
    ttl_is(&server, "s67", 100_000).await;
}

/// That a record lives for so many milliseconds, and at most a minute more.
async fn ttl_is(server: &RedisServer, policy: &str, millis: i64) {
    let keys = server.keys(&format!("tollgate:v1:{policy}:*")).await;
    let ttl = server.command(&["PTTL", &keys[0]]).await.integer().unwrap();
    assert!(
        (millis - 5_000..=millis + 61_000).contains(&ttl),
        "{policy}: {ttl} of {millis}"
    );
}

#[tokio::test]
async fn s83_the_previous_window_counts_by_the_part_that_is_still_inside() {
    for store in stores().await {
        let limit = store.limit("100/60s sliding_window");
        store.at(30_000);
        admitted(&limit.acquire("k").cost(50).await.unwrap(), 50);
        store.at(60_000);
        admitted(&limit.acquire("k").cost(10).await.unwrap(), 40);
        store.at(66_000);
        admitted(&limit.peek("k").await.unwrap(), 45);
        assert!(!limit.acquire("k").cost(46).await.unwrap().allowed());
        admitted(&limit.acquire("k").cost(45).await.unwrap(), 0);
        // Nobody doubles the limit at an edge.
        let limit = store.limit("100/60s sliding_window");
        store.at(119_999);
        admitted(&limit.acquire("k").cost(100).await.unwrap(), 0);
        store.at(120_000);
        assert!(!limit.acquire("k").await.unwrap().allowed());
    }
}

#[tokio::test]
async fn s84_refused_requests_do_not_count() {
    for store in stores().await {
        // A log of 10 a minute, asked every 5 s for 10 min.
        let limit = store.limit("10/60s sliding_log");
        let mut passed = Vec::new();
        for second in (0..=600).step_by(5) {
            store.at(second * 1_000);
            if limit.acquire("k").await.unwrap().allowed() {
                passed.push(second);
            }
        }
        let right: Vec<_> = (0..=600).step_by(5).filter(|s| s % 60 < 50).collect();
        assert_eq!(passed, right, "{}", store.name);
        for algorithm in Algorithm::ALL {
            store.at(0);
            let limit = store.limit(&format!("10/h {algorithm}"));
            for _ in 0..50 {
                limit.acquire("k").await.unwrap();
            }
            let seen = limit.peek("k").await.unwrap();
            assert_eq!(seen.remaining(), Some(0), "{algorithm}");
            let hour = seconds(3_600).min(seen.reset_after().unwrap());
            assert!(seen.reset_after().unwrap() <= 2 * hour, "{algorithm}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s85_check_and_count_are_one_step_on_redis_and_valkey() {
    let mut tried = 0;
    for flavor in Flavor::ALL {
        if flavor.binary().is_none() {
            continue;
        }
        tried += 1;
        let server = RedisServer::builder().flavor(flavor).start().await;
        let limiter = crate::processes::limiter(&server.url(), false).await;
        for algorithm in Algorithm::ALL {
            let quota = format!("50/60s {algorithm}").parse().unwrap();
            let limit = limiter.policy(&fresh("s85"), [quota]).unwrap();
            let passed = crate::processes::charge_at_once(&limit, 200).await;
            assert_eq!(passed, 50, "{flavor:?} {algorithm}");
        }
    }
    assert!(tried > 0, "there is no server");
}

#[tokio::test]
async fn s88_windows_follow_the_callers_clocks_where_a_store_has_none() {
    /// Two processes that share a store, with a clock each.
    #[derive(Clone, Debug)]
    struct Shared(Arc<MapStore>);
    impl std::fmt::Display for Shared {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("shared map")
        }
    }
    impl tollgate::StateStore for Shared {
        type Token = u64;
        async fn load(&self, key: &str) -> Result<Option<tollgate::Versioned<u64>>, BackendError> {
            self.0.load(key).await
        }
        async fn swap(
            &self,
            key: &str,
            expected: Option<u64>,
            value: Vec<u8>,
            ttl: std::time::Duration,
        ) -> Result<bool, BackendError> {
            self.0.swap(key, expected, value, ttl).await
        }
        async fn delete(&self, key: &str) -> Result<(), BackendError> {
            self.0.delete(key).await
        }
    }
    let store = Shared(Arc::default());
    let process = |clock: &ManualClock| {
        let backend = CasBackend::new(store.clone()).with_clock(clock.clone());
        Limiter::builder(backend)
            .timeout(PATIENT)
            .forget_refusals()
            .build()
    };
    let (right, slow) = (
        ManualClock::new(T0 + seconds(60)),
        ManualClock::new(T0 + seconds(58)),
    );
    let (here, there) = (process(&right), process(&slow));
    for algorithm in Algorithm::ALL {
        let quota = format!("10/60s {algorithm}").parse().unwrap();
        let name = fresh("s88");
        let (here, there) = (
            here.policy(&name, [quota]).unwrap(),
            there.policy(&name, [quota]).unwrap(),
        );
        admitted(&here.acquire("k").cost(10).await.unwrap(), 0);
        // The slow one is still in the window before, and gets nothing twice.
        assert!(!there.acquire("k").await.unwrap().allowed(), "{algorithm}");
    }
}

#[tokio::test]
async fn s94_a_forgetful_wrapper_resets_no_counter() {
    for store in stores().await {
        let limit = store.limit("5/h");
        admitted(&limit.acquire("k").cost(5).await.unwrap(), 0);
        store.limiter.forget();
        assert!(
            !limit.acquire("k").await.unwrap().allowed(),
            "{}",
            store.name
        );
    }
}

/// By URL, with the store there and without it.
#[tokio::test]
async fn s112_slots_on_memcached_are_refused_when_the_limit_is_built() {
    let there = shared_memcached().await.url().to_owned();
    for url in [there, "memcached://127.0.0.1:1".into()] {
        let backend = tollgate::connect(&url).await.unwrap();
        assert!(backend.leases().is_none());
        let limiter = Limiter::builder(backend).build();
        let error = limiter.concurrency("ocr", 4).build().unwrap_err();
        assert!(
            matches!(error, ConcurrencyError::Unsupported { .. }),
            "{error}"
        );
        let text = error.to_string();
        for part in ["\"ocr\"", "memcached://", "cannot hold leases", "redis://"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
    // The other store without scripts has them.
    let limiter = Limiter::builder(connect(&dynamodb().await).await)
        .timeout(PATIENT)
        .build();
    let slots = limiter.concurrency(&fresh("ocr"), 1).build().unwrap();
    let held = slots.acquire("k").await.unwrap();
    assert!(slots.acquire("k").await.is_err());
    drop(held);
    // But not any number of them.
    let error = limiter.concurrency("ocr", 8_001).build().unwrap_err();
    assert!(matches!(error, ConcurrencyError::TooMany { .. }), "{error}");
}
