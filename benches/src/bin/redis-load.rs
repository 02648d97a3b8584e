//! Decisions a second over Redis from one process: ours (also with concurrent charges coalesced), the least that any
//! correct limiter does (one hand-written `EVALSHA` of the smallest exact script), and another
//! library. `limitador` is left out: its Redis storage builds only together with RocksDB.
//!
//! ```text
//! redis-load --url redis://127.0.0.1:6379 [--tasks 1,64,256] [--keys 1,100000] [--seconds 2]
//!            [--rounds 3] [--threads 1] [--only ours,floor]
//! ```
#![expect(
    clippy::unwrap_used,
    reason = "a driver, which measures and fails by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tollgate::Coalesced;
use tollgate_benches::load::{Check, Comparison, Limiter, Ours};
use tollgate_benches::{arg, number};
use tollgate_core::{Policy, Quota, SharedBackend};
use tollgate_redis::RedisBackend;

/// A hand-written loop: the script, its two numbers, a key.
struct Floor {
    connection: MultiplexedConnection,
    sha: String,
}

impl Limiter for Floor {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            let mut connection = self.connection.clone();
            let mut command = redis::cmd("EVALSHA");
            command
                .arg(&self.sha)
                .arg(1)
                .arg(key)
                .arg(10_000_000)
                .arg(3_000_000_000_000_000_u64);
            let room: i64 = command.query_async(&mut connection).await.unwrap();
            room >= 0
        })
    }
}

struct Increment(MultiplexedConnection);

impl Limiter for Increment {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            let mut connection = self.0.clone();
            let _: i64 = redis::cmd("INCR")
                .arg(key)
                .query_async(&mut connection)
                .await
                .unwrap();
            true
        })
    }
}

struct Trypema(
    Arc<trypema::redis::RedisRateLimiterProvider>,
    trypema::RateLimit,
);

impl Limiter for Trypema {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            let key = trypema::redis::RedisKey::try_from(key.to_owned()).unwrap();
            let decision = self.0.absolute().inc(&key, &self.1, 1).await.unwrap();
            matches!(decision, trypema::RateLimitDecision::Allowed)
        })
    }
}

const NAMES: [&str; 7] = [
    "increment",
    "floor",
    "ours",
    "ours-coalesced",
    "ours-window",
    "ours-log",
    "trypema",
];

async fn make(name: &str, url: &str) -> Box<dyn Limiter> {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    // Each charge takes ten seconds to come back, so that keys do not come and go meanwhile.
    let bucket = || {
        "1/10s token_bucket burst=300000000"
            .parse::<Quota>()
            .unwrap()
    };
    let connect = async || {
        let builder = RedisBackend::builder(url).timeout(Duration::from_secs(10));
        builder.connect().await.unwrap()
    };
    let ours = async |quota: Quota| {
        let policy = Policy::new(name, [quota]).unwrap();
        Box::new(Ours(connect().await, policy))
    };
    match name {
        "increment" => Box::new(Increment(connection)),
        "floor" => {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD")
                .arg(include_str!("../../redis/peers/gcra_str_min.lua"));
            let sha = load.query_async(&mut connection).await.unwrap();
            Box::new(Floor { connection, sha })
        }
        "ours" => ours(bucket()).await,
        "ours-coalesced" => {
            let policy = Policy::new(name, [bucket()]).unwrap();
            // As a limiter has it: who waits for another's trip does not carry a call of its own.
            let store = SharedBackend::new(connect().await);
            Box::new(Ours(Coalesced::new(store), policy))
        }
        "ours-window" => ours("1000000000/h sliding_window".parse().unwrap()).await,
        "ours-log" => ours("1000000000/s sliding_log".parse().unwrap()).await,
        "trypema" => {
            let manager = client.get_connection_manager().await.unwrap();
            use trypema::RateLimiterBuilder as _;
            let provider = trypema::redis::RedisRateLimiterProvider::builder(manager)
                .window_size(trypema::WindowSize::minutes_or_panic(1))
                .bucket_size(trypema::BucketSize::milliseconds_or_panic(100))
                .disable_cleanup()
                .build()
                .unwrap();
            Box::new(Trypema(
                provider,
                trypema::RateLimit::per_second_or_panic(1e9),
            ))
        }
        _ => panic!("--only: {name:?} is none of {NAMES:?}"),
    }
}

/// What the server has used, in seconds.
async fn server_seconds(watch: &mut MultiplexedConnection) -> f64 {
    let mut info = redis::cmd("INFO");
    let text: String = info.arg("cpu").query_async(watch).await.unwrap();
    let used = |line: &str| {
        line.strip_prefix("used_cpu_")?
            .split_once(':')?
            .1
            .parse::<f64>()
            .ok()
    };
    // The system's and the user's come first; those of children and threads are part of neither.
    text.lines().filter_map(used).take(2).sum()
}

fn main() {
    let url = arg("url").unwrap_or_else(|| panic!("--url redis://.. is needed"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(number("threads", 1) as usize)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = redis::Client::open(url.as_str()).unwrap();
        let watch = client.get_multiplexed_async_connection().await.unwrap();
        let comparison = Comparison {
            names: &NAMES,
            floor: "floor",
            column: "server cpu us",
            warm: false,
        };
        let make = async |name: &str| make(name, &url).await;
        let server = async || server_seconds(&mut watch.clone()).await * 1e6;
        comparison.run(make, server).await;
    });
}
