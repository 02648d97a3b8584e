//! The stores that every case runs on, in virtual time.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate::{
    CasBackend, Clock, Decision, Limiter, ManualClock, Quota, RateLimit, SharedBackend, Timestamp,
};
use tollgate_testkit::{MapStore, shared_redis};

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

/// A store whose client is as patient as the limiter.
pub(crate) async fn connect(url: &str) -> SharedBackend {
    let connect = tollgate::Connect::new(url).timeout(PATIENT).require(true);
    connect.connect().await.unwrap()
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

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Memory, any store that can compare and swap, and Redis.
pub(crate) async fn stores() -> Vec<Store> {
    let redis = connect(shared_redis().await.url()).await;
    vec![
        Store::over("memory", tollgate::connect("memory://").await.unwrap()),
        Store::over(
            "map",
            SharedBackend::new(CasBackend::new(MapStore::default())),
        ),
        Store::over("redis", redis),
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
