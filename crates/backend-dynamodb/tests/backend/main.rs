//! The backend against DynamoDBs, and against ones that misbehave.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod cost;
mod expiry;
mod faults;
mod items;
mod logs;
mod moto;
mod start;
mod table;
mod trips;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use tokio::sync::OnceCell;
use tollgate_core::{Cost, CounterBackend, Decision, Key, Policy, Quota, Subject, Timestamp};
use tollgate_dynamodb::{Capacity, DynamoBackend, create_table};
use tollgate_testkit::LocalDynamo;

/// An edge of every window that the tests use.
const T0: Timestamp = Timestamp::from_micros(1_700_006_400_000_000);

fn at(millis: u64) -> Timestamp {
    T0 + Duration::from_millis(millis)
}

/// Nobody waits this long on purpose.
const PATIENCE: Duration = Duration::from_secs(20);

/// The table of a test, at an endpoint.
fn url(endpoint: &str) -> String {
    format!("dynamodb://limits?endpoint={endpoint}")
}

/// Makes the table.
async fn table(endpoint: &str) {
    create_table(&url(endpoint), Capacity::OnDemand, PATIENCE)
        .await
        .unwrap();
}

/// The endpoint of one DynamoDB with the table, for all tests that only need keys of their own.
async fn shared() -> String {
    static SHARED: OnceCell<LocalDynamo> = OnceCell::const_new();
    let start = || async {
        let server = LocalDynamo::start().await;
        table(&server.endpoint()).await;
        server
    };
    SHARED.get_or_init(start).await.endpoint()
}

async fn backend(endpoint: &str) -> DynamoBackend {
    let builder = DynamoBackend::builder(url(endpoint)).timeout(PATIENCE);
    builder.connect().await.expect("the server is up")
}

/// A name that nobody else uses.
fn name() -> String {
    static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
    static NAMES: AtomicU64 = AtomicU64::new(0);
    format!("p{:x}.{}", *RUN, NAMES.fetch_add(1, Ordering::Relaxed))
}

/// A policy with a name of its own.
fn policy(text: &str) -> Policy {
    let quotas = Quota::parse_list(text).expect("the quotas of a test are good");
    Policy::new(&name(), quotas).expect("the policy of a test is good")
}

/// One charge for "k".
async fn charge(
    backend: &DynamoBackend,
    policy: &Policy,
    at: impl Into<Option<Timestamp>>,
    cost: u64,
) -> Decision {
    let key = Key::from("k");
    let subject = Subject {
        policy,
        key: &key,
        at: at.into(),
    };
    let cost = Cost::new(cost).expect("not 0");
    backend
        .acquire(subject, cost)
        .await
        .expect("the server is up")
}

/// A client of the SDK, to look at the table from outside.
fn sdk(endpoint: &str) -> aws_sdk_dynamodb::Client {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .region(Region::from_static("us-east-1"))
        .endpoint_url(endpoint);
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

/// The item of what is counted for "k" by default.
async fn item_of(endpoint: &str, policy: &Policy) -> Option<HashMap<String, AttributeValue>> {
    let key = tollgate_core::storage_key("tollgate", policy, &Key::from("k"));
    let call = sdk(endpoint).get_item().table_name("limits");
    let got = call
        .key("pk", AttributeValue::S(key))
        .consistent_read(true)
        .send();
    got.await.unwrap().item
}

/// A number of an item.
fn number(item: &HashMap<String, AttributeValue>, name: &str) -> u64 {
    item[name].as_n().unwrap().parse().unwrap()
}
