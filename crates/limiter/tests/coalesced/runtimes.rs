//! Without a runtime, and when one ends.

use std::pin::pin;
use std::time::Duration;

use crate::common::{Mode, Scripted};
use crate::lab::{Lab, eventually, poll};
use tollgate::{Cost, ErrorKind, Key};

#[test]
fn without_a_runtime_every_charge_goes_by_itself() {
    let lab = Lab::over(Scripted::new(Mode::Works), "10/s");
    let key = Key::from("k");
    let lead = Lab::new("10/s");
    let mut first = pin!(lead.acquire(&key, Cost::ONE));
    let mut second = pin!(lead.acquire(&key, Cost::ONE));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    assert_eq!(lead.store.log(), ["k 1", "k 1"]);
    assert!(poll(pin!(lab.acquire(&key, Cost::ONE))).is_ready());
}

#[test]
fn when_its_runtime_ends_those_in_another_are_told_or_begin_anew() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (one, two) = (runtime(), runtime());
    let lab = Lab::new("10/s");
    // In the first: who asks, and who came to wait first.
    let first = one.block_on(async {
        let first = lab.spawn("k", Cost::ONE);
        eventually(|| lab.store.calls() == 1).await;
        [first, lab.queue("k", Cost::ONE).await]
    });
    let [told, anew] = two.block_on(async {
        let told = lab.queue("k", Cost::ONE).await;
        lab.release().await;
        eventually(|| lab.store.calls() == 2).await;
        [told, lab.queue("k", Cost::ONE).await]
    });
    drop(first);
    one.shutdown_timeout(Duration::from_secs(10));
    two.block_on(async {
        let error = told.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        eventually(|| lab.store.calls() == 3).await;
        lab.store.held().await;
        lab.release().await;
        assert!(anew.await.unwrap().unwrap().allowed());
    });
    assert_eq!(lab.store.log(), ["k 1", "k 1 1", "k 1"]);
}
