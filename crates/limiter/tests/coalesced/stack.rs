//! In a limiter: where it is on, and what is measured.

use crate::common::recorder::Recorded;
use crate::common::{Mode, Scripted, quotas};
use tollgate::Limiter;

#[tokio::test]
async fn a_limiter_coalesces_where_the_store_prefers_it_or_somebody_says_so() {
    let name = |store: &Scripted, say: Option<bool>| {
        let mut builder = Limiter::builder(store.clone());
        if let Some(on) = say {
            builder = builder.coalesce(on);
        }
        builder.build().to_string()
    };
    let (cheap, dear) = (Scripted::default(), Scripted::default().preferring());
    for (store, say, on) in [
        (&cheap, None, false),
        (&cheap, Some(true), true),
        (&dear, None, true),
        (&dear, Some(false), false),
    ] {
        let name = name(store, say);
        assert_eq!(
            name.contains("Timeout(Coalesced(scripted), 50ms)"),
            on,
            "{name}"
        );
        assert_eq!(name.contains("Timeout(scripted, 50ms)"), !on, "{name}");
    }
}

#[test]
fn its_trips_are_measured() {
    let recorded = Recorded::default();
    metrics::with_local_recorder(&recorded, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = Scripted::new(Mode::Yields(3));
            let limiter = Limiter::builder(store).name("api").coalesce(true).build();
            let limit = limiter.policy("p", quotas("100/s")).unwrap();
            let calls: Vec<_> = (0..8)
                .map(|_| {
                    let limit = limit.clone();
                    tokio::spawn(async move { limit.acquire("k").await.unwrap() })
                })
                .collect();
            for call in calls {
                call.await.unwrap();
            }
        });
    });
    let trips = recorded.count("tollgate_coalesced_charges{limiter=api}");
    assert_eq!(trips, Some(1), "seven charges waited and left together");
    let waiting = recorded.gauge("tollgate_coalesced_waiting{limiter=api}");
    assert_eq!(waiting, Some(0.0));
}
