//! On the application's own client of the AWS SDK: its credentials, its endpoint, its connections.
//!
//! This is the one place where types of the SDK are part of this crate's interface, so a new major
//! version of the SDK is one here too.

use aws_sdk_dynamodb::Client as Sdk;
use tollgate_core::BackendError;

use crate::DynamoBackend;
use crate::client::Client;
use crate::config::{Builder, check};
use crate::standing::Standing;
use crate::url::Target;

/// A backend on the table and with the settings of a builder, and the given client. Region and
/// endpoint of the builder's URL count for nothing. Its retries are off for the calls made here, for
/// a charge must not be sent twice.
///
/// ```no_run
/// use tollgate_dynamodb::{DynamoBackend, sdk};
///
/// # async fn example(client: aws_sdk_dynamodb::Client) -> Result<(), tollgate_core::BackendError> {
/// let backend = sdk::connect(DynamoBackend::builder("dynamodb://limits"), &client).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`Builder::connect`].
pub async fn connect(builder: Builder, client: &Sdk) -> Result<DynamoBackend, BackendError> {
    let target: Target = builder.target()?;
    let client = Client::of_sdk(client, &target.table);
    let warnings = check(&client, builder.connect_timeout).await?;
    Ok(DynamoBackend::new(
        client,
        &builder,
        Standing::good(warnings),
    ))
}
