//! Scripts that are forgotten, values that are not ours, keys and their slots.

use std::collections::HashSet;
use std::time::Duration;

use tollgate_core::{Cost, CounterBackend, ErrorKind, Key, Subject, storage_key};
use tollgate_redis::key_slot;
use tollgate_testkit::{FaultProxy, RedisServer, Rule, shared_redis, wait_until};

use super::lost::join_all;
use super::{PATIENCE, T0, backend, charge, facts, key_of, policy};

#[tokio::test]
async fn b56_forgotten_scripts_are_loaded_once() {
    let mut server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = backend(proxy.url()).await;
    for quota in [
        "10/h",
        "7/h",
        "10/h sliding_window",
        "10/h fixed_window",
        "10/h sliding_log",
        "10/h, 11/h",
    ] {
        let policy = policy(quota);
        for right in [9, 8, 7, 6, 5, 4].map(|n| n - (10 - policy.capacity())) {
            if right == 6 - (10 - policy.capacity()) {
                server.command(&["SCRIPT", "FLUSH"]).await;
            }
            let decision = charge(&backend, &policy, None, 1).await.unwrap();
            assert_eq!(decision.remaining(), Some(right), "{quota}");
        }
    }

    server.command(&["SCRIPT", "FLUSH"]).await;
    let loads = proxy.commands_named("SCRIPT");
    let policies: Vec<_> = (0..100).map(|_| policy("10/h")).collect();
    let answers = join_all(
        policies
            .iter()
            .map(|policy| charge(&backend, policy, None, 1)),
    )
    .await;
    for answer in answers {
        assert_eq!(answer.unwrap().remaining(), Some(9));
    }
    assert_eq!(proxy.commands_named("SCRIPT") - loads, 1, "no stampede");
    assert_eq!(proxy.commands_named("EVAL"), 0);

    server.restart().await;
    wait_until("the server is back", PATIENCE, async || {
        charge(&backend, &policies[0], None, 1).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn b56_scripts_that_vanish_each_time_end_in_an_error_not_a_loop() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = backend(proxy.url()).await;
    proxy.on(Rule::command("EVALSHA")
        .times(1_000)
        .answer("-NOSCRIPT No matching script.\r\n"));
    let error = charge(&backend, &policy("10/h"), None, 1)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady);
    assert!(proxy.commands_named("EVALSHA") <= 3 && proxy.commands_named("SCRIPT") <= 2);
}

#[tokio::test]
async fn b58_one_key_a_call_and_nobody_chooses_its_slot() {
    let policy = policy("10/h, 20/h");
    let key_of = |identity: &[u8]| storage_key("tollgate", &policy, &Key::from(identity));
    for identity in ["a", "{", "}", "{}", "a{b}c", "}{", "{x}{y}"] {
        let key = key_of(identity.as_bytes());
        assert!(!key.contains(['{', '}']), "{key}");
        let slots: HashSet<_> = ["p", "q"]
            .map(|end| key_slot(&key_of(format!("{identity}{end}").as_bytes())))
            .into();
        assert_eq!(
            slots.len(),
            2,
            "{identity}: what is in braces does not pin the slot"
        );
    }
    let slots: HashSet<_> = (0..1_000_u64)
        .map(|n| {
            key_slot(&key_of(
                &n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes(),
            ))
        })
        .collect();
    assert!(slots.len() > 900, "{}", slots.len());
}

#[tokio::test]
async fn b58_a_crossslot_reply_is_a_failure_and_no_answer() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = backend(proxy.url()).await;
    proxy.on(Rule::command("EVALSHA")
        .answer("-CROSSSLOT Keys in request don't hash to the same slot\r\n"));
    let error = charge(&backend, &policy("10/h"), None, 1)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other, "{error}");
}

#[tokio::test]
async fn b60_replies_of_a_server_in_trouble_have_their_kinds() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = backend(proxy.url()).await;
    let replies = [
        (
            "-MISCONF Redis is configured to save RDB snapshots\r\n",
            ErrorKind::ReadOnly,
        ),
        (
            "-LOADING Redis is loading the dataset in memory\r\n",
            ErrorKind::NotReady,
        ),
        (
            "-BUSY Redis is busy running a script\r\n",
            ErrorKind::NotReady,
        ),
        (
            "-MASTERDOWN Link with MASTER is down\r\n",
            ErrorKind::NotReady,
        ),
        ("-CLUSTERDOWN The cluster is down\r\n", ErrorKind::NotReady),
        (
            "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
            ErrorKind::OutOfMemory,
        ),
        (
            "-READONLY You can't write against a read only replica.\r\n",
            ErrorKind::ReadOnly,
        ),
        ("-NOAUTH Authentication required.\r\n", ErrorKind::Auth),
        ("-NOPERM this user has no permissions\r\n", ErrorKind::Auth),
        ("-MOVED 1 127.0.0.1:1\r\n", ErrorKind::Config),
    ];
    for (reply, kind) in replies {
        proxy.on(Rule::command("EVALSHA").answer(reply));
        let policy = policy("10/h");
        let mut error = charge(&backend, &policy, None, 1).await.unwrap_err();
        // After a connection was dropped for such a reply, its reason is given for a moment.
        if proxy.commands_named("EVALSHA") == 0 {
            wait_until("it is sent", PATIENCE, async || {
                let Err(next) = charge(&backend, &policy, None, 1).await else {
                    return false;
                };
                error = next;
                error.kind() == kind
            })
            .await;
        }
        assert_eq!(error.kind(), kind, "{reply}: {error}");
        assert!(!error.may_have_charged(), "{reply}");
        wait_until("it counts again", PATIENCE, async || {
            charge(&backend, &policy, None, 1).await.is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn b63_a_value_that_is_not_ours_is_replaced() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    let seeds: [&[&str]; 9] = [
        &["SET", "{key}", "{json}"],
        &["SET", "{key}", ""],
        &["SET", "{key}", "b1,1,5"],
        &["SET", "{key}", "s900000000,1,2"],
        &["SET", "{key}", "nan"],
        &["HSET", "{key}", "tokens", "3"],
        &["HSET", "{key}", "h", "garbage"],
        &["RPUSH", "{key}", "x"],
        &["ZADD", "{key}", "1", "x"],
    ];
    for quota in [
        "5/15m",
        "5/7s",
        "5/15m sliding_window",
        "5/15m fixed_window",
        "5/15m sliding_log",
        "5/15m, 9/1h sliding_log",
        "5/15m, 9/1h fixed_window",
    ] {
        for seed in seeds {
            let policy = policy(quota);
            let key = key_of(&policy);
            let words: Vec<_> = seed
                .iter()
                .map(|word| if *word == "{key}" { key.as_str() } else { word })
                .collect();
            server.command(&words).await;
            let subject_key = Key::from("k");
            let peeked = backend
                .peek(Subject::new(&policy, &subject_key), Cost::ONE)
                .await
                .unwrap();
            assert_eq!(peeked.remaining(), Some(5), "{quota} {seed:?}");
            let decision = charge(&backend, &policy, Some(T0), 1).await.unwrap();
            assert_eq!(facts(&decision), (true, 4, None), "{quota} {seed:?}");
            let decision = charge(&backend, &policy, Some(T0), 4).await.unwrap();
            assert_eq!(facts(&decision), (true, 0, None), "{quota} {seed:?}");
            assert!(server.command(&["PTTL", &key]).await.integer() > Some(0));
        }
    }
}

#[tokio::test]
async fn b62_resp2_and_resp3_answer_the_same() {
    let url = shared_redis().await.url();
    let mut answers = Vec::new();
    for query in ["", "?protocol=resp3"] {
        let backend = backend(format!("{url}{query}")).await;
        let mut all = Vec::new();
        for quota in [
            "5/15m",
            "5/7s",
            "5/15m sliding_window",
            "5/15m fixed_window",
            "5/15m sliding_log",
            "5/15m, 7/1h",
        ] {
            let policy = policy(quota);
            let key = Key::from("k");
            let subject = Subject::new(&policy, &key).at(T0);
            let absent = backend.peek(subject, Cost::ONE).await.unwrap();
            assert_eq!(absent.remaining(), Some(5));
            all.push(absent);
            for _ in 0..6 {
                all.push(backend.acquire(subject, Cost::ONE).await.unwrap());
            }
            assert_eq!(
                all.last().map(tollgate_core::Decision::allowed),
                Some(false)
            );
            backend.reset(subject).await.unwrap();
            let after = backend.peek(subject, Cost::ONE).await.unwrap();
            assert_eq!((after.allowed(), after.remaining()), (true, Some(5)));
            all.push(after);
        }
        backend.ping().await.unwrap();
        answers.push(all);
    }
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test]
async fn s9_a_script_reads_and_writes_in_one_call() {
    // Two clients at once, and every unit is given once.
    let url = shared_redis().await.url();
    let (one, two) = (backend(url).await, backend(url).await);
    for quota in [
        "100/h",
        "101/h",
        "100/h sliding_window",
        "100/h fixed_window",
        "100/h sliding_log",
    ] {
        let policy = policy(quota);
        let calls =
            (0..400).map(|i| charge(if i % 2 == 0 { &one } else { &two }, &policy, Some(T0), 1));
        let admitted = join_all(calls)
            .await
            .into_iter()
            .filter(|d| d.as_ref().unwrap().allowed());
        assert_eq!(admitted.count() as u64, policy.capacity(), "{quota}");
    }
}

#[tokio::test]
async fn s10_the_clock_is_the_servers() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    for quota in [
        "5/15m",
        "5/7s",
        "5/15m sliding_window",
        "5/15m fixed_window",
        "5/15m sliding_log",
        "5/15m, 7/1h",
    ] {
        let policy = policy(quota);
        let decision = charge(&backend, &policy, None, 1).await.unwrap();
        assert!(decision.allowed() && decision.reset_after().unwrap() > Duration::ZERO);
    }
    let info = server
        .command(&["INFO", "commandstats"])
        .await
        .text()
        .unwrap();
    assert!(
        info.contains("cmdstat_time:calls=6,"),
        "one TIME a decision: {info}"
    );
}

#[tokio::test]
async fn s66_s67_s68_s69_the_records_are_under_the_documented_keys() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await.with_prefix("shop");
    let policy = tollgate_core::Policy::new("log in", super::quotas("5/15m")).unwrap();
    let secret = Key::from("sk_live_abc");
    backend
        .acquire(Subject::new(&policy, &secret), Cost::ONE)
        .await
        .unwrap();
    let keys = server.keys("*").await;
    assert_eq!(keys, [format!("shop:v1:log%20in:{}", secret.digest())]);
    assert!(!keys[0].contains("sk_live"));
}
