//! Many callers of one process on one key: few trips, and exactly what each store admits.

use crate::coalesced::door::{Callers, Door};
use crate::support::ms;

crate::coalesced::on_each_store! {
    b11_many_callers_of_a_key_share_trips_and_get_exactly_the_limit
}

async fn b11_many_callers_of_a_key_share_trips_and_get_exactly_the_limit(door: Door) {
    for quotas in [
        "100/60s token_bucket",
        "100/60s sliding_window",
        "100/60s fixed_window",
        "100/60s sliding_log",
        "100/60s token_bucket, 100/1h sliding_window, 1000/1d fixed_window",
    ] {
        let callers = Callers::new(&door, quotas).await;
        door.slow(ms(30));
        let before = door.writes();
        let tasks: Vec<_> = (0..400).map(|_| callers.spawn(1)).collect();
        let mut left = Vec::new();
        for task in tasks {
            let decision = task.await.unwrap().unwrap();
            left.extend(decision.allowed().then(|| decision.remaining().unwrap()));
        }
        // Each saw what the ones before it left: that of some order.
        left.sort_unstable();
        assert_eq!(left, (0..100).collect::<Vec<_>>(), "{quotas}");
        let trips = door.writes() - before;
        assert!((1..=20).contains(&trips), "{quotas}: {trips} writes");
        door.restore().await;
    }
}
