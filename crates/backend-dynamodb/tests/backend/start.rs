//! Starting without the store, without permissions, or without sense.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{BackendError, Cost, CounterBackend, ErrorKind, Key, Policy, Subject};
use tollgate_dynamodb::DynamoBackend;
use tollgate_testkit::{DynamoProxy, LocalDynamo, Mischief, wait_until};

use super::{PATIENCE, policy, table, url};

async fn try_charge(backend: &DynamoBackend, policy: &Policy) -> Result<bool, BackendError> {
    let key = Key::from("k");
    let subject = Subject::new(policy, &key);
    let decision = CounterBackend::acquire(backend, subject, Cost::ONE).await?;
    Ok(decision.allowed())
}

#[tokio::test]
async fn wrong_settings_are_refused_by_either_start() {
    for url in [
        "dynamodb://no",
        "dynamodb://limits?endpoint=nonsense",
        "dynamodb://a:secret@limits",
    ] {
        for lenient in [false, true] {
            let builder = DynamoBackend::builder(url);
            assert!(!format!("{builder:?}").contains("secret"));
            let error = if lenient {
                builder.connect_or_degrade().await.unwrap_err()
            } else {
                builder.connect().await.unwrap_err()
            };
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(!format!("{error:?}").contains("secret"));
        }
    }
}

#[tokio::test]
async fn b80_a_missing_table_is_a_wrong_setting_at_start() {
    let server = LocalDynamo::start().await;
    for lenient in [false, true] {
        let builder = DynamoBackend::builder(url(&server.endpoint()));
        let error = if lenient {
            builder.connect_or_degrade().await.unwrap_err()
        } else {
            builder.connect().await.unwrap_err()
        };
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("create-table"), "{error}");
    }
}

#[tokio::test]
async fn a_start_that_is_denied_access_is_refused() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let proxy = DynamoProxy::start(server.address()).await;
    for exception in [
        "AccessDeniedException",
        "UnrecognizedClientException",
        "ExpiredTokenException",
    ] {
        proxy.always(Mischief::exception(exception));
        for lenient in [false, true] {
            let builder = DynamoBackend::builder(url(&proxy.endpoint()));
            let error = if lenient {
                builder.connect_or_degrade().await.unwrap_err()
            } else {
                builder.connect().await.unwrap_err()
            };
            assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        }
    }
    // Without the right to see the expiry it works, and says so.
    proxy.well();
    proxy.once(
        "DescribeTimeToLive",
        Mischief::exception("AccessDeniedException"),
    );
    let backend = DynamoBackend::builder(url(&proxy.endpoint()))
        .connect()
        .await
        .unwrap();
    assert_eq!(backend.warnings().len(), 1, "{:?}", backend.warnings());
    assert!(backend.warnings()[0].contains("expired items"));
    assert!(try_charge(&backend, &policy("1/s")).await.unwrap());
}

#[tokio::test]
async fn b65_a_start_against_silence_is_bounded_and_recovers() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let proxy = DynamoProxy::start(server.address()).await;
    proxy.always(Mischief::Silence);
    let builder = DynamoBackend::builder(url(&proxy.endpoint()))
        .timeout(Duration::from_millis(200))
        .connect_timeout(Duration::from_millis(300));
    let start = Instant::now();
    let error = builder.clone().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(
        start.elapsed() < Duration::from_millis(600),
        "{:?}",
        start.elapsed()
    );
    let backend = builder
        .connect_timeout(Duration::from_secs(2))
        .connect_or_degrade()
        .await
        .unwrap();
    assert!(backend.warnings()[0].contains("not been checked"));
    let policy = policy("100/s");
    let error = try_charge(&backend, &policy).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    proxy.well();
    wait_until("it counts", PATIENCE, async || {
        try_charge(&backend, &policy).await.is_ok()
    })
    .await;
    wait_until("it is checked", PATIENCE, async || {
        backend.warnings().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_table_that_turns_out_to_be_wrong_stays_an_error() {
    // Nobody listens there.
    let server = LocalDynamo::start().await;
    let proxy = DynamoProxy::start(server.address()).await;
    proxy.always(Mischief::Cut);
    let builder = DynamoBackend::builder(url(&proxy.endpoint())).timeout(Duration::from_secs(2));
    let backend = builder.connect_or_degrade().await.unwrap();
    let policy = policy("100/s");
    let error = try_charge(&backend, &policy).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    // Now it answers, and there is no table.
    proxy.well();
    wait_until("it is known", PATIENCE, async || {
        backend.warnings().is_empty()
    })
    .await;
    let asked = proxy.all_calls();
    let error = try_charge(&backend, &policy).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("no table limits"), "{error}");
    assert_eq!(proxy.all_calls(), asked, "it is asked again");
    assert_eq!(backend.ping().await.unwrap_err().kind(), ErrorKind::Config);
}
