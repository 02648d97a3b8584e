//! The stores that every case runs on, in virtual time.

use std::hash::{BuildHasher, RandomState};
use std::thread::ThreadId;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;
use tollgate::{
    CasBackend, Clock, CounterBackend, Decision, Key, Limiter, ManualClock, Quota, RateLimit,
    Refund, SharedBackend, Subject, Timestamp,
};
use tollgate_dynamodb::{Capacity, create_table};
use tollgate_testkit::{LocalDynamo, MapStore, shared_memcached, shared_redis};

/// An edge of every window up to a day.
pub(crate) const T0: Timestamp = Timestamp::from_micros(1_700_006_400_000_000);

/// So long that only a store that hangs meets it.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A name that no other test, run or process uses.
pub(crate) fn fresh(name: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let random = RandomState::new().hash_one((std::process::id(), number));
    format!("{name}-{random:016x}")
}

/// How long something took, without the time in which its thread was ready to run and the machine
/// ran other programs. So a bound of a few milliseconds holds on a busy machine too, and is met only
/// by who waits for nothing.
pub(crate) struct Stopwatch {
    started: Instant,
    thread: ThreadId,
    queued: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        let (thread, queued) = queued();
        Self {
            started: Instant::now(),
            thread,
            queued,
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        let elapsed = self.started.elapsed();
        let (thread, queued) = queued();
        // A task that went on on another thread has waited for something.
        if thread != self.thread {
            return elapsed;
        }
        elapsed.saturating_sub(queued.saturating_sub(self.queued))
    }
}

/// This thread, and how long it has queued for a processor, where the system tells.
fn queued() -> (ThreadId, Duration) {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split(' ').nth(1).and_then(|text| text.parse().ok());
    let queued = Duration::from_nanos(nanos.unwrap_or(0));
    (std::thread::current().id(), queued)
}

/// A store whose client is as patient as the limiter.
pub(crate) async fn connect(url: &str) -> SharedBackend {
    let connect = tollgate::Connect::new(url).timeout(PATIENT).require(true);
    connect.connect().await.unwrap()
}

/// A table at an endpoint, by its URL.
pub(crate) fn dynamodb_url(endpoint: &str) -> String {
    format!("dynamodb://limits?endpoint={endpoint}")
}

/// Makes that table.
pub(crate) async fn dynamodb_table(endpoint: &str) {
    let url = dynamodb_url(endpoint);
    create_table(&url, Capacity::OnDemand, PATIENT)
        .await
        .unwrap();
}

/// The URL of one table for all tests that only need keys of their own.
pub(crate) async fn dynamodb() -> String {
    static SHARED: OnceCell<LocalDynamo> = OnceCell::const_new();
    let start = || async {
        let server = LocalDynamo::start().await;
        dynamodb_table(&server.endpoint()).await;
        server
    };
    dynamodb_url(&SHARED.get_or_init(start).await.endpoint())
}

/// A limiter in virtual time over one store.
pub(crate) struct Store {
    pub(crate) name: &'static str,
    pub(crate) limiter: Limiter,
    pub(crate) clock: ManualClock,
}

impl Store {
    pub(crate) fn over(name: &'static str, backend: SharedBackend) -> Self {
        let clock = ManualClock::new(T0);
        let limiter = Limiter::builder(backend)
            .timeout(PATIENT)
            .forget_refusals()
            .clock(clock.clone())
            .build();
        Self {
            name,
            limiter,
            clock,
        }
    }

    /// A policy of its own for each call.
    pub(crate) fn limit(&self, quotas: &str) -> RateLimit {
        let quotas = Quota::parse_list(quotas).unwrap();
        self.limiter.policy(&fresh("case"), quotas).unwrap()
    }

    /// Moves the clock to so many milliseconds after T0.
    pub(crate) fn at(&self, millis: u64) {
        self.clock.set(T0 + ms(millis));
    }

    /// Moves the clock to so many microseconds after T0.
    pub(crate) fn at_us(&self, micros: u64) {
        self.clock.set(T0 + Duration::from_micros(micros));
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Token buckets, as full as their limit: whose units come back one a microsecond, also with a token
/// of another length than a second, and whose units come back 7 and 99,991 a tick, of 1 us and 1 ms.
pub(crate) const RATES: [Rate; 4] = [
    Rate::new("10/10s", 10, 10_000_000, 1),
    Rate::new("10/4s", 10, 4_000_000, 1),
    Rate::new("7/5s", 7, 5_000_000, 1),
    Rate::new("99991/day", 99_991, 86_400_000_000, 1_000),
];

/// The arithmetic of a rate by itself, so that no test asks the code what is right.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) text: &'static str,
    pub(crate) limit: u64,
    pub(crate) period: u64,
    tick: u64,
}

impl Rate {
    pub(crate) const fn new(text: &'static str, limit: u64, period: u64, tick: u64) -> Self {
        Self {
            text,
            limit,
            period,
            tick,
        }
    }

    /// How many microseconds, from an edge of a tick, until an empty bucket has so many tokens.
    pub(crate) const fn time(self, tokens: u64) -> u64 {
        (tokens * self.period).div_ceil(self.limit * self.tick) * self.tick
    }

    /// How many tokens come back in so many microseconds.
    pub(crate) const fn tokens(self, micros: u64) -> u64 {
        micros * self.limit / self.period
    }
}

pub(crate) fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Memory, any store that can compare and swap, Redis, memcached, and DynamoDB.
pub(crate) async fn stores() -> Vec<Store> {
    let redis = connect(shared_redis().await.url()).await;
    vec![
        Store::over("memory", tollgate::connect("memory://").await.unwrap()),
        Store::over(
            "map",
            SharedBackend::new(CasBackend::new(MapStore::default())),
        ),
        Store::over("redis", redis),
        Store::over("memcached", connect(shared_memcached().await.url()).await),
        Store::over("dynamodb", connect(&dynamodb().await).await),
    ]
}

/// Only Redis.
pub(crate) async fn redis() -> Store {
    let url = shared_redis().await.url();
    Store::over("redis", connect(url).await)
}

#[track_caller]
pub(crate) fn admitted(decision: &Decision, remaining: u64) {
    assert!(decision.allowed(), "refused: {decision:?}");
    assert_eq!(decision.remaining(), Some(remaining), "{decision:?}");
}

#[track_caller]
pub(crate) fn refused(decision: &Decision, remaining: u64, wait: Duration) {
    assert!(!decision.allowed(), "admitted: {decision:?}");
    assert_eq!(decision.remaining(), Some(remaining), "{decision:?}");
    assert_eq!(decision.retry_after(), Some(wait), "{decision:?}");
}

/// Gives so much back of a charge, which may be more than it was.
pub(crate) async fn give_back(store: &Store, limit: &RateLimit, cost: u64, charged: &Decision) {
    let key = Key::from("k");
    let subject = Subject::new(limit.policy(), &key).at(store.now());
    let refund = Refund {
        cost,
        charged_at: charged.charged_at(),
    };
    let backend = store.limiter.backend();
    let answer = backend.refund(subject, refund).await.unwrap();
    assert!(answer.allowed() && answer.granted() == 0, "{answer:?}");
}
