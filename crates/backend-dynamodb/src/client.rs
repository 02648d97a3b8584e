//! The few calls that are made of the SDK.

use std::fmt;
use std::time::Duration;

use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::meta::credentials::CredentialsProviderChain;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::Credentials;
use aws_sdk_dynamodb::Client as Sdk;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Region, SharedCredentialsProvider, SharedHttpClient,
    StalledStreamProtectionConfig,
};
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnFailure,
};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use tollgate_core::{BackendError, ErrorKind};

use crate::credentials::Patient;
use crate::error::of_call;
use crate::record::{Attributes, PK};
use crate::update::Update;
use crate::url::Target;

/// A table, and how to reach it.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) sdk: Sdk,
    pub(crate) table: String,
}

/// What came of a conditional write.
#[derive(Debug)]
pub(crate) enum Written {
    /// It was made; the item as it is now, where that was asked for.
    Yes(Attributes),
    /// The condition does not hold; the item as it is.
    No(Option<Attributes>),
}

impl Client {
    /// A client of our own. Asks nobody, unless the region has to be found out.
    pub(crate) async fn new(target: &Target, connect: Duration) -> Result<Self, BackendError> {
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        // One try a call: a second one of a write whose answer was lost could charge twice.
        let timeouts = TimeoutConfig::builder().connect_timeout(connect).build();
        let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .http_client(http.clone())
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        if let Some(endpoint) = &target.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if let Some(region) = &target.region {
            loader = loader.region(Region::new(region.clone()));
        } else if target.is_local() {
            loader = loader.region(Region::from_static("us-east-1"));
        }
        if target.is_local() {
            loader = loader.credentials_provider(local_credentials(http));
        }
        let shared = loader.load().await;
        if shared.region().is_none() {
            return Err(BackendError::new(
                ErrorKind::Config,
                "no region: add ?region=.. to the URL, or set AWS_REGION or a region in the profile",
            ));
        }
        let mut config = aws_sdk_dynamodb::config::Builder::from(&shared);
        if let Some(provider) = shared.credentials_provider() {
            let patient = SharedCredentialsProvider::new(Patient::new(provider));
            config = config.credentials_provider(patient);
        }
        Ok(Self {
            sdk: Sdk::from_conf(config.build()),
            table: target.table.clone(),
        })
    }

    /// On an application's own SDK client, but with one try a call.
    pub(crate) fn of_sdk(sdk: &Sdk, table: &str) -> Self {
        let config = sdk
            .config()
            .to_builder()
            .retry_config(RetryConfig::disabled());
        Self {
            sdk: Sdk::from_conf(config.build()),
            table: table.into(),
        }
    }

    /// Writes if the conditions hold, in one round trip either way.
    pub(crate) async fn update(
        &self,
        key: &str,
        update: Update,
        returns: ReturnValue,
    ) -> Result<Written, BackendError> {
        let (expression, condition) = (update.expression(), update.condition());
        let Update { values, names, .. } = update;
        let call = self
            .sdk
            .update_item()
            .table_name(&self.table)
            .key(PK, AttributeValue::S(key.into()))
            .set_update_expression((!expression.is_empty()).then_some(expression))
            .condition_expression(condition)
            .set_expression_attribute_values((!values.is_empty()).then_some(values))
            .set_expression_attribute_names((!names.is_empty()).then_some(names))
            .return_values(returns)
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        match call.send().await {
            Ok(answer) => Ok(Written::Yes(answer.attributes.unwrap_or_default())),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                    Ok(Written::No(failed.item.clone()))
                }
                _ => Err(of_call(error, &self.table)),
            },
        }
    }

    /// The item, as of all writes that were answered before.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Attributes>, BackendError> {
        let call = self
            .sdk
            .get_item()
            .table_name(&self.table)
            .key(PK, AttributeValue::S(key.into()))
            .consistent_read(true);
        let answer = call.send().await;
        let answer = answer.map_err(|error| of_call(error, &self.table))?;
        Ok(answer.item)
    }

    /// Removes the item, if there is one.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), BackendError> {
        let call = self
            .sdk
            .delete_item()
            .table_name(&self.table)
            .key(PK, AttributeValue::S(key.into()));
        let answer = call.send().await;
        answer
            .map(drop)
            .map_err(|error| of_call(error, &self.table))
    }
}

/// What the environment or a profile says, else anything: a stand-in takes all, but the SDK insists
/// on some. The machine's role is not asked for, which would take seconds where there is none.
fn local_credentials(http: SharedHttpClient) -> impl aws_sdk_dynamodb::config::ProvideCredentials {
    let environment = EnvironmentVariableCredentialsProvider::new();
    let settings = ProviderConfig::without_region().with_http_client(http);
    let profile = ProfileFileCredentialsProvider::builder()
        .configure(&settings)
        .build();
    let anything = Credentials::new("local", "local", None, None, "local");
    CredentialsProviderChain::first_try("Environment", environment)
        .or_else("Profile", profile)
        .or_else("Local", anything)
}

/// The SDK's own `Debug` is long, and hides secrets by luck rather than by rule.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("table", &self.table)
            .finish()
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dynamodb://{}", self.table)
    }
}
