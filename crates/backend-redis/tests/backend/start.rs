//! What a start refuses, what it warns of, and starting without the store.

use std::time::Duration;

use tollgate_core::{CounterBackend, ErrorKind};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{FaultProxy, RedisServer, Rule, wait_until};

use super::{PATIENCE, backend, charge, policy, stub};

#[tokio::test]
async fn b70_a_wrong_password_is_refused_and_never_printed() {
    let server = RedisServer::builder().password("right").start().await;
    let address = server.address();
    for (login, query) in [
        ("", ""),
        (":wr0ng@", ""),
        ("svc:wr0ng@", ""),
        ("", "?protocol=resp3"),
        (":wr0ng@", "?protocol=resp3"),
    ] {
        let url = format!("redis://{login}{address}{query}");
        for lenient in [false, true] {
            let builder = RedisBackend::builder(&url);
            let outcome = if lenient {
                builder.connect_or_degrade().await
            } else {
                builder.connect().await
            };
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Auth, "{login}{query} {error}");
            assert!(!error.is_transient());
            assert!(!format!("{error} {error:?}").contains("wr0ng"));
        }
    }
    let right = backend(server.url()).await;
    assert!(
        charge(&right, &policy("1/s"), None, 1)
            .await
            .unwrap()
            .allowed()
    );
    assert!(!format!("{right} {right:?}").contains("right@"));
}

#[tokio::test]
async fn b71_a_refused_connection_prints_no_password() {
    let port = FaultProxy::start("127.0.0.1:1".parse().unwrap()).await;
    port.refuse().await;
    let url = format!("redis://svc:s3cr3t@{}/0", port.address());
    let builder = RedisBackend::builder(&url);
    assert!(!format!("{builder:?}").contains("s3cr3t"));
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        !format!("{error} {error:?}").contains("s3cr3t"),
        "{error:?}"
    );
    let degraded = RedisBackend::builder(&url)
        .connect_or_degrade()
        .await
        .unwrap();
    let error = charge(&degraded, &policy("1/s"), None, 1)
        .await
        .unwrap_err();
    assert!(!format!("{degraded} {degraded:?} {error} {error:?}").contains("s3cr3t"));
}

#[tokio::test]
async fn b71_what_cannot_be_reached_is_named_and_the_password_is_not() {
    let server = RedisServer::start().await;
    let proxy = async || FaultProxy::start(server.address()).await;
    // Nobody listens; who listens says nothing; breaks off; is no Redis.
    let (closed, silent, curt, other) =
        (proxy().await, proxy().await, proxy().await, proxy().await);
    closed.refuse().await;
    silent.stay_silent();
    curt.on(Rule::any().cut().always());
    other.on(Rule::any()
        .answer("HTTP/1.1 400 Bad Request\r\n\r\n")
        .always());
    for (what, proxy) in [
        ("closed", &closed),
        ("silent", &silent),
        ("curt", &curt),
        ("other", &other),
    ] {
        let address = proxy.address().to_string();
        let builder = || {
            RedisBackend::builder(format!("redis://svc:s3cr3t@{address}"))
                .timeout(Duration::from_millis(100))
                .connect_timeout(Duration::from_millis(300))
        };
        let start = builder().connect().await.unwrap_err();
        let degraded = builder().connect_or_degrade().await;
        let mut errors = vec![start];
        match degraded {
            Ok(backend) => {
                // Now, in the pause after a failure, and at the next attempt.
                for _ in 0..5 {
                    let call = charge(&backend, &policy("1/s"), None, 1).await;
                    errors.push(call.unwrap_err());
                }
            }
            Err(error) => errors.push(error),
        }
        for error in errors {
            let text = format!("{error} {error:?}");
            assert!(error.to_string().contains(&address), "{what}: {error}");
            assert!(!text.contains("s3cr3t"), "{what}: {text}");
        }
    }
}

#[tokio::test]
async fn b22_a_server_that_is_too_old_is_refused() {
    let refused = "-ERR Write commands not allowed after non deterministic commands\r\n";
    let old = stub::start("# Server\r\nredis_version:4.0.14\r\n", refused).await;
    for lenient in [false, true] {
        let builder = RedisBackend::builder(format!("redis://{old}"));
        let outcome = if lenient {
            builder.connect_or_degrade().await
        } else {
            builder.connect().await
        };
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("4.0.14"), "{error}");
    }
    // One that hides its version says so when it is used; an old one wraps what a script meets.
    let wrapped = "-ERR Error running script (call to f_0a1b2c3d): @user_script:7: @user_script: 7: \
                   Write commands not allowed after non deterministic commands. Call \
                   redis.replicate_commands() at the start of your script\r\n";
    for reply in [refused, wrapped] {
        let hidden = stub::start("# Server\r\n", reply).await;
        let backend = backend(format!("redis://{hidden}")).await;
        for quota in ["1/s", "7/5s", "1/s sliding_log", "1/s, 9/m fixed_window"] {
            let error = charge(&backend, &policy(quota), None, 1).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{quota}: {error}");
            assert!(!error.may_have_charged() && !error.is_transient());
        }
    }
}

#[tokio::test]
async fn b61_an_eviction_policy_that_drops_counters_is_warned_of() {
    for (eviction, warned) in [
        ("allkeys-lru", true),
        ("allkeys-random", true),
        ("volatile-ttl", false),
        ("noeviction", false),
    ] {
        // INFO tells, so that CONFIG, which managed servers forbid, need not be asked.
        let server = RedisServer::builder()
            .set("maxmemory", "100mb")
            .set("maxmemory-policy", eviction)
            .start()
            .await;
        let proxy = FaultProxy::start(server.address()).await;
        let backend = backend(proxy.url()).await;
        let policy = policy("1000000/s");
        // Once, however often it connects.
        for connections in 1..=3 {
            charge(&backend, &policy, None, 1).await.unwrap();
            assert_eq!(proxy.connections(), connections);
            let warnings = backend.warnings();
            assert_eq!(
                warnings.len(),
                usize::from(warned),
                "{eviction}: {warnings:?}"
            );
            assert!(warnings.iter().all(|warning| warning.contains(eviction)));
            proxy.kill_connections();
            wait_until("we know", PATIENCE, async || {
                format!("{backend:?}").contains("up: false")
            })
            .await;
        }
    }
}

#[tokio::test]
async fn b61_a_server_without_a_bound_drops_nothing_and_is_not_warned_of() {
    let server = RedisServer::builder()
        .set("maxmemory-policy", "allkeys-lru")
        .start()
        .await;
    let backend = backend(server.url()).await;
    assert!(backend.warnings().is_empty(), "{:?}", backend.warnings());
}

#[tokio::test]
async fn b61_a_server_that_may_not_be_asked_is_used_all_the_same() {
    let server = RedisServer::builder()
        .user("limiter", "on >pw ~* &* +@all -info -config")
        .start()
        .await;
    let backend = backend(format!("redis://limiter:pw@{}", server.address())).await;
    let [warning] = &backend.warnings()[..] else {
        panic!("one warning: {:?}", backend.warnings())
    };
    assert!(warning.contains("could not tell"), "{warning}");
    assert!(
        charge(&backend, &policy("1/s"), None, 1)
            .await
            .unwrap()
            .allowed()
    );
}

#[tokio::test]
async fn b70_a_store_that_comes_up_later_is_checked_then_and_used() {
    let mut server = RedisServer::builder().password("right").start().await;
    let (good, wrong) = (server.url(), format!("redis://:wr0ng@{}", server.address()));
    server.kill();
    let start = async |url: &str| {
        RedisBackend::builder(url)
            .timeout(Duration::from_millis(200))
            .connect_or_degrade()
            .await
            .unwrap()
    };
    let (good, wrong) = (start(&good).await, start(&wrong).await);
    let policy = policy("100000/s");
    for backend in [&good, &wrong] {
        let error = charge(backend, &policy, None, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(backend.ping().await.is_err());
    }
    server.restart().await;
    wait_until("it is used", PATIENCE, async || {
        charge(&good, &policy, None, 1).await.is_ok()
    })
    .await;
    wait_until("it is refused", PATIENCE, async || {
        charge(&wrong, &policy, None, 1).await.unwrap_err().kind() == ErrorKind::Auth
    })
    .await;
    good.ping().await.unwrap();
}

#[tokio::test]
async fn a_password_that_changes_is_noticed() {
    let server = RedisServer::builder().password("right").start().await;
    let backend = backend(server.url()).await;
    let policy = policy("100000/s");
    charge(&backend, &policy, None, 1).await.unwrap();
    server
        .command(&["CONFIG", "SET", "requirepass", "other"])
        .await;
    // Those who are logged in stay so; a new connection is refused.
    let mut client = tollgate_testkit::RedisClient::connect(server.address(), Some("other"))
        .await
        .unwrap();
    client
        .call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await
        .unwrap();
    wait_until("it is refused", PATIENCE, async || {
        charge(&backend, &policy, None, 1)
            .await
            .is_err_and(|error| error.kind() == ErrorKind::Auth)
    })
    .await;
}
