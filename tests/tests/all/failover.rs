//! Redis that restarts, fails over, fills up, or speaks otherwise (`redis-failover`).

use crate::support::{PATIENT, Store, T0, admitted, fresh, ms, seconds};
use tokio::time::Instant;
use tollgate::redis::key_slot;
use tollgate::{
    Breaker, Decision, ErrorKind, FailurePolicy, Key, Limiter, ManualClock, Origin, Policy, Quota,
    RateLimit, storage_key,
};
use tollgate_testkit::{FaultProxy, RedisServer, Reply, Rule, wait_until};

async fn patient(url: &str) -> Limiter {
    Limiter::builder(crate::support::connect(url).await)
        .timeout(PATIENT)
        .clock(ManualClock::new(T0))
        .build()
}

fn ten() -> Quota {
    "10/60s".parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b56_flushed_scripts_cost_a_reload_and_no_decision() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let limiter = patient(&proxy.url()).await;
    let limit = limiter.policy("b56", [ten()]).unwrap();
    for left in [9, 8, 7] {
        admitted(&limit.acquire("k").await.unwrap(), left);
    }
    let first = loads(&proxy);
    server.command(&["SCRIPT", "FLUSH"]).await;
    for left in [6, 5, 4] {
        admitted(&limit.acquire("k").await.unwrap(), left);
    }

    assert_eq!(loads(&proxy), first + 1, "one reload");

    // 100 in flight on the one connection, and the scripts go when half of them have been run.
    let asked = proxy.commands_named("EVALSHA");
    let check = |i: u64| {
        let limit = limit.clone();
        tokio::spawn(async move { limit.acquire(format!("k{i}")).await.unwrap() })
    };
    proxy.hold_replies();
    let mut tasks: Vec<_> = (0..50).map(check).collect();
    proxy.wait_for("EVALSHA", asked + 50).await;
    server.command(&["SCRIPT", "FLUSH"]).await;
    tasks.extend((50..100).map(check));
    proxy.wait_for("EVALSHA", asked + 100).await;
    assert!(tasks.iter().all(|task| !task.is_finished()));
    proxy.restore().await;
    for task in tasks {
        admitted(&task.await.unwrap(), 9);
    }
    assert_eq!(loads(&proxy), first + 2, "one reload for all of them");
    let again = proxy.commands_named("EVALSHA") - asked - 100;
    assert!((50..=100).contains(&again), "{again} were sent again");
    // Who connects says its name once.
    assert_eq!(proxy.commands_named("CLIENT"), 1, "on one connection");
    assert_eq!(limiter.health().unenforced, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b56_after_a_restart_it_goes_on_from_what_was_kept() {
    for (kept, left) in [("no", 9), ("yes", 6)] {
        let mut server = RedisServer::builder()
            .set("appendonly", kept)
            .set("appendfsync", "always")
            .start()
            .await;
        let limiter = patient(&server.url()).await;
        let limit = limiter.policy("b56", [ten()]).unwrap();
        for left in [9, 8, 7] {
            admitted(&limit.acquire("k").await.unwrap(), left);
        }
        server.restart().await;
        let restarted = Instant::now();
        let first = first_counted(&limit, "k").await;
        let took = restarted.elapsed();
        assert!(took < seconds(1), "kept: {kept}: only after {took:?}");
        admitted(&first, left);
        admitted(&limit.acquire("k").await.unwrap(), left - 1);
    }
}

/// The first decision that the store makes again.
async fn first_counted(limit: &RateLimit, key: &str) -> Decision {
    let mut first = None;
    let counted = async || {
        let decision = limit.acquire(key).await.unwrap();
        let shared = decision.origin() == Origin::Shared;
        first = shared.then_some(decision);
        shared
    };
    wait_until("counting again", seconds(5), counted).await;
    first.unwrap()
}

fn loads(proxy: &FaultProxy) -> u64 {
    proxy.commands_named("SCRIPT") + proxy.commands_named("EVAL")
}

#[test]
fn b58_one_record_has_one_key_and_no_client_chooses_its_slot() {
    let policy = Policy::new("a{b}c", [ten(), "1000/h".parse().unwrap()]).unwrap();
    let slot = |key: Key<'_>| key_slot(&storage_key("tollgate", &policy, &key));
    for key in ["a", "{", "}", "{}", "a{b}c", "}{", "{x}{y}"] {
        let name = storage_key("tollgate", &policy, &Key::from(key));
        assert!(!name.contains(['{', '}', ' ']), "{name}");
        // Of an identity in braces: not the slot of what is in them.
        assert_ne!(
            slot(Key::from(format!("{{{key}}}1"))),
            slot(Key::from(format!("{{{key}}}2")))
        );
    }
    let slots: std::collections::HashSet<_> = (0..1_000)
        .map(|i| slot(Key::from(format!("{{same}}{i}"))))
        .collect();
    assert!(slots.len() > 900, "{} slots", slots.len());
}

#[tokio::test]
async fn b58_b60_replies_that_refuse_are_failures_that_are_counted_and_named() {
    for (reply, reason) in [
        (
            "-CROSSSLOT Keys in request don't hash to the same slot",
            ErrorKind::Other,
        ),
        ("-MISCONF Errors writing to the disk", ErrorKind::ReadOnly),
        (
            "-LOADING Redis is loading the dataset in memory",
            ErrorKind::NotReady,
        ),
        (
            "-OOM command not allowed when used memory > 'maxmemory'.",
            ErrorKind::OutOfMemory,
        ),
        (
            "-READONLY You can't write against a read only replica.",
            ErrorKind::ReadOnly,
        ),
        ("-MASTERDOWN Link with MASTER is down", ErrorKind::NotReady),
        ("-BUSY Redis is busy running a script.", ErrorKind::NotReady),
        ("-CLUSTERDOWN The cluster is down", ErrorKind::NotReady),
        ("-NOAUTH Authentication required.", ErrorKind::Auth),
        ("-NOPERM this user has no permissions", ErrorKind::Auth),
    ] {
        let server = RedisServer::start().await;
        let proxy = FaultProxy::start(server.address()).await;
        let limiter = Limiter::builder(tollgate::connect(&proxy.url()).await.unwrap())
            .timeout(seconds(2))
            .clock(ManualClock::new(T0))
            .build();
        let limit = limiter.policy("b60", [ten()]).unwrap();
        let answer = format!("{reply}\r\n");
        proxy.on(Rule::command("EVALSHA").always().answer(answer.clone()));
        proxy.on(Rule::command("EVAL").always().answer(answer));
        let decision = limit.acquire("k").await.unwrap();
        assert_eq!(decision.origin(), Origin::FailOpen, "{reply}");
        assert_eq!(
            (decision.allowed(), decision.remaining()),
            (true, None),
            "{reply}"
        );
        let health = limiter.health();
        assert_eq!((health.enforcing, health.unenforced), (false, 1), "{reply}");
        assert_eq!(health.reason, Some(reason), "{reply}");
    }
}

/// What keeps a server from counting.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// It is really full, and evicts nothing.
    Memory,
    /// It answers so to every script.
    Replies(&'static str),
}

impl Trouble {
    async fn begin(self, server: &RedisServer, proxy: &FaultProxy) {
        match self {
            Self::Memory => {
                let full = &["SETRANGE", "filling", "10000000", "x"];
                assert_eq!(server.command(full).await, Reply::Integer(10_000_001));
                server.command(&["CONFIG", "SET", "maxmemory", "6mb"]).await;
            }
            Self::Replies(reply) => {
                let answer = format!("-{reply}\r\n");
                proxy.on(Rule::command("EVALSHA").always().answer(answer));
            }
        }
    }

    async fn end(self, server: &RedisServer, proxy: &FaultProxy) {
        match self {
            Self::Memory => {
                assert_eq!(server.command(&["DEL", "filling"]).await, Reply::Integer(1));
            }
            Self::Replies(_) => proxy.restore().await,
        }
    }
}

#[tokio::test]
async fn b60_a_server_in_trouble_is_answered_for_by_the_policy_and_leaves_nothing_half_written() {
    let troubles = [
        (Trouble::Memory, ErrorKind::OutOfMemory),
        (
            Trouble::Replies("MISCONF Errors writing to the disk"),
            ErrorKind::ReadOnly,
        ),
        (
            Trouble::Replies("LOADING Redis is loading the dataset in memory"),
            ErrorKind::NotReady,
        ),
    ];
    // One breaker that opens and spares the server, and one that lets every check meet it.
    let quick = Breaker {
        cooldown: ms(100),
        ..Breaker::default()
    };
    let never = Breaker {
        failures: u32::MAX,
        ratio: None,
        ..quick
    };
    for (trouble, reason) in troubles {
        for policy in [FailurePolicy::Open, FailurePolicy::Closed] {
            for breaker in [quick, never] {
                let case = format!("{trouble:?}, {policy}");
                let server = RedisServer::builder()
                    .set("maxmemory-policy", "noeviction")
                    .start()
                    .await;
                let proxy = FaultProxy::start(server.address()).await;
                let limiter = Limiter::builder(crate::support::connect(&proxy.url()).await)
                    .timeout(seconds(2))
                    .on_failure(policy)
                    .breaker(breaker)
                    .clock(ManualClock::new(T0))
                    .build();
                let limit = limiter.policy("b60", [ten()]).unwrap();
                admitted(&limit.acquire("before").await.unwrap(), 9);

                trouble.begin(&server, &proxy).await;
                for i in 0..20 {
                    let decision = limit.acquire(format!("k{i}")).await.unwrap();
                    assert_eq!(decision.remaining(), None, "{case}");
                    let (allowed, origin) = match policy {
                        FailurePolicy::Open => (true, Origin::FailOpen),
                        _ => (false, Origin::FailClosed),
                    };
                    assert_eq!((decision.allowed(), decision.origin()), (allowed, origin));
                    let wait = decision.retry_after();
                    assert_eq!(wait.is_none(), allowed, "{case}: {wait:?}");
                    assert!(wait.is_none_or(|wait| wait >= seconds(1)), "{case}");
                }
                let health = limiter.health();
                assert_eq!(
                    (health.enforcing, health.unenforced, health.reason),
                    (false, 20, Some(reason)),
                    "{case}"
                );

                trouble.end(&server, &proxy).await;
                for i in 0..20 {
                    admitted(&first_counted(&limit, &format!("k{i}")).await, 9);
                }
                admitted(&limit.acquire("before").await.unwrap(), 8);
                assert!(limiter.health().enforcing);
            }
        }
    }
}

#[tokio::test]
async fn b61_an_eviction_policy_that_drops_counters_is_one_warning() {
    for (policy, warned) in [
        ("allkeys-lru", true),
        ("volatile-ttl", false),
        ("noeviction", false),
    ] {
        let builder = RedisServer::builder().set("maxmemory", "100mb");
        let server = builder.set("maxmemory-policy", policy).start().await;
        let limiter = patient(&server.url()).await;
        let warnings = limiter.health().warnings;
        assert_eq!(!warnings.is_empty(), warned, "{policy}: {warnings:?}");
        assert!(warnings.len() <= 1, "{warnings:?}");
        assert!(
            warnings.iter().all(|text| text.contains(policy)),
            "{warnings:?}"
        );
    }
    // Where the setting may not be read, that is said, and work goes on.
    let server = RedisServer::builder()
        .user("svc", "on >pw ~* &* +@all -config -info")
        .start()
        .await;
    let url = server.url().replace("redis://", "redis://svc:pw@");
    let limiter = patient(&url).await;
    let [warning] = &limiter.health().warnings[..] else {
        panic!("one warning: {:?}", limiter.health())
    };
    assert!(warning.contains("could not tell"), "{warning}");
    let limit = limiter.policy("b61", [ten()]).unwrap();
    admitted(&limit.acquire("k").await.unwrap(), 9);
}

#[tokio::test]
async fn b62_the_answers_are_the_same_over_resp2_and_resp3() {
    let server = RedisServer::start().await;
    let mut all = Vec::new();
    for protocol in ["resp2", "resp3"] {
        let url = format!("{}?protocol={protocol}", server.url());
        // In virtual time, so that every field is the same.
        let limiter = Store::over(protocol, crate::support::connect(&url).await).limiter;
        let mut answers = Vec::new();
        for quotas in [
            "5/60s",
            "5/60s sliding_window",
            "5/60s fixed_window",
            "5/60s sliding_log",
            "5/60s, 9/h sliding_log",
        ] {
            let quotas = Quota::parse_list(quotas).unwrap();
            let limit = limiter.policy(&fresh("b62"), quotas).unwrap();
            let mut seen = vec![limit.peek("k").await.unwrap()];
            assert_eq!(seen[0].remaining(), Some(5));
            for _ in 0..6 {
                seen.push(limit.acquire("k").await.unwrap());
            }
            assert!(!seen[6].allowed() && seen[6].retry_after().is_some());
            limit.reset("k").await.unwrap();
            let after = limit.peek("k").await.unwrap();
            assert_eq!((after.allowed(), after.remaining()), (true, Some(5)));
            seen.push(after);
            answers.push(seen);
        }
        // It is spoken, and what the server says of itself is understood in it.
        let clients = server.command(&["CLIENT", "LIST"]).await.text().unwrap();
        let spoken = format!(" resp={}", &protocol[4..]);
        assert!(clients.contains(&spoken), "{clients}");
        assert_eq!(limiter.health().warnings, Vec::<String>::new());
        all.push(answers);
    }
    assert_eq!(all[0].len(), 5);
    assert_eq!(all[0], all[1]);
}

#[tokio::test]
async fn b63_a_value_that_is_not_ours_is_replaced() {
    let server = RedisServer::start().await;
    let limiter = patient(&server.url()).await;
    for algorithm in tollgate::Algorithm::ALL {
        let plant: [&[&str]; 5] = [
            &["SET", "KEY", "{json}"],
            &["SET", "KEY", ""],
            &["HSET", "KEY", "tokens", "3"],
            &["RPUSH", "KEY", "a", "b"],
            &["ZADD", "KEY", "1", "a"],
        ];
        for command in plant {
            let quota = format!("5/60s {algorithm}").parse().unwrap();
            let limit = limiter.policy(&fresh("b63"), [quota]).unwrap();
            let key = storage_key("tollgate", limit.policy(), &Key::from("k"));
            assert!(
                key.contains(":v1:"),
                "{key} carries the version of its format"
            );
            let words: Vec<_> = command
                .iter()
                .map(|w| if *w == "KEY" { &key } else { *w })
                .collect();
            let planted = server.command(&words).await;
            assert!(!matches!(planted, Reply::Error(_)), "{planted:?}");
            admitted(&limit.acquire("k").await.unwrap(), 4);
            admitted(&limit.acquire("k").await.unwrap(), 3);
            assert!(
                server.command(&["PTTL", &key]).await.integer().unwrap() > 0,
                "{command:?}"
            );
        }
    }
    assert_eq!(limiter.health().unenforced, 0);
}

#[tokio::test]
async fn s70_scripts_are_run_by_their_digest() {
    let server = RedisServer::start().await;
    let store = Store::over("redis", crate::support::connect(&server.url()).await);
    let limit = store.limit("5/60s");
    for left in (0..5).rev() {
        let decision = limit.acquire("k").await.unwrap();
        admitted(&decision, left);
        assert!(decision.reset_after().is_some());
    }
    assert!(server.calls("evalsha").await >= 5);
    assert!(server.calls("eval").await <= 1);
}
