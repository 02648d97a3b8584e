//! Charges that share trips to a store, on each of those that have trips.

mod conformance;
mod door;
mod failing;
mod leaving;
mod many_keys;
mod one_key;
mod processes;

/// Each case on each store, a named test for either.
macro_rules! on_each_store {
    ($($case:ident)*) => {
        mod redis { $crate::coalesced::on!(redis: $($case)*); }
        mod memcached { $crate::coalesced::on!(memcached: $($case)*); }
        mod dynamodb { $crate::coalesced::on!(dynamodb: $($case)*); }
    };
}

macro_rules! on {
    ($store:ident: $($case:ident)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            super::$case($crate::coalesced::door::Door::$store().await).await;
        }
    )* };
}

pub(crate) use {on, on_each_store};
