//! What is in an item, and what becomes of one that was written by others.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use tollgate_core::{
    Cost, CounterBackend, ErrorKind, Key, LeaseBackend, LeaseSubject, Policy, Quota, Subject,
};
use tollgate_dynamodb::{DynamoBackend, MAX_LOG, sdk as with_sdk};

use super::{PATIENCE, T0, at, backend, charge, item_of, number, policy, sdk, shared, url};

#[tokio::test]
async fn all_quotas_are_in_one_item_as_whole_numbers() {
    let endpoint = shared().await;
    let backend = backend(&endpoint).await;
    let policy = policy("10/s, 1000/h sliding_window, 5000/day fixed_window");
    charge(&backend, &policy, T0, 2).await;
    charge(&backend, &policy, T0, 3).await;
    let item = item_of(&endpoint, &policy).await.unwrap();
    assert_eq!(
        item["shape"].as_s().unwrap(),
        "b1,1;s3600000000;f86400000000"
    );
    assert_eq!(number(&item, "t0"), T0.as_micros() + 500_000);
    assert_eq!((number(&item, "c1"), number(&item, "p1")), (5, 0));
    assert_eq!(number(&item, "c2"), 5);
    assert_eq!(item.len(), 9, "{item:?}");
}

#[tokio::test]
async fn no_identity_is_in_an_item() {
    let endpoint = shared().await;
    let backend = backend(&endpoint).await;
    let key = Key::from("alice@example.com");
    let policy = policy("10/s sliding_log");
    let subject = Subject::new(&policy, &key).at(T0);
    CounterBackend::acquire(&backend, subject, Cost::ONE)
        .await
        .unwrap();
    let lease = LeaseSubject {
        name: policy.name(),
        key: &key,
        at: Some(T0),
    };
    let slots = std::num::NonZeroU32::MIN;
    let ttl = Duration::from_secs(1);
    LeaseBackend::acquire(&backend, lease, "alice@host", slots, ttl)
        .await
        .unwrap();
    let all = sdk(&endpoint)
        .scan()
        .table_name("limits")
        .send()
        .await
        .unwrap();
    assert!(!all.items().is_empty());
    assert!(!format!("{all:?}").contains("alice"));
    assert!(!format!("{backend:?} {backend}").contains("alice"));
}

#[tokio::test]
async fn a_foreign_item_is_replaced_and_keeps_what_is_not_ours() {
    let endpoint = shared().await;
    let backend = backend(&endpoint).await;
    let text = |text: &str| AttributeValue::S(text.into());
    let foreign: [Vec<(&str, AttributeValue)>; 4] = [
        vec![],
        vec![("owner", text("them"))],
        vec![
            ("shape", text("b1,1")),
            ("t0", text("?")),
            ("owner", text("them")),
        ],
        vec![
            ("shape", AttributeValue::Bool(true)),
            ("w0", AttributeValue::N("1".into())),
        ],
    ];
    for attributes in foreign {
        for quota in ["5/60s", "5/60s sliding_log"] {
            let policy = policy(quota);
            let key = tollgate_core::storage_key("tollgate", &policy, &Key::from("k"));
            let mut put = sdk(&endpoint)
                .put_item()
                .table_name("limits")
                .item("pk", text(&key));
            for (name, value) in attributes.clone() {
                put = put.item(name, value);
            }
            put.send().await.unwrap();
            for left in (0..5).rev() {
                assert_eq!(
                    charge(&backend, &policy, T0, 1).await.remaining(),
                    Some(left)
                );
            }
            assert!(!charge(&backend, &policy, T0, 1).await.allowed());
            let item = item_of(&endpoint, &policy).await.unwrap();
            let theirs = attributes.iter().any(|(name, _)| *name == "owner");
            assert_eq!(item.contains_key("owner"), theirs);
            assert!(!item.contains_key("w0"), "{item:?}");
        }
    }
}

#[tokio::test]
async fn b26_numbers_beyond_a_double_are_exact() {
    let endpoint = shared().await;
    let backend = backend(&endpoint).await;
    // 2^53 + 1 an hour is refused when the quota is built, on every backend.
    assert!("9007199254740993/h".parse::<Quota>().is_err());
    // A rate whose units pass 2^64 a thousand times over: odd numbers, so that none is lost.
    let policy = policy("4503599627370495/4503599627369ms burst=1");
    assert!(charge(&backend, &policy, T0, 1).await.allowed());
    let item = item_of(&endpoint, &policy).await.unwrap();
    let n = u128::from(policy.quotas()[0].units_per_tick());
    let p = u128::from(policy.quotas()[0].units_per_token());
    let ticks = u128::from(policy.quotas()[0].tick_of(T0.as_micros()));
    let tat = item["t0"].as_n().unwrap();
    assert!(tat.len() > 28, "{tat}");
    assert_eq!(tat.parse::<u128>().unwrap(), ticks * n + p);
    // Up to the largest limit, every unit counts.
    let most = Quota::fixed_window(1 << 52, Duration::from_secs(3_600)).unwrap();
    let policy = Policy::new(&super::name(), [most]).unwrap();
    assert!(charge(&backend, &policy, T0, (1 << 52) - 1).await.allowed());
    assert!(charge(&backend, &policy, T0, 1).await.allowed());
    assert!(!charge(&backend, &policy, T0, 1).await.allowed());
}

#[tokio::test]
async fn b78_keys_of_any_length_are_counted_apart() {
    let backend = backend(&shared().await).await;
    let policy = policy("1/60s");
    let long = |last: &str| format!("{}{last}", "x".repeat(2_999));
    let keys = [
        "".into(),
        "x".repeat(2_048),
        "x".repeat(3_000),
        long("y"),
        "é".repeat(1_100),
    ];
    for key in &keys {
        let key = Key::from(key);
        let subject = Subject::new(&policy, &key).at(T0);
        for allowed in [true, false] {
            let decision = CounterBackend::acquire(&backend, subject, Cost::ONE)
                .await
                .unwrap();
            assert_eq!(decision.allowed(), allowed);
        }
    }
    // The longest name and prefix leave room, too.
    let quotas = Quota::parse_list("1/60s").unwrap();
    let policy = Policy::new(&"%".repeat(tollgate_core::MAX_NAME), quotas).unwrap();
    let builder = DynamoBackend::builder(url(&shared().await)).prefix("p".repeat(256));
    let backend = builder.timeout(PATIENCE).connect().await.unwrap();
    assert!(charge(&backend, &policy, T0, 1).await.allowed());
    let builder = DynamoBackend::builder(url(&shared().await)).prefix("p".repeat(257));
    assert_eq!(
        builder.connect().await.unwrap_err().kind(),
        ErrorKind::Config
    );
}

#[tokio::test]
async fn a_log_is_bounded_when_its_policy_is_checked() {
    let backend = backend(&shared().await).await;
    let fits = policy("20000/h sliding_log");
    DynamoBackend::check(&fits).unwrap();
    assert!(charge(&backend, &fits, T0, MAX_LOG).await.allowed());
    let too_large = policy("10001/h sliding_log, 10000/m sliding_log");
    let right = DynamoBackend::check(&too_large).unwrap_err();
    assert_eq!(right.kind(), ErrorKind::Config);
    let key = Key::from("k");
    let subject = Subject::new(&too_large, &key).at(T0);
    let error = CounterBackend::acquire(&backend, subject, Cost::ONE)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), right.to_string());
    assert!(!error.may_have_charged());
}

#[tokio::test]
async fn an_admission_in_a_log_takes_five_bytes() {
    let endpoint = shared().await;
    let backend = backend(&endpoint).await;
    let policy = policy("20000/h sliding_log");
    let key = Key::from("k");
    for n in 0..50 {
        let subject = Subject::new(&policy, &key).at(at(n * 70_000));
        CounterBackend::acquire(&backend, subject, Cost::ONE)
            .await
            .unwrap();
    }
    let item = item_of(&endpoint, &policy).await.unwrap();
    let bytes = item["l0"].as_b().unwrap().as_ref().len();
    // The first has its full time; the others 4 bytes of time and 1 of cost.
    assert_eq!(bytes, 8 + 1 + 49 * (4 + 1));
}

#[tokio::test]
async fn an_applications_own_client_serves() {
    let endpoint = shared().await;
    let client = sdk(&endpoint);
    let builder = DynamoBackend::builder("dynamodb://limits").timeout(PATIENCE);
    let backend = with_sdk::connect(builder, &client).await.unwrap();
    let policy = policy("1/60s");
    assert!(charge(&backend, &policy, T0, 1).await.allowed());
    assert!(
        !charge(&super::backend(&endpoint).await, &policy, T0, 1)
            .await
            .allowed()
    );
}

#[tokio::test]
async fn the_most_slots_fit_into_an_item_and_more_are_refused_when_built() {
    let endpoint = shared().await;
    let backend = backend(&endpoint).await;
    let slots = |n| std::num::NonZeroU32::new(n).unwrap();
    let error = backend.accepts_slots(slots(8_001)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("at most 8000"), "{error}");
    backend.accepts_slots(slots(8_000)).unwrap();

    let (name, key) = (super::name(), Key::from("k"));
    let subject = LeaseSubject {
        name: &name,
        key: &key,
        at: Some(T0),
    };
    let hour = Duration::from_secs(3_600);
    let first = LeaseBackend::acquire(&backend, subject, "h0", slots(8_000), hour).await;
    assert!(first.unwrap().ok);
    // All but two of the others, of whom half are gone without a word, by a write of one's own.
    let holders = (1..7_999_u64).map(|n| {
        let until = match n % 2 {
            0 => T0 + hour,
            _ => T0 + Duration::from_micros(n),
        };
        let holder = Key::from(&*format!("h{n}")).digest();
        (holder, AttributeValue::N(until.as_micros().to_string()))
    });
    let pk = AttributeValue::S(tollgate_core::lease_key("tollgate", &name, &key));
    let written = sdk(&endpoint)
        .update_item()
        .table_name("limits")
        .key("pk", pk)
        .update_expression("SET h = :h")
        .expression_attribute_values(":h", AttributeValue::M(holders.collect()))
        .send();
    written.await.unwrap();
    for (holder, in_use) in [("a", 7_999), ("b", 8_000)] {
        let answer = LeaseBackend::acquire(&backend, subject, holder, slots(8_000), hour).await;
        let answer = answer.unwrap();
        assert!(answer.ok && answer.in_use == in_use, "{answer:?}");
    }
    let refused = LeaseBackend::acquire(&backend, subject, "c", slots(8_000), hour).await;
    assert!(!refused.unwrap().ok);
    // Those who have gone make room for as many.
    let later = LeaseSubject {
        at: Some(T0 + Duration::from_secs(1)),
        ..subject
    };
    let swept = LeaseBackend::acquire(&backend, later, "c", slots(8_000), hour).await;
    let swept = swept.unwrap();
    assert!(swept.ok && swept.in_use == 4_002, "{swept:?}");
}
