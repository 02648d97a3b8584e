//! The table of costs in `docs/dynamodb.md`, cell by cell: trips, and what is billed for them.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::time::Duration;

use tollgate_core::{
    Algorithm, Cost, CounterBackend, Key, LeaseBackend, LeaseSubject, Refund, Subject,
};
use tollgate_testkit::Units;

use super::trips::{Lab, policies};
use super::{at, charge, name, policy};

/// Trips, units that were read, units that were written.
type Price = (u64, f64, f64);

impl Lab {
    /// On the heap, for calls of the SDK are large and there are many.
    async fn price<T>(&self, work: Pin<Box<impl Future<Output = T>>>) -> (Price, T) {
        let (trips, before) = (self.proxy.all_calls(), self.proxy.units());
        let done = work.await;
        let Units { read, written } = self.proxy.units();
        let price = (
            self.proxy.all_calls() - trips,
            read - before.read,
            written - before.written,
        );
        (price, done)
    }
}

async fn lab() -> Lab {
    let lab = Lab::new().await;
    lab.proxy.measure();
    lab
}

const ONE_WRITE: Price = (1, 0.0, 1.0);
const ONE_READ: Price = (1, 1.0, 0.0);
const READ_AND_WRITE: Price = (2, 1.0, 1.0);

#[tokio::test]
async fn a_decision_costs_what_the_table_says() {
    let lab = lab().await;
    for policy in policies(20) {
        let log = policy.quotas()[0].algorithm() == Algorithm::SlidingLog;
        let price = async |cost| {
            lab.price(Box::pin(charge(&lab.backend, &policy, at(0), cost)))
                .await
        };
        let (fresh, _) = price(1).await;
        let right = if log { READ_AND_WRITE } else { ONE_WRITE };
        assert_eq!(fresh, right, "{policy:?}, fresh");
        for _ in 0..3 {
            let (in_use, decision) = price(1).await;
            assert!(decision.allowed());
            assert_eq!(in_use, ONE_WRITE, "{policy:?}, in use");
        }

        // A process that has not seen the key.
        let another = lab.another().await;
        let (first, decision) = lab
            .price(Box::pin(charge(&another, &policy, at(0), 1)))
            .await;
        assert!(decision.allowed());
        if log {
            assert_eq!(first, READ_AND_WRITE, "{policy:?}, first of a process");
        } else {
            assert!(
                first.0 <= 2 && first.1 == 0.0 && first.2 <= 2.0,
                "{policy:?}, first of a process: {first:?}"
            );
        }

        // The other one takes all that is left, which the first does not know.
        charge(&another, &policy, at(0), 15).await;
        let (unexpected, decision) = price(1).await;
        assert!(!decision.allowed());
        assert_eq!(unexpected, ONE_WRITE, "{policy:?}, refused, unexpected");
        for cost in [1, 5, 21] {
            let (refused, decision) = price(cost).await;
            assert!(!decision.allowed());
            assert_eq!(refused, ONE_READ, "{policy:?}, refused");
        }
    }
}

#[tokio::test]
async fn the_other_calls_cost_what_the_page_says() {
    let lab = lab().await;
    for policy in policies(20) {
        let key = Key::from("k");
        let subject = Subject::new(&policy, &key).at(at(0));
        let charged = charge(&lab.backend, &policy, at(0), 4).await;
        let refund = Refund {
            cost: 4,
            charged_at: charged.charged_at(),
        };
        let (peek, _) = lab
            .price(Box::pin(lab.backend.peek(subject, Cost::ONE)))
            .await;
        assert_eq!(peek, ONE_READ, "{policy:?}, peek");
        let (refunded, _) = lab
            .price(Box::pin(lab.backend.refund(subject, refund)))
            .await;
        assert_eq!(refunded, ONE_WRITE, "{policy:?}, refund");
        let costs = [Cost::ONE; 6];
        let (batch, _) = lab
            .price(Box::pin(lab.backend.acquire_batch(subject, &costs)))
            .await;
        assert_eq!(batch, ONE_WRITE, "{policy:?}, batch");
        let range = Cost::range(1, 50).unwrap();
        let taking = CounterBackend::acquire(&*lab.backend, subject, range);
        let (range, _) = lab.price(Box::pin(taking)).await;
        assert_eq!(range, ONE_WRITE, "{policy:?}, range");
        let (reset, _) = lab.price(Box::pin(lab.backend.reset(subject))).await;
        assert_eq!(reset, ONE_WRITE, "{policy:?}, reset");
    }
    let (ping, alive) = lab.price(Box::pin(lab.backend.ping())).await;
    alive.unwrap();
    assert_eq!(ping, ONE_WRITE, "ping");
}

#[tokio::test]
async fn a_log_costs_by_its_length() {
    let lab = lab().await;
    let policy = policy("20000/h sliding_log");
    // Each at a moment of its own, so that no two are one entry: five bytes each.
    for n in 0..300 {
        charge(&lab.backend, &policy, at(9_000 * n), 1).await;
    }
    let key = tollgate_core::storage_key("tollgate", &policy, &Key::from("k"));
    assert!(key.len() < 100);
    let (price, decision) = lab
        .price(Box::pin(charge(&lab.backend, &policy, at(2_700_000), 1)))
        .await;
    assert!(decision.allowed());
    assert_eq!(price, (1, 0.0, 2.0), "1.5 KB and some for the rest");
    let another = lab.another().await;
    let (price, _) = lab
        .price(Box::pin(charge(&another, &policy, at(2_700_000), 1)))
        .await;
    assert_eq!(price, (2, 1.0, 2.0));
}

#[tokio::test]
async fn a_lease_costs_what_the_table_says() {
    let lab = lab().await;
    let (name, key) = (name(), Key::from("k"));
    let subject = |millis| LeaseSubject {
        name: &name,
        key: &key,
        at: Some(at(millis)),
    };
    let slots = NonZeroU32::new(3).unwrap();
    let ttl = Duration::from_secs(10);
    let acquire =
        |holder, millis| LeaseBackend::acquire(&*lab.backend, subject(millis), holder, slots, ttl);
    let (fresh, answer) = lab.price(Box::pin(acquire("a", 0))).await;
    assert!(answer.unwrap().ok);
    assert_eq!(fresh, (2, 0.0, 2.0), "fresh");
    let (in_use, answer) = lab.price(Box::pin(acquire("b", 1))).await;
    assert!(answer.unwrap().ok);
    assert_eq!(in_use, ONE_WRITE, "in use");
    let another = lab.another().await;
    let (first, answer) = lab
        .price(Box::pin(LeaseBackend::acquire(
            &another,
            subject(2),
            "c",
            slots,
            ttl,
        )))
        .await;
    assert!(answer.unwrap().ok);
    assert!(first.0 <= 2 && first.2 <= 2.0, "{first:?}");
    let (refused, answer) = lab.price(Box::pin(acquire("d", 3))).await;
    assert!(!answer.unwrap().ok);
    assert_eq!(refused, ONE_WRITE, "refused");
    let renewing = lab.backend.renew(subject(4), "a", ttl);
    assert_eq!(lab.price(Box::pin(renewing)).await.0, ONE_WRITE, "renewed");
    let releasing = lab.backend.release(subject(5), "a");
    assert_eq!(
        lab.price(Box::pin(releasing)).await.0,
        ONE_WRITE,
        "released"
    );
}
