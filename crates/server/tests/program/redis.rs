//! A real Redis, and what becomes of the gateway without it.

use tokio::runtime::Runtime;
use tollgate_testkit::{RedisServer, Reply};

use crate::client::{Connection, get};
use crate::process::{Gateway, eventually, run, run_with_input, text};
use crate::replay::trace;

/// A server, and the runtime it is talked to in.
pub(crate) struct Redis {
    server: RedisServer,
    runtime: Runtime,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(RedisServer::builder().password("s3cr3t").start());
        Self { server, runtime }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    fn command(&self, words: &[&str]) -> Reply {
        self.runtime.block_on(self.server.command(words))
    }

    fn restart(&mut self) {
        self.runtime.block_on(self.server.restart());
    }
}

fn status(gateway: &Gateway) -> u16 {
    get(gateway.address, "/").status
}

#[test]
fn s62_s72_gateways_share_one_quota_and_say_how_the_store_is() {
    let redis = Redis::start();
    let arguments = ["--backend", &redis.url(), "--quota", "3/h fixed_window"];
    let [a, b] = [Gateway::start(&arguments), Gateway::start(&arguments)];
    assert_eq!(
        [status(&a), status(&b), status(&a), status(&b), status(&a)],
        [200, 200, 200, 429, 429]
    );
    let health = get(a.address, "/health");
    assert_eq!(health.text(), r#"{"status":"ok","redis":"ok"}"#, "s62");
}

/// The names of all keys in the store.
fn keys(redis: &Redis) -> Vec<String> {
    let Reply::Array(keys) = redis.command(&["KEYS", "*"]) else {
        panic!("KEYS answers with a list")
    };
    keys.iter()
        .map(|key| match key {
            Reply::Bulk(key) => text(key).to_owned(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn s68_s69_keys_name_the_rule_and_the_type_and_hold_a_digest_of_the_value() {
    let redis = Redis::start();
    let url = redis.url();
    // printf %s 127.0.0.1 | sha256sum
    let plain = "12ca17b49af2289436f303e0166030a21e525d266e209267433801a8fd4071a0";
    for (prefix, quota, name) in [
        (None, "5/h", "rate-limit:v1:token_bucket"),
        (Some("edge"), "5/s, 9/h sliding_log", "edge:v1:multi"),
    ] {
        let mut arguments = vec!["--backend", &*url, "--quota", quota];
        arguments.extend(prefix.iter().flat_map(|prefix| ["--prefix", prefix]));
        let gateway = Gateway::start(&arguments);
        assert_eq!(status(&gateway), 200);
        let expected = format!("{name}:default:ip_address:{plain}");
        assert!(keys(&redis).contains(&expected), "{:?}", keys(&redis));
    }
    assert_eq!(keys(&redis).len(), 2, "one client of two limits");
}

#[test]
fn a_wrong_password_always_refuses_to_start() {
    let redis = Redis::start();
    let url = redis.url().replace("s3cr3t", "wr0ng");
    assert_ne!(url, redis.url());
    for require in ["true", "false"] {
        let output = run(&[
            "serve",
            "--backend",
            &url,
            "--require-backend-at-start",
            require,
        ]);
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(
            message.contains("auth") && !message.contains("wr0ng"),
            "{message}"
        );
    }
}

#[test]
fn b33_a_negative_cost_changes_nothing_in_the_store() {
    let redis = Redis::start();
    let url = redis.url();
    let check = |more: &[&str]| {
        let mut all = vec!["check", "--quota", "5/h fixed_window", "--key", "k"];
        all.extend(["--backend", &url]);
        all.extend(more);
        run(&all)
    };
    let answer = |output: &std::process::Output| -> serde_json::Value {
        serde_json::from_str(text(&output.stdout)).unwrap()
    };
    let used_up = check(&["--cost", "5"]);
    assert_eq!(used_up.status.code(), Some(0));
    assert_eq!(answer(&used_up)["remaining"], 0);
    let scripts = redis.command(&["DBSIZE"]);
    for _ in 0..3 {
        let refused = check(&["--cost", "-1"]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(refused.stdout.is_empty(), "{}", text(&refused.stdout));
        assert!(text(&refused.stderr).contains("--cost"));
        let after = check(&[]);
        assert_eq!(after.status.code(), Some(1), "still refused");
        assert_eq!(answer(&after)["remaining"], 0);
    }
    assert_eq!(redis.command(&["DBSIZE"]), scripts);
}

#[test]
fn b61_an_eviction_policy_that_drops_counters_is_one_line_in_the_log() {
    for (eviction, lines) in [("allkeys-lru", 1), ("volatile-ttl", 0), ("noeviction", 0)] {
        let redis = Redis::start();
        redis.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
        redis.command(&["CONFIG", "SET", "maxmemory-policy", eviction]);
        let gateway = Gateway::start(&["--backend", &redis.url(), "--quota", "1000/h"]);
        for _ in 0..3 {
            assert_eq!(status(&gateway), 200);
        }
        // What it logs at its start is there before what it logs at its end.
        gateway.signal("TERM");
        let mut gateway = gateway;
        gateway.ended();
        eventually("the log is whole", || gateway.log().contains("stopped"));
        let log = gateway.log();
        let warnings: Vec<_> = log
            .lines()
            .filter(|line| line.contains("maxmemory-policy"))
            .collect();
        assert_eq!(warnings.len(), lines, "{eviction}: {log}");
        assert!(warnings.iter().all(|line| line.contains(eviction)));
    }
}

/// A server that says that it is Redis 4, for which nobody has a machine any more.
fn redis_4() -> std::net::SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut bytes, mut buffer) = (Vec::new(), [0; 1024]);
            'connection: while let Ok(length @ 1..) = stream.read(&mut buffer) {
                bytes.extend_from_slice(&buffer[..length]);
                while let Some((command, length)) = Reply::parse(&bytes) {
                    bytes.drain(..length);
                    let info = "# Server\r\nredis_version:4.0.14\r\n";
                    let reply = match command {
                        Reply::Array(words) if words[0].text().as_deref() == Some("INFO") => {
                            format!("${}\r\n{info}\r\n", info.len())
                        }
                        _ => "+OK\r\n".into(),
                    };
                    if stream.write_all(reply.as_bytes()).is_err() {
                        break 'connection;
                    }
                }
            }
        }
    });
    address
}

#[test]
fn b22_b70_an_unsupported_version_always_refuses_to_start() {
    let url = format!("redis://{}", redis_4());
    for require in ["true", "false"] {
        let output = run(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--backend",
            &url,
            "--require-backend-at-start",
            require,
        ]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(output.stdout.is_empty(), "it never listened");
        assert!(
            message.contains("unsupported") && message.contains("4.0.14"),
            "{message}"
        );
    }
}

/// What clients choose names nothing that is kept: neither a record in the store nor memory here.
#[test]
fn b89_nothing_that_a_client_sends_is_kept() {
    let redis = Redis::start();
    let gateway = Gateway::start(&[
        "--backend",
        &redis.url(),
        "--quota",
        "1000000/h fixed_window",
        "--timeout",
        "20s",
    ]);
    let mut connection = Connection::new(gateway.address);
    let long = "v".repeat(1_000);
    let mut send = |numbers: std::ops::Range<u32>| {
        for n in numbers {
            connection.send(format!(
                "AAAA{n} /p{n}/{long}?q={n} HTTP/1.1\r\nHost: h{n}.example\r\n\
                 X-Request-Id: id-{n}\r\nX-User: {n}{long}\r\nX-Name-{n}: {long}\r\n\
                 User-Agent: agent-{n}\r\nX-Forwarded-For: 192.0.2.{}\r\n\r\n",
                n % 256
            ));
            let answer = connection.answer(true);
            assert_eq!(answer.status, 200, "{n}: {}", answer.text());
        }
    };
    // What the first requests need, buffers among it.
    send(0..2_000);
    #[cfg(target_os = "linux")]
    let before = gateway.resident();
    send(2_000..12_000);
    // One client, one record.
    assert_eq!(redis.command(&["DBSIZE"]), Reply::Integer(1));
    let answer = get(gateway.address, "/");
    let left: u64 = answer
        .header("x-ratelimit-remaining")
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(left, 1_000_000 - 12_001);
    // Each request has more than 3 KB that differ. A tenth of them would be 3 MB.
    #[cfg(target_os = "linux")]
    assert!(
        gateway.resident() < before + 3_000,
        "from {before} to {} KiB",
        gateway.resident()
    );
}

#[test]
fn b70_a_backend_that_comes_late_is_used() {
    let mut redis = Redis::start();
    redis.server.kill();
    let gateway = Gateway::start(&[
        "--backend",
        &redis.url(),
        "--quota",
        "2/h",
        "--require-backend-at-start",
        "false",
    ]);
    for _ in 0..5 {
        assert_eq!(status(&gateway), 200);
    }
    assert_eq!(get(gateway.address, "/health").json()["redis"], "down");
    redis.restart();
    eventually("limits are enforced", || status(&gateway) == 429);
    assert_eq!(
        get(gateway.address, "/ready").json()["checks"]["ratelimit"]["detail"],
        "enforcing"
    );
}

#[test]
fn b60_out_of_memory_is_200_when_open_and_503_when_closed() {
    for (policy, status, detail) in [
        ("open", 200, "failing open"),
        ("closed", 503, "failing closed"),
    ] {
        let redis = Redis::start();
        redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        redis.command(&["SETRANGE", "filling", "10000000", "x"]);
        redis.command(&["CONFIG", "SET", "maxmemory", "6mb"]);
        let gateway = Gateway::start(&[
            "--backend",
            &redis.url(),
            "--quota",
            "50/h",
            "--on-failure",
            policy,
        ]);
        for _ in 0..20 {
            let answer = get(gateway.address, "/");
            assert_eq!(answer.status, status);
            let wait = answer.header("retry-after");
            let wait: Option<u64> = wait.map(|wait| wait.parse().unwrap());
            assert_eq!(wait.is_some(), status == 503);
            assert!(wait.is_none_or(|wait| wait >= 1));
            assert_eq!(answer.header("ratelimit"), None, "nobody counted");
        }
        let ready = get(gateway.address, "/ready").json();
        let told = ready["checks"]["ratelimit"]["detail"].as_str().unwrap();
        assert!(told.starts_with(detail), "{told}");
        eventually("the reason is logged", || {
            gateway.log().contains("out_of_memory")
        });

        redis.command(&["DEL", "filling"]);
        let mut first = None;
        eventually("it counts", || {
            first = get(gateway.address, "/")
                .header("ratelimit")
                .map(str::to_owned);
            first.is_some()
        });
        let first = first.unwrap();
        assert!(first.contains(";r=49;"), "{first}");
    }
}

#[test]
fn s27_s28_an_outage_is_told_without_any_traffic_and_so_is_its_end() {
    let mut redis = Redis::start();
    let gateway = Gateway::start(&["--backend", &redis.url(), "--on-failure", "closed"]);
    assert_eq!(status(&gateway), 200);
    redis.server.kill();
    eventually("/ready is degraded", || {
        let ready = get(gateway.address, "/ready");
        ready.status == 200 && ready.json()["status"] == "degraded"
    });
    assert_eq!(status(&gateway), 503);
    redis.restart();
    eventually("/ready is ok", || {
        get(gateway.address, "/ready").json()["status"] == "ok"
    });
    assert_eq!(status(&gateway), 200);
    assert!(!gateway.log().contains("s3cr3t"), "b71");
}

#[test]
fn traces_run_on_redis_each_from_nothing() {
    let redis = Redis::start();
    let arguments = ["replay", "--check", "--backend", &redis.url(), "-"];
    for _ in 0..2 {
        let output = run_with_input(&arguments, &trace("same", 0).repeat(100));
        assert_eq!(
            text(&output.stdout),
            "100 traces, 300 steps, 0 differences\n"
        );
        assert_eq!(output.status.code(), Some(0));
    }
}

/// The gateway forgets a refusal within a second, so that a reset beside it helps.
#[test]
fn a_reset_in_the_store_unblocks_a_client_of_a_running_gateway() {
    let redis = Redis::start();
    let reset = |name: &str| {
        for key in keys(&redis) {
            if key.starts_with(&format!("{name}:")) {
                redis.command(&["DEL", &key]);
            }
        }
    };
    let gateway = |name: &str, more: &[&str]| {
        let url = redis.url();
        let mut all = vec!["--quota", "1/h", "--backend", &url, "--prefix", name];
        all.extend(more);
        let gateway = Gateway::start(&all);
        assert_eq!([200, 429, 429].map(|_| status(&gateway)), [200, 429, 429]);
        gateway
    };
    // A second by default.
    let by_default = gateway("default", &[]);
    reset("default");
    eventually("the client is admitted", || status(&by_default) == 200);
    // Never remembered: at once.
    let never = gateway("never", &["--remember-refusals", "0"]);
    reset("never");
    assert_eq!(status(&never), 200);
    // For long: the reset is not noticed.
    let long = gateway("long", &["--remember-refusals", "1h"]);
    reset("long");
    assert_eq!([(); 3].map(|()| status(&long)), [429; 3]);
}

/// It was decided by the store, for a moment that has not come yet.
#[test]
fn a_remembered_refusal_holds_while_the_store_is_down() {
    let mut redis = Redis::start();
    let gateway = Gateway::start(&[
        "--backend",
        &redis.url(),
        "--quota",
        "1/h",
        "--remember-refusals",
        "1h",
    ]);
    assert_eq!([(); 2].map(|()| status(&gateway)), [200, 429]);
    redis.server.kill();
    eventually("/ready is degraded", || {
        get(gateway.address, "/ready").json()["status"] == "degraded"
    });
    assert_eq!(status(&gateway), 429);
    // Restarted without its counters.
    redis.restart();
    eventually("/ready is ok", || {
        get(gateway.address, "/ready").json()["status"] == "ok"
    });
    assert_eq!(status(&gateway), 429);
}

#[test]
fn s34_redis_url_names_the_store_and_one_client_serves_all() {
    let redis = Redis::start();
    // With the number of a database, too.
    let url = format!("{}/0", redis.url());
    let gateway = Gateway::start_with(&["--quota", "100/h"], &[("REDIS_URL", &url)]);
    for _ in 0..20 {
        assert_eq!(status(&gateway), 200);
    }
    assert_eq!(get(gateway.address, "/rules").status, 200);
    let Reply::Bulk(list) = redis.command(&["CLIENT", "LIST"]) else {
        panic!("CLIENT LIST answers with a text")
    };
    let others = text(&list)
        .lines()
        .filter(|line| !line.contains("cmd=client") && line.contains(" sub=0 "));
    // Who listens for changes of rules has to have a connection of his own.
    assert_eq!(others.count(), 1, "{}", text(&list));
}
