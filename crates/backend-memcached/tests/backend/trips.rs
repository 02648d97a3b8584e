//! How many trips a call takes: the table of docs/memcached.md.

use tollgate_core::{Cost, CounterBackend, Key, Refund, Subject};
use tollgate_memcached::MemcachedBackend;
use tollgate_testkit::{FaultProxy, MemcachedServer};

use super::{T0, backend, charge, facts, policy};

const ALGORITHMS: [&str; 5] = [
    "3/h token_bucket",
    "3/h sliding_window",
    "3/h fixed_window",
    "3/h sliding_log",
    "3/h token_bucket, 5/d sliding_window",
];

struct Bench {
    _server: MemcachedServer,
    proxy: FaultProxy,
    backend: MemcachedBackend,
    /// Another process.
    other: MemcachedBackend,
}

async fn bench(query: &str) -> Bench {
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    let backend = backend(format!("{}{query}", proxy.url())).await;
    let other = super::backend(server.url()).await;
    Bench {
        _server: server,
        proxy,
        backend,
        other,
    }
}

impl Bench {
    /// The trips of a call, and its answer.
    async fn trips<T>(&self, call: impl Future<Output = T>) -> (u64, T) {
        let before = self.proxy.commands();
        let answer = call.await;
        (self.proxy.commands() - before, answer)
    }
}

#[tokio::test]
async fn a_key_that_only_this_process_uses_costs_one_trip() {
    let bench = bench("").await;
    for quotas in ALGORITHMS {
        let policy = policy(quotas);
        let key = Key::from("k");
        let subject = Subject::new(&policy, &key).at(T0);
        let charged = async || {
            let call = charge(&bench.backend, &policy, Some(T0), 1);
            let (trips, decision) = bench.trips(call).await;
            (trips, facts(&decision.unwrap()))
        };
        // Fresh: a read that finds nothing, and a write.
        assert_eq!(charged().await, (2, (true, 2)), "{quotas}");
        // Admitted: a write that is verified.
        assert_eq!(charged().await, (1, (true, 1)), "{quotas}");
        assert_eq!(charged().await, (1, (true, 0)), "{quotas}");
        // Refused: a read.
        assert_eq!(charged().await, (1, (false, 0)), "{quotas}");
        let peek = bench.backend.peek(subject, Cost::ONE);
        assert_eq!(bench.trips(peek).await.0, 1, "{quotas}");
        let refund = Refund {
            cost: 1,
            charged_at: T0,
        };
        let refund = bench.backend.refund(subject, refund);
        assert_eq!(bench.trips(refund).await.0, 1, "{quotas}");
        assert_eq!(charged().await, (1, (true, 0)), "{quotas}");
        let reset = bench.backend.reset(subject);
        assert_eq!(bench.trips(reset).await.0, 1, "{quotas}");
        assert_eq!(charged().await, (2, (true, 2)), "{quotas}");
    }
}

#[tokio::test]
async fn a_key_that_others_write_too_is_read_first_for_a_while() {
    let bench = bench("").await;
    let policy = policy("100/h");
    let charged = async || {
        let call = charge(&bench.backend, &policy, Some(T0), 1);
        let (trips, decision) = bench.trips(call).await;
        (trips, decision.unwrap().remaining().unwrap())
    };
    assert_eq!(charged().await, (2, 99));
    assert_eq!(charged().await, (1, 98));
    charge(&bench.other, &policy, Some(T0), 1).await.unwrap();
    // A write that finds another value, a read, a write.
    assert_eq!(charged().await, (3, 96));
    for left in (88..96).rev() {
        assert_eq!(charged().await, (2, left));
    }
    assert_eq!(charged().await, (1, 87));
}

#[tokio::test]
async fn a_refusal_is_never_decided_on_what_is_remembered() {
    let bench = bench("").await;
    let policy = policy("3/h");
    let key = Key::from("k");
    for _ in 0..3 {
        charge(&bench.backend, &policy, Some(T0), 1).await.unwrap();
    }
    let subject = Subject::new(&policy, &key);
    bench.other.reset(subject).await.unwrap();
    let call = charge(&bench.backend, &policy, Some(T0), 1);
    let (trips, decision) = bench.trips(call).await;
    assert_eq!((trips, facts(&decision.unwrap())), (2, (true, 2)));
    // A peek neither.
    charge(&bench.other, &policy, Some(T0), 2).await.unwrap();
    let peeked = bench.backend.peek(subject.at(T0), Cost::ONE).await.unwrap();
    assert!(!peeked.allowed());
}

#[tokio::test]
async fn without_memory_every_admission_is_a_read_and_a_write() {
    let bench = bench("?memory=0").await;
    let policy = policy("100/h");
    for _ in 0..5 {
        let call = charge(&bench.backend, &policy, Some(T0), 1);
        assert_eq!(bench.trips(call).await.0, 2);
    }
}
