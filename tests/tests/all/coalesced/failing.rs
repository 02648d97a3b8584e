//! What those who share a trip meet when it fails: each its error, none a second charge.

use std::collections::BTreeSet;

use tollgate::{BreakerState, ErrorKind, Limiter, Quota};
use tollgate_testkit::{DynamoProxy, LocalDynamo, Mischief, wait_until};

use crate::coalesced::door::{Callers, Door};
use crate::support::{PATIENT, connect, dynamodb_table, dynamodb_url, fresh, ms};

crate::coalesced::on_each_store! {
    b15_a_trip_whose_answer_is_lost_is_charged_once_and_told_to_each
    a_store_that_is_gone_fails_each_and_keeps_no_key
    b65_a_store_that_stalls_times_out_those_who_wait_and_is_asked_again
}

async fn b15_a_trip_whose_answer_is_lost_is_charged_once_and_told_to_each(door: Door) {
    let callers = Callers::new(&door, "1000/h").await;
    callers.warm().await;
    door.slow(ms(200));
    let (first, others) = callers.first_and_others(&door, [2; 10]).await;
    door.lose_next_answer();
    assert!(first.await.unwrap().unwrap().allowed());
    for other in others {
        let error = other.await.unwrap().unwrap_err();
        assert!(error.may_have_charged(), "{error}");
    }
    door.restore().await;
    callers.wait_for_left(&door, 1000 - 4 - 20).await;
    let next = callers.charge(1).await.unwrap();
    assert_eq!(next.remaining(), Some(1000 - 4 - 20 - 1));
}

async fn a_store_that_is_gone_fails_each_and_keeps_no_key(door: Door) {
    let callers = Callers::new(&door, "1000/h fixed_window").await;
    callers.charge(1).await.unwrap();
    door.slow(ms(200));
    let (first, others) = callers.first_and_others(&door, [1; 10]).await;
    door.refuse().await;
    let mut kinds = BTreeSet::new();
    let mut admitted = 1;
    for caller in others.into_iter().chain([first]) {
        match caller.await.unwrap() {
            Ok(decision) => admitted += decision.granted(),
            Err(error) => drop(kinds.insert(error.kind().to_string())),
        }
    }
    // The first may have been answered before.
    assert!(admitted <= 2, "{admitted}");
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        [ErrorKind::Unavailable.to_string()]
    );
    assert_eq!(callers.backend.waiting(), 0);
    door.restore().await;
    let again = async || callers.charge(1).await.is_ok();
    wait_until("the store that is back is used", PATIENT, again).await;
}

async fn b65_a_store_that_stalls_times_out_those_who_wait_and_is_asked_again(door: Door) {
    let limiter = Limiter::builder(connect(&door.url()).await)
        .timeout(ms(100))
        .forget_refusals()
        .coalesce(true)
        .build();
    assert!(limiter.to_string().contains("Coalesced("), "{limiter}");
    for quotas in ["10000/h", "10000/h sliding_log"] {
        let quotas = Quota::parse_list(quotas).unwrap();
        let limit = limiter.policy(&fresh("stall"), quotas).unwrap();
        let counted = async || limit.acquire("k").await.unwrap().origin().is_enforced();
        wait_until("the first is counted", PATIENT, counted).await;
        door.stay_silent();
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let limit = limit.clone();
                tokio::spawn(async move { limit.acquire("k").await.unwrap() })
            })
            .collect();
        for call in calls {
            assert!(!call.await.unwrap().origin().is_enforced());
        }
        door.restore().await;
        // Long before those calls that are lost have given up.
        wait_until("it is asked again", PATIENT / 4, counted).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b80_one_throttled_trip_is_the_answer_to_all_who_share_it() {
    let server = LocalDynamo::start().await;
    dynamodb_table(&server.endpoint()).await;
    let proxy = DynamoProxy::start(server.address()).await;
    let limiter = Limiter::builder(connect(&dynamodb_url(&proxy.endpoint())).await)
        .timeout(PATIENT)
        .build();
    let quotas = Quota::parse_list("100000/h").unwrap();
    let limit = limiter.policy(&fresh("throttled"), quotas).unwrap();
    limit.acquire("k").await.unwrap();
    proxy.always(Mischief::exception("ThrottlingException"));
    let before = proxy.all_calls();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let limit = limit.clone();
            tokio::spawn(async move { limit.acquire("k").await.unwrap() })
        })
        .collect();
    for call in calls {
        assert!(!call.await.unwrap().origin().is_enforced());
    }
    let asked = proxy.all_calls() - before;
    assert!((1..=100).contains(&asked), "{asked} calls for 100 charges");
    assert_ne!(limiter.health().breaker, BreakerState::Closed);
}
