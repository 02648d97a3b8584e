//! Giving back (`refund-reset` in docs/faults.md).

use crate::support::{admitted, refused, seconds, stores};
use tollgate::{CounterBackend, Key, Refund, Subject};

#[tokio::test]
async fn b122_a_refund_credits_no_time_twice_and_never_overfills() {
    for store in stores().await {
        let limit = store.limit("10/10s");
        let charged = limit.acquire("k").cost(10).await.unwrap();
        store.at(5_000);
        let key = Key::from("k");
        let subject = Subject::new(limit.policy(), &key).at(store.now());
        let refund = Refund {
            cost: 3,
            charged_at: charged.charged_at(),
        };
        let backend = store.limiter.backend();
        backend.refund(subject, refund).await.unwrap();
        admitted(&limit.peek("k").await.unwrap(), 8);
        admitted(&limit.acquire("k").cost(8).await.unwrap(), 0);
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(1));
        store.at(6_000);
        admitted(&limit.acquire("k").await.unwrap(), 0);

        store.at(60_000);
        let subject = Subject::new(limit.policy(), &key).at(store.now());
        let refund = Refund { cost: 20, ..refund };
        backend.refund(subject, refund).await.unwrap();
        admitted(&limit.peek("k").await.unwrap(), 10);
    }
}

#[tokio::test]
async fn b124_a_late_refund_does_not_credit_the_next_window() {
    for store in stores().await {
        let limit = store.limit("5/60s fixed_window");
        store.at(59_000);
        let charged = limit.acquire("k").cost(3).await.unwrap();
        store.at(61_000);
        // What a wrong credit could take away: in an empty window it would show nowhere.
        admitted(&limit.acquire("k").cost(3).await.unwrap(), 2);
        limit.refund("k", &charged).await.unwrap();
        for left in (0..2).rev() {
            admitted(&limit.acquire("k").await.unwrap(), left);
        }
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(59));

        let limit = store.limit("5/60s sliding_log");
        store.at(0);
        let charged = limit.acquire("k").await.unwrap();
        store.at(61_000);
        admitted(&limit.acquire("k").cost(3).await.unwrap(), 2);
        limit.refund("k", &charged).await.unwrap();
        admitted(&limit.acquire("k").cost(2).await.unwrap(), 0);
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(60));
    }
}

#[tokio::test]
async fn b86_a_refund_of_nothing_or_of_too_much_stops_at_full() {
    for store in stores().await {
        for algorithm in tollgate::Algorithm::ALL {
            let limit = store.limit(&format!("5/60s {algorithm}"));
            let key = Key::from("k");
            let subject = Subject::new(limit.policy(), &key).at(store.now());
            let refund = Refund {
                cost: 5,
                charged_at: store.now(),
            };
            let backend = store.limiter.backend();
            // Of nothing: it creates nothing either.
            backend.refund(subject, refund).await.unwrap();
            admitted(&limit.acquire("k").cost(3).await.unwrap(), 2);
            backend.refund(subject, refund).await.unwrap();
            admitted(&limit.acquire("k").await.unwrap(), 4);
        }
    }
}

#[tokio::test]
async fn s61_a_reset_clears_one_identity() {
    for store in stores().await {
        let limit = store.limit("1/60s");
        for key in ["a", "b"] {
            admitted(&limit.acquire(key).await.unwrap(), 0);
        }
        limit.reset("a").await.unwrap();
        admitted(&limit.acquire("a").await.unwrap(), 0);
        assert!(
            !limit.acquire("b").await.unwrap().allowed(),
            "{}",
            store.name
        );
    }
}
