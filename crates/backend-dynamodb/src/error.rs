//! From the SDK's errors to ours: the one place that knows them.

use std::error::Error as StdError;
use std::fmt::Debug;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use tollgate_core::{BackendError, ErrorKind};

/// The kind of an error that DynamoDB answers, by its code.
///
/// ```
/// use tollgate_core::ErrorKind;
/// use tollgate_dynamodb::error_kind;
///
/// assert_eq!(error_kind("ProvisionedThroughputExceededException"), ErrorKind::Throttled);
/// assert_eq!(error_kind("ResourceNotFoundException"), ErrorKind::Config);
/// ```
#[must_use]
pub fn error_kind(code: &str) -> ErrorKind {
    match code {
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "LimitExceededException" => ErrorKind::Throttled,
        "TransactionConflictException" | "ReplicatedWriteConflictException" => ErrorKind::Contended,
        "ResourceNotFoundException" | "TableNotFoundException" => ErrorKind::Config,
        "ResourceInUseException" | "TableInUseException" => ErrorKind::NotReady,
        "AccessDeniedException"
        | "AccessDenied"
        | "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "SignatureDoesNotMatch"
        | "IncompleteSignatureException"
        | "MissingAuthenticationTokenException"
        | "MissingAuthenticationToken"
        | "ExpiredTokenException"
        | "ExpiredToken" => ErrorKind::Auth,
        "UnknownOperationException" => ErrorKind::Unsupported,
        // What is answered with 500 may have been written.
        "InternalServerError" | "InternalFailure" | "ServiceUnavailable" => ErrorKind::Unavailable,
        _ => ErrorKind::Other,
    }
}

/// Whether the write was turned down because another one, of a transaction or in another region,
/// had hold of the item. It may be tried again.
pub(crate) fn is_conflict(error: &BackendError) -> bool {
    error.kind() == ErrorKind::Contended
}

/// The error of a call that has no proper answer.
pub(crate) fn of_call<E, R>(error: SdkError<E, R>, table: &str) -> BackendError
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    R: Debug + Send + Sync + 'static,
{
    let (kind, context) = match &error {
        SdkError::ServiceError(answer) => of_answer(answer.err(), table),
        SdkError::TimeoutError(_) => (ErrorKind::Timeout, "no answer in time".into()),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            (ErrorKind::Timeout, "no connection in time".into())
        }
        SdkError::DispatchFailure(failure) if failure.is_io() => {
            (ErrorKind::Unavailable, "the connection failed".into())
        }
        SdkError::DispatchFailure(failure) => match credentials_error(failure.as_connector_error())
        {
            Some(kind) => (kind, "no credentials could be had".into()),
            None => (
                ErrorKind::Unavailable,
                "the request could not be sent".into(),
            ),
        },
        SdkError::ResponseError(_) => (
            ErrorKind::Malformed,
            "the answer makes no sense; is something else listening there?".into(),
        ),
        SdkError::ConstructionFailure(_) => {
            (ErrorKind::Config, "the request could not be made".into())
        }
        _ => (ErrorKind::Other, "the call failed".into()),
    };
    // The text of the SDK's errors names requests and causes, never keys or secrets.
    BackendError::new(kind, context).with_source(error)
}

fn of_answer(error: &impl ProvideErrorMetadata, table: &str) -> (ErrorKind, String) {
    let code = error.code().unwrap_or("an error without a code");
    let text: String = error
        .message()
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect();
    if code == "ResourceNotFoundException" {
        let hint = "create it (`tollgate dynamodb create-table`), or check name and region";
        return (ErrorKind::Config, format!("no table {table}: {hint}"));
    }
    if code == "ValidationException" && text.contains("key element") {
        let context = format!("table {table} has another key than `pk` (a string): {text}");
        return (ErrorKind::Config, context);
    }
    (error_kind(code), format!("{code} {text}"))
}

/// The kind of an error about credentials, if it is one. The SDK hides them below its own.
fn credentials_error(error: Option<&aws_sdk_dynamodb::error::ConnectorError>) -> Option<ErrorKind> {
    let mut cause: Option<&(dyn StdError + 'static)> = error.and_then(StdError::source);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<CredentialsError>() {
            return Some(match error {
                CredentialsError::CredentialsNotLoaded(_)
                | CredentialsError::InvalidConfiguration(_) => ErrorKind::Auth,
                _ => ErrorKind::Unavailable,
            });
        }
        cause = error.source();
    }
    None
}

use aws_credential_types::provider::error::CredentialsError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_throttles_or_conflicts_has_charged_nothing() {
        for code in [
            "ProvisionedThroughputExceededException",
            "ThrottlingException",
            "RequestLimitExceeded",
            "TransactionConflictException",
        ] {
            let error = BackendError::new(error_kind(code), code);
            assert!(error.is_transient() && !error.may_have_charged(), "{code}");
        }
        assert!(BackendError::new(error_kind("InternalServerError"), "").may_have_charged());
        assert!(!BackendError::new(error_kind("AccessDeniedException"), "").is_transient());
    }
}
