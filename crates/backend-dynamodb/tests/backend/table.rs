//! Making the table, and looking at it.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TimeToLiveSpecification,
};
use tollgate_core::ErrorKind;
use tollgate_dynamodb::{Capacity, DynamoBackend, create_table, describe_table};
use tollgate_testkit::LocalDynamo;

use super::{PATIENCE, sdk, url};

/// A table by other hands: with this key, and expiry by this attribute.
async fn foreign(endpoint: &str, key: &[(&str, ScalarAttributeType)], expiry: Option<&str>) {
    let mut call = sdk(endpoint)
        .create_table()
        .table_name("limits")
        .billing_mode(BillingMode::PayPerRequest);
    for ((name, kind), role) in key.iter().zip([KeyType::Hash, KeyType::Range]) {
        let part = KeySchemaElement::builder()
            .attribute_name(*name)
            .key_type(role);
        let attribute = AttributeDefinition::builder()
            .attribute_name(*name)
            .attribute_type(kind.clone());
        call = call
            .key_schema(part.build().unwrap())
            .attribute_definitions(attribute.build().unwrap());
    }
    call.send().await.unwrap();
    if let Some(attribute) = expiry {
        let expiry = TimeToLiveSpecification::builder()
            .enabled(true)
            .attribute_name(attribute);
        let call = sdk(endpoint).update_time_to_live().table_name("limits");
        call.time_to_live_specification(expiry.build().unwrap())
            .send()
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_table_is_made_once_and_found_after_that() {
    let server = LocalDynamo::start().await;
    let url = url(&server.endpoint());
    let missing = describe_table(&url, PATIENCE).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Config);
    assert!(missing.to_string().contains("no table limits"), "{missing}");
    let made = create_table(&url, Capacity::OnDemand, PATIENCE)
        .await
        .unwrap();
    assert_eq!(
        (made.name.as_str(), made.status.as_str()),
        ("limits", "ACTIVE")
    );
    assert_eq!(made.capacity, Capacity::OnDemand);
    assert_eq!(made.key, [("pk".to_owned(), "S".to_owned())]);
    assert_eq!(made.time_to_live.as_ref().unwrap().0, "expires_at");
    assert!(made.problems.is_empty(), "{made}");
    let again = create_table(&url, Capacity::OnDemand, PATIENCE)
        .await
        .unwrap();
    assert_eq!(again, made);
    let seen = describe_table(&url, PATIENCE).await.unwrap();
    assert_eq!(seen, made);
    let text = seen.to_string();
    for line in [
        "table     limits",
        "capacity  on demand",
        "key       pk (S)",
        "expiry    expires_at",
    ] {
        assert!(text.contains(line), "{text}");
    }
    DynamoBackend::builder(url).connect().await.unwrap();
}

#[tokio::test]
async fn many_may_make_it_at_once() {
    let server = LocalDynamo::start().await;
    let url = url(&server.endpoint());
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { create_table(&url, Capacity::OnDemand, PATIENCE).await })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap().unwrap().problems.is_empty());
    }
}

#[tokio::test]
async fn capacity_can_be_provisioned() {
    let server = LocalDynamo::start().await;
    let capacity = Capacity::Provisioned { read: 5, write: 7 };
    let made = create_table(&url(&server.endpoint()), capacity, PATIENCE)
        .await
        .unwrap();
    assert_eq!(made.capacity, capacity);
    assert!(made.to_string().contains("5 read and 7 write"));
}

#[tokio::test]
async fn an_expiry_that_is_off_is_turned_on() {
    let server = LocalDynamo::start().await;
    foreign(&server.endpoint(), &[("pk", ScalarAttributeType::S)], None).await;
    let made = create_table(&url(&server.endpoint()), Capacity::OnDemand, PATIENCE)
        .await
        .unwrap();
    assert!(made.problems.is_empty(), "{made}");
}

#[tokio::test]
async fn a_start_says_exactly_what_is_wrong_with_the_table() {
    use ScalarAttributeType::{N, S};
    let wrong: [(&[_], _, &[&str]); 5] = [
        (
            &[("id", S)],
            Some("expires_at"),
            &["has the key `id` of type S", "`pk` of type S alone"],
        ),
        (
            &[("pk", N)],
            Some("expires_at"),
            &["has the key `pk` of type N"],
        ),
        (
            &[("pk", S), ("sk", S)],
            Some("expires_at"),
            &["`pk` of type S and `sk` of type S"],
        ),
        (
            &[("pk", S)],
            None,
            &["removes no expired items", "AttributeName=expires_at"],
        ),
        (
            &[("pk", S)],
            Some("ttl"),
            &["removes items by `ttl`", "must be `expires_at`"],
        ),
    ];
    for (key, expiry, says) in wrong {
        let server = LocalDynamo::start().await;
        foreign(&server.endpoint(), key, expiry).await;
        let url = url(&server.endpoint());
        for lenient in [false, true] {
            let builder = DynamoBackend::builder(&url);
            let error = if lenient {
                builder.connect_or_degrade().await.unwrap_err()
            } else {
                builder.connect().await.unwrap_err()
            };
            assert_eq!(error.kind(), ErrorKind::Config);
            for words in says {
                assert!(error.to_string().contains(words), "{error}");
            }
        }
        let described = describe_table(&url, PATIENCE).await.unwrap();
        assert_eq!(described.problems.len(), 1, "{described}");
        if expiry.is_some() {
            // What cannot be mended is left as it is.
            let error = create_table(&url, Capacity::OnDemand, Duration::from_secs(5))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        }
    }
}
