//! What the server or the connection said, as a kind of error.
//!
//! The one place that matches on the text of a reply. No error here ever holds a password: it is
//! sent, never received, and URLs are redacted before they get into a message.

use redis::{RedisError, ServerError, Value};
use tollgate_core::{BackendError, ErrorKind};

use crate::url::Address;

/// The kind of an error reply, such as `READONLY You can't write against a read only replica.`
///
/// For an application's own client ([`RedisExecutor`](crate::RedisExecutor)). Redis before 7
/// wraps what goes wrong inside a script in an `ERR`; that is looked through.
///
/// ```
/// use tollgate_core::ErrorKind;
/// use tollgate_redis::error_kind;
///
/// assert_eq!(error_kind("LOADING Redis is loading the dataset in memory"), ErrorKind::NotReady);
/// assert_eq!(
///     error_kind("ERR Error running script (call to f_1): @user_script:9: -OOM command not allowed"),
///     ErrorKind::OutOfMemory,
/// );
/// ```
#[must_use]
pub fn error_kind(reply: &str) -> ErrorKind {
    let reply = reply.trim_start_matches('-');
    let (code, detail) = reply.split_once(' ').unwrap_or((reply, ""));
    kind_of(code, detail)
}

fn kind_of(code: &str, detail: &str) -> ErrorKind {
    match code {
        "LOADING" | "BUSY" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK"
        | "NOREPLICAS" | "NOMASTERLINK" | "NOSCRIPT" | "UNKILLABLE" => ErrorKind::NotReady,
        "READONLY" | "MISCONF" => ErrorKind::ReadOnly,
        "OOM" => ErrorKind::OutOfMemory,
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => ErrorKind::Auth,
        "NOPROTO" => ErrorKind::Unsupported,
        "ERR" => kind_of_detail(detail),
        _ => ErrorKind::Other,
    }
}

fn kind_of_detail(detail: &str) -> ErrorKind {
    // Of Redis 6.2: "Error running script (call to f_..): @user_script:12: -READONLY You can't.."
    if detail.starts_with("Error running script")
        && let Some((_, inner)) = detail.rsplit_once(": -")
    {
        return error_kind(inner);
    }
    let contains = |text: &str| detail.contains(text);
    if contains("invalid password")
        || contains("without any password")
        || contains("no password is set")
    {
        ErrorKind::Auth
    } else if contains("unknown command")
        || contains("non deterministic commands")
        || contains("is not allowed from script")
    {
        ErrorKind::Unsupported
    } else if contains("max number of clients") {
        ErrorKind::NotReady
    } else if contains("DB index is out of range") || contains("SELECT is not allowed in cluster") {
        ErrorKind::Config
    } else {
        ErrorKind::Other
    }
}

/// Why a call on a connection has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server said so.
    Reply(ServerError),
    /// The connection broke, or what came over it was not Redis.
    Broken(BackendError),
}

impl Failure {
    /// The code of the reply.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Reply(error) => error.code(),
            Self::Broken(_) => "",
        }
    }

    /// What follows the code.
    pub(crate) fn detail(&self) -> &str {
        match self {
            Self::Reply(error) => error.details().unwrap_or_default(),
            Self::Broken(_) => "",
        }
    }
}

impl Failure {
    /// The connection to this address broke.
    pub(crate) fn broken(address: &Address, error: RedisError) -> Self {
        let kind = match error.kind() {
            redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => {
                ErrorKind::Malformed
            }
            _ if error.is_timeout() => ErrorKind::Timeout,
            _ => ErrorKind::Unavailable,
        };
        // The reason too: those who wait for another's attempt are told the text only.
        let text = format!("the connection to {address} broke: {error}");
        Self::Broken(BackendError::new(kind, text).with_source(error))
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Reply(error) => reply_error(&error),
            Failure::Broken(error) => error,
        }
    }
}

/// The error of an error reply.
pub(crate) fn reply_error(error: &ServerError) -> BackendError {
    let (code, detail) = (error.code(), error.details().unwrap_or_default());
    let kind = kind_of(code, detail);
    if code == "MOVED" {
        return BackendError::new(
            ErrorKind::Config,
            "the server is a node of a cluster; use a redis+cluster:// URL",
        );
    }
    let text: String = detail.chars().take(200).collect();
    BackendError::new(kind, format!("{code} {text}"))
}

/// The integers of a reply.
pub(crate) fn integers(value: Value) -> Result<Vec<i64>, Failure> {
    let broken = |value: &Value| {
        let shape = match value {
            Value::BulkString(_) | Value::SimpleString(_) => "text",
            Value::Nil => "nothing",
            _ => "something else",
        };
        Failure::Broken(BackendError::new(
            ErrorKind::Malformed,
            format!("a script replied {shape} where integers were expected"),
        ))
    };
    match value {
        Value::Int(number) => Ok(vec![number]),
        Value::Array(values) => values
            .into_iter()
            .map(|value| match value {
                Value::Int(number) => Ok(number),
                other => Err(broken(&other)),
            })
            .collect(),
        Value::ServerError(error) => Err(Failure::Reply(error)),
        other => Err(broken(&other)),
    }
}
