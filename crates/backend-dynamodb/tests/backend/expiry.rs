//! Every item has its expiry, and decides without it.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use tollgate_core::{
    Clock, Cost, CounterBackend, Key, LeaseBackend, LeaseSubject, ManualClock, Subject, SystemClock,
};
use tollgate_dynamodb::DynamoBackend;

use super::{PATIENCE, T0, at, backend, charge, item_of, number, policy, sdk, shared, url};

fn seconds() -> u64 {
    SystemClock.now().as_micros() / 1_000_000
}

#[tokio::test]
async fn b03_a_first_charge_of_any_cost_has_its_expiry() {
    let endpoint = shared().await;
    let backend = backend(&endpoint).await;
    for (algorithm, longest) in [
        ("token_bucket", 10),
        ("fixed_window", 10),
        ("sliding_window", 20),
        ("sliding_log", 10),
    ] {
        let policy = policy(&format!("10/10s {algorithm}"));
        for turn in 0..3 {
            let before = seconds();
            charge(&backend, &policy, None, if turn == 0 { 5 } else { 1 }).await;
            let expires = number(&item_of(&endpoint, &policy).await.unwrap(), "expires_at");
            // Never before it decides like none, and a minute for clocks that differ.
            assert!(
                expires > before + 60,
                "{algorithm}, turn {turn}: {expires} at {before}"
            );
            assert!(
                expires <= seconds() + longest + 61,
                "{algorithm}, turn {turn}: {expires}"
            );
        }
    }
}

#[tokio::test]
async fn b03_the_answers_are_those_of_the_window() {
    let backend = backend(&shared().await).await;
    let policy = policy("10/60s fixed_window");
    let first = charge(&backend, &policy, T0, 5).await;
    assert_eq!((first.allowed(), first.remaining()), (true, Some(5)));
    assert_eq!(first.reset_after(), Some(Duration::from_secs(60)));
    let next = charge(&backend, &policy, at(60_000), 10).await;
    assert_eq!((next.allowed(), next.remaining()), (true, Some(0)));
}

#[tokio::test]
async fn in_virtual_time_an_item_stays_for_an_hour() {
    let endpoint = shared().await;
    let backend = backend(&endpoint).await;
    let policy = policy("10/10s");
    charge(&backend, &policy, T0, 5).await;
    let expires = number(&item_of(&endpoint, &policy).await.unwrap(), "expires_at");
    assert!(expires >= seconds() + 3_600, "{expires}");
}

#[tokio::test]
async fn b76_an_item_past_its_expiry_decides_like_none() {
    let endpoint = shared().await;
    let clock = ManualClock::new(T0);
    let builder = DynamoBackend::builder(url(&endpoint)).timeout(PATIENCE);
    let backend = builder.clock(clock.clone()).connect().await.unwrap();
    for text in [
        "5/60s fixed_window",
        "5/60s sliding_window",
        "5/60s sliding_log",
        "5/60s",
    ] {
        clock.set(T0);
        let policy = policy(text);
        assert!(charge(&backend, &policy, None, 5).await.allowed());
        assert!(!charge(&backend, &policy, None, 1).await.allowed());
        // The item as it is when its own numbers are over, and nobody has removed it.
        clock.advance(Duration::from_secs(121));
        let before = item_of(&endpoint, &policy).await.unwrap();
        let gone = seconds() - 1;
        expire(&endpoint, &before, gone).await;
        let key = Key::from("k");
        let peeked = backend
            .peek(Subject::new(&policy, &key), Cost::ONE)
            .await
            .unwrap();
        assert_eq!(peeked.remaining(), Some(5), "{text}");
        let first = charge(&backend, &policy, None, 1).await;
        assert_eq!(
            (first.allowed(), first.remaining()),
            (true, Some(4)),
            "{text}"
        );
        let after = item_of(&endpoint, &policy).await.unwrap();
        assert!(
            number(&after, "expires_at") > seconds(),
            "{text}: {after:?}"
        );
    }
}

/// Moves the expiry of an item.
async fn expire(endpoint: &str, item: &std::collections::HashMap<String, AttributeValue>, to: u64) {
    let call = sdk(endpoint)
        .update_item()
        .table_name("limits")
        .key("pk", item["pk"].clone());
    let call = call.update_expression("SET expires_at = :to");
    let call = call.expression_attribute_values(":to", AttributeValue::N(to.to_string()));
    call.send().await.unwrap();
}

#[tokio::test]
async fn the_expiry_of_leases_waits_for_the_last_holder() {
    let endpoint = shared().await;
    let backend = backend(&endpoint).await;
    let (name, key) = (super::name(), Key::from("k"));
    let subject = LeaseSubject {
        name: &name,
        key: &key,
        at: None,
    };
    let slots = std::num::NonZeroU32::new(3).unwrap();
    let hour = Duration::from_secs(3_600);
    let start = seconds();
    LeaseBackend::acquire(&backend, subject, "long", slots, hour)
        .await
        .unwrap();
    let short = Duration::from_secs(1);
    LeaseBackend::acquire(&backend, subject, "short", slots, short)
        .await
        .unwrap();
    assert!(backend.renew(subject, "short", short).await.unwrap().ok);
    let pk = AttributeValue::S(tollgate_core::lease_key("tollgate", &name, &key));
    let got = sdk(&endpoint)
        .get_item()
        .table_name("limits")
        .key("pk", pk)
        .send()
        .await;
    let item = got.unwrap().item.unwrap();
    assert!(
        number(&item, "expires_at") >= start + 3_600 + 60,
        "{item:?}"
    );
}
