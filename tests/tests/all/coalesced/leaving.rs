//! Callers who give up: they take nothing, and what was taken for them is given back.

use crate::coalesced::door::{Callers, Door};
use crate::support::ms;

crate::coalesced::on_each_store! {
    callers_who_leave_neither_lose_nor_leak_quota
    those_who_wait_survive_the_one_they_wait_for
}

async fn callers_who_leave_neither_lose_nor_leak_quota(door: Door) {
    for quotas in ["1000/h token_bucket", "1000/h, 900/d sliding_window"] {
        let callers = Callers::new(&door, quotas).await;
        callers.charge(1).await.unwrap();
        let full = callers.left(&door).await + 1;
        door.slow(ms(400));
        let (first, mut others) = callers
            .first_and_others(&door, (0..30).map(|n| 1 + n % 3))
            .await;
        // Before they have left: they take nothing.
        others.iter().step_by(3).for_each(|other| other.abort());
        callers.all_left().await;
        // On the way: it is given back.
        let on_the_way = others.iter().skip(1).step_by(3);
        on_the_way.for_each(|other| other.abort());
        let mut used = 1 + first.await.unwrap().unwrap().granted();
        let mut gone = 0;
        for other in others.drain(..) {
            match other.await {
                Ok(decision) => used += decision.unwrap().granted(),
                Err(_) => gone += 1,
            }
        }
        assert_eq!((gone, used), (20, 2 + 10 * 3), "{quotas}");
        door.restore().await;
        callers.wait_for_left(&door, full - used).await;
        // Nothing is given back twice, and the key is free.
        let next = callers.charge(1).await.unwrap();
        assert_eq!(next.remaining(), Some(full - used - 1), "{quotas}");
    }
}

async fn those_who_wait_survive_the_one_they_wait_for(door: Door) {
    let callers = Callers::new(&door, "1000/h fixed_window").await;
    callers.charge(1).await.unwrap();
    door.slow(ms(200));
    let (first, others) = callers.first_and_others(&door, [1; 10]).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    for other in others {
        assert!(other.await.unwrap().unwrap().allowed());
    }
    door.restore().await;
    // The first has been charged or not, as without company.
    let left = callers.left(&door).await;
    assert!((988..=989).contains(&left), "{left}");
}
