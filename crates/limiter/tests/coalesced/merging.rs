//! Different keys in one trip.

use crate::common::{Mode, Scripted};
use crate::lab::{Lab, cost, eventually};
use tokio::task::JoinHandle;
use tollgate::{Cost, ErrorKind};

#[tokio::test]
async fn different_keys_share_a_trip_once_a_few_are_under_way() {
    let lab = Lab::over(Scripted::new(Mode::Held).merging(), "10/s");
    let mut callers = Vec::new();
    for (i, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
        callers.push(lab.spawn(key, Cost::ONE));
        eventually(|| lab.store.calls() == i as u64 + 1).await;
    }
    for (key, n) in [
        ("e", 1),
        ("!f", 2),
        ("e", 3),
        ("a", 4),
        ("!f", 5),
        ("g", 11),
    ] {
        callers.push(lab.queue(key, cost(n)).await);
    }
    lab.release().await;
    lab.store.set(Mode::Works);
    for _ in 0..3 {
        lab.release().await;
    }
    let mut left = Vec::new();
    for caller in callers {
        left.push(caller.await.unwrap().unwrap().remaining().unwrap());
    }
    assert_eq!(left, [9, 9, 9, 9, 9, 8, 6, 5, 3, 10]);
    let log = lab.store.log();
    assert_eq!(log[4], "e 1 3 | !f 2 5 | g 11 | a 4");
    assert_eq!(log[5], "!f 2 5", "the one that was not decided in company");
    assert_eq!(log.len(), 6);
}

#[tokio::test]
async fn a_failed_trip_fails_all_its_keys_and_frees_its_place() {
    let lab = Lab::over(Scripted::new(Mode::Held).merging(), "10/s");
    for round in 0..10 {
        let mut first = Vec::new();
        let before = lab.store.calls();
        for key in ["a", "b", "c", "d"] {
            first.push(lab.spawn(key, Cost::ONE));
        }
        eventually(|| lab.store.calls() == before + 4).await;
        let waiting = [
            lab.queue("e", Cost::ONE).await,
            lab.queue("f", Cost::ONE).await,
        ];
        for _ in 0..4 {
            lab.release().await;
        }
        let trip = lab.store.held().await;
        if round % 2 == 0 {
            trip.send(Err(ErrorKind::Unavailable)).unwrap();
            for caller in waiting {
                let error = caller.await.unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
        } else {
            waiting.iter().for_each(JoinHandle::abort);
            for caller in waiting {
                let _ = caller.await;
            }
            // It goes on, and gives back what it took.
            trip.send(Ok(())).unwrap();
            lab.release().await;
            lab.release().await;
        }
        for caller in first {
            caller.await.unwrap().unwrap();
        }
    }
}
