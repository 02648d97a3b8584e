//! Decisions a second over a DynamoDB from one process on one worker thread: ours (also with
//! concurrent charges coalesced), and the update that everybody writes: an increment under a
//! condition, and another one where the bucket was full, over the same client of the AWS SDK.
//!
//! A stand-in on the same machine answers in a millisecond, where the service takes some; so the
//! ratios of rates are less than the service's wherever trips are shared. The number of requests a
//! decision is the same.
//!
//! ```text
//! dynamodb-load --endpoint http://127.0.0.1:8000 [--tasks 1,64,256] [--keys 1,100000]
//!               [--seconds 2] [--rounds 3] [--only ours,ours-coalesced]
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a driver, which measures and fails by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, ConfigBag, Credentials, Intercept, Region, RuntimeComponents,
};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::AttributeValue;
use tollgate::Coalesced;
use tollgate_benches::arg;
use tollgate_benches::load::{Check, Comparison, Limiter, Ours};
use tollgate_core::{Policy, Quota, SharedBackend};
use tollgate_dynamodb::{Capacity, DynamoBackend, create_table, sdk};

const PATIENCE: Duration = Duration::from_secs(20);

/// Counts what is sent.
#[derive(Clone, Debug, Default)]
struct Requests(Arc<AtomicU64>);

impl Intercept for Requests {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The hand-written update: one number a key, the moment at which its bucket is full again.
struct Floor(Client);

impl Floor {
    /// Whether the condition held.
    async fn update(&self, key: &str, set: &str, when: &str, values: &[(&str, u64)]) -> bool {
        let mut call = self
            .0
            .update_item()
            .table_name("limits")
            .key("pk", AttributeValue::S(key.into()))
            .update_expression(set)
            .condition_expression(when);
        for (name, value) in values {
            let value = AttributeValue::N(value.to_string());
            call = call.expression_attribute_values(*name, value);
        }
        match call.send().await.map_err(|e| e.into_service_error()) {
            Ok(_) => true,
            Err(UpdateItemError::ConditionalCheckFailedException(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Limiter for Floor {
    fn check<'a>(&'a self, key: &'a str) -> Check<'a> {
        Box::pin(async move {
            const TOKEN: u64 = 1_000_000;
            const BURST: u64 = 1_000_000_000 * TOKEN;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let now = now.as_micros() as u64;
            let busy = "tat > :now AND tat <= :room";
            let room = now + BURST - TOKEN;
            let values = [(":token", TOKEN), (":now", now), (":room", room)];
            let grow = self.update(key, "SET tat = tat + :token", busy, &values);
            if grow.await {
                return true;
            }
            let begin = "attribute_not_exists(tat) OR tat <= :now";
            let next = [(":now", now), (":next", now + TOKEN)];
            self.update(key, "SET tat = :next", begin, &next).await
        })
    }
}

const NAMES: [&str; 3] = ["floor", "ours", "ours-coalesced"];

async fn make(name: &str, client: &Client) -> Box<dyn Limiter> {
    let quota: Quota = "1/s token_bucket burst=1000000000".parse().unwrap();
    let policy = Policy::new(name, [quota]).unwrap();
    let ours = async || {
        let builder = DynamoBackend::builder("dynamodb://limits")
            .remember(100_000)
            .timeout(PATIENCE);
        sdk::connect(builder, client).await.unwrap()
    };
    match name {
        "floor" => Box::new(Floor(client.clone())),
        "ours" => Box::new(Ours(ours().await, policy)),
        // As a limiter has it: who waits for another's trip does not carry a call of its own.
        "ours-coalesced" => {
            let store = SharedBackend::new(ours().await);
            Box::new(Ours(Coalesced::new(store), policy))
        }
        _ => panic!("--only: {name:?} is none of {NAMES:?}"),
    }
}

fn main() {
    let endpoint = arg("endpoint").unwrap_or_else(|| panic!("--endpoint http://.. is needed"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let url = format!("dynamodb://limits?endpoint={endpoint}");
        create_table(&url, Capacity::OnDemand, PATIENCE)
            .await
            .unwrap();
        let requests = Requests::default();
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .credentials_provider(Credentials::new("bench", "bench", None, None, "bench"))
            .region(Region::from_static("us-east-1"))
            .endpoint_url(endpoint)
            .interceptor(requests.clone());
        let client = Client::from_conf(config.build());
        let comparison = Comparison {
            names: &NAMES,
            floor: "floor",
            column: "requests",
            warm: true,
        };
        let make = async |name: &str| make(name, &client).await;
        let sent = async || requests.0.load(Ordering::Relaxed) as f64;
        comparison.run(make, sent).await;
    });
}
