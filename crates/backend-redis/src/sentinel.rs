//! Asking sentinels who is master. They are asked again for every new connection.

use std::time::Duration;

use redis::Value;
use tollgate_core::{BackendError, ErrorKind};

use crate::config::Settings;
use crate::connection::Connection;
use crate::error::{Failure, reply_error};
use crate::stream::open;
use crate::url::{Address, Login};

/// How long one sentinel may take: the next may be better.
const PATIENCE: Duration = Duration::from_millis(300);

/// The address of the master of this name, by the first sentinel that knows it.
pub(crate) async fn master(
    settings: &Settings,
    sentinels: &[Address],
    name: &str,
) -> Result<Address, BackendError> {
    let mut last = BackendError::new(ErrorKind::Unavailable, "there are no sentinels");
    for sentinel in sentinels {
        let asked = tokio::time::timeout(PATIENCE, ask(settings, sentinel, name)).await;
        match asked {
            Ok(Ok(address)) => return Ok(address),
            Ok(Err(error)) => last = error,
            Err(_) => {
                last = BackendError::new(
                    ErrorKind::Unavailable,
                    format!("sentinel {sentinel} did not answer within {PATIENCE:?}"),
                );
            }
        }
    }
    Err(last)
}

async fn ask(settings: &Settings, sentinel: &Address, name: &str) -> Result<Address, BackendError> {
    let stream = open(sentinel, settings.encryption.as_ref()).await?;
    let connection = Connection::over(stream, sentinel, settings.timeout).await?;
    let mut commands = redis::pipe();
    let Login { user, password } = &settings.target.sentinel_login;
    if let Some(password) = password {
        commands.cmd("AUTH");
        if let Some(user) = user {
            commands.arg(user);
        }
        commands.arg(password);
    }
    commands
        .cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(name);
    let mut replies = connection
        .pipeline(&commands)
        .await
        .map_err(|failure| match failure {
            Failure::Reply(error) => reply_error(&error),
            Failure::Broken(error) => error,
        })?;
    let unknown = || {
        BackendError::new(
            ErrorKind::Unavailable,
            format!("sentinel {sentinel} knows no master named {name:?}"),
        )
    };
    for reply in &replies {
        if let Value::ServerError(error) = reply {
            return Err(reply_error(error));
        }
    }
    match replies.pop() {
        Some(Value::Array(parts)) => match &parts[..] {
            [host, port] => {
                let port = text(port).and_then(|port| port.parse().ok());
                match (text(host), port) {
                    (Some(host), Some(port)) => Ok(Address::Tcp(host, port)),
                    _ => Err(unknown()),
                }
            }
            _ => Err(unknown()),
        },
        _ => Err(unknown()),
    }
}

/// The text of a reply.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}
