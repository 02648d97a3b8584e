//! Giving back (`refund-reset` in docs/faults.md).

use crate::support::{RATES, admitted, give_back, refused, seconds, stores, us};
use tollgate::{CounterBackend, Key, Refund, Subject};

#[tokio::test]
async fn b122_a_refund_credits_no_time_twice_and_never_overfills() {
    for store in stores().await {
        for rate in RATES {
            let limit = store.limit(rate.text);
            store.at(0);
            let charged = limit.acquire("k").cost(rate.limit).await.unwrap();
            // Half of it has come back when three are given back.
            let half = rate.period / 2;
            store.at_us(half);
            give_back(&store, &limit, 3, &charged).await;
            let there = rate.tokens(half) + 3;
            admitted(&limit.peek("k").await.unwrap(), there);
            admitted(&limit.acquire("k").cost(there).await.unwrap(), 0);
            // The fraction of a token that had come back is still there, once.
            let next = rate.time(there - 3 + 1);
            refused(&limit.acquire("k").await.unwrap(), 0, us(next - half));
            store.at_us(next);
            admitted(&limit.acquire("k").await.unwrap(), 0);

            store.at_us(next + rate.period);
            give_back(&store, &limit, 20, &charged).await;
            admitted(&limit.peek("k").await.unwrap(), rate.limit);
            // Nor later, as a bucket that is more than full would show.
            admitted(&limit.acquire("k").cost(rate.limit).await.unwrap(), 0);
            refused(&limit.acquire("k").await.unwrap(), 0, us(rate.time(1)));
        }
    }
}

#[tokio::test]
async fn b122_a_refund_of_more_than_was_used_stops_at_full() {
    for store in stores().await {
        for algorithm in tollgate::Algorithm::ALL {
            let limit = store.limit(&format!("10/10s {algorithm}"));
            store.at(0);
            let charged = limit.acquire("k").cost(4).await.unwrap();
            give_back(&store, &limit, 20, &charged).await;
            admitted(&limit.peek("k").await.unwrap(), 10);
            admitted(&limit.acquire("k").cost(10).await.unwrap(), 0);
            assert!(!limit.acquire("k").await.unwrap().allowed());
        }
    }
}

#[tokio::test]
async fn b124_a_late_refund_does_not_credit_the_next_fixed_window() {
    for store in stores().await {
        // As it was reported: an empty window, in which a wrong credit must not go below 0.
        let limit = store.limit("5/60s fixed_window");
        store.at(59_000);
        let charged = limit.acquire("k").cost(3).await.unwrap();
        store.at(61_000);
        limit.refund("k", &charged).await.unwrap();
        for left in (0..5).rev() {
            admitted(&limit.acquire("k").await.unwrap(), left);
        }
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(59));

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
    }
}

#[tokio::test]
async fn b124_a_late_refund_does_not_credit_a_logs_later_admissions() {
    for store in stores().await {
        // As it was reported: what has left is still stored, since nobody has come since.
        let limit = store.limit("5/60s sliding_log");
        store.at(0);
        let charged = limit.acquire("k").await.unwrap();
        store.at(61_000);
        limit.refund("k", &charged).await.unwrap();
        for left in (0..5).rev() {
            admitted(&limit.acquire("k").await.unwrap(), left);
        }
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(60));

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
async fn b124_a_late_refund_credits_the_sliding_window_that_was_charged() {
    for store in stores().await {
        // One window later it is the previous one, of which 59/60 still count: 3 of it are 2.95.
        let limit = store.limit("5/60s sliding_window");
        store.at(59_000);
        let charged = limit.acquire("k").cost(3).await.unwrap();
        store.at(61_000);
        admitted(&limit.acquire("k").await.unwrap(), 1);
        limit.refund("k", &charged).await.unwrap();
        admitted(&limit.peek("k").await.unwrap(), 4);
        admitted(&limit.acquire("k").cost(4).await.unwrap(), 0);
        refused(&limit.acquire("k").await.unwrap(), 0, seconds(59 + 12));

        // Two windows later it counts nowhere.
        let limit = store.limit("5/60s sliding_window");
        store.at(59_000);
        let charged = limit.acquire("k").cost(3).await.unwrap();
        store.at(60_000);
        admitted(&limit.acquire("k").cost(2).await.unwrap(), 0);
        store.at(121_000);
        // 59/60 of 2, and 2 of this window.
        admitted(&limit.acquire("k").cost(2).await.unwrap(), 1);
        limit.refund("k", &charged).await.unwrap();
        admitted(&limit.peek("k").await.unwrap(), 1);
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
