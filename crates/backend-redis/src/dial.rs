//! Connecting to a node: open, log in, check, within the connect timeout.

use std::sync::Arc;

use tollgate_core::{BackendError, ErrorKind};

use crate::config::Settings;
use crate::connection::Connection;
use crate::handshake::{Greeting, Server, greet};
use crate::sentinel;
use crate::stream::open;
use crate::url::{Address, Topology};

/// A connection to the server, or to the one that the sentinels call master now.
pub(crate) async fn dial_master(settings: Arc<Settings>) -> Result<Connection, BackendError> {
    let address = match &settings.target.topology {
        Topology::Single(address) => address.clone(),
        Topology::Sentinel { sentinels, master } => {
            sentinel::master(&settings, sentinels, master).await?
        }
        Topology::Cluster(_) => {
            return Err(BackendError::new(
                ErrorKind::Config,
                "a cluster has no single master",
            ));
        }
    };
    let (connection, server) = dial(&settings, &address).await?;
    let sentinel = matches!(settings.target.topology, Topology::Sentinel { .. });
    if sentinel && server.is_replica() {
        // Sentinels agree before the server itself knows.
        return Err(BackendError::new(
            ErrorKind::ReadOnly,
            format!("{address} is to be master, and is still a replica"),
        ));
    }
    Ok(connection)
}

/// A connection to a node of a cluster.
pub(crate) async fn dial_node(
    settings: Arc<Settings>,
    address: Address,
) -> Result<Connection, BackendError> {
    dial(&settings, &address)
        .await
        .map(|(connection, _)| connection)
}

async fn dial(
    settings: &Settings,
    address: &Address,
) -> Result<(Connection, Server), BackendError> {
    let target = &settings.target;
    let dialing = async {
        let stream = open(address, settings.encryption.as_ref()).await?;
        let connection = Connection::over(stream, address, settings.timeout).await?;
        let greeting = Greeting {
            login: &target.login,
            db: target.db,
            resp3: target.resp3,
        };
        let server = greet(&connection, greeting).await?;
        Ok((connection, server))
    };
    let dialed = tokio::time::timeout(settings.connect_timeout, dialing)
        .await
        .unwrap_or_else(|_| {
            Err(BackendError::new(
                ErrorKind::Unavailable,
                format!(
                    "{address} did not answer within {:?}",
                    settings.connect_timeout
                ),
            ))
        })?;
    warn(settings, dialed.1.warnings());
    Ok(dialed)
}

/// Keeps what the server told, and logs what is new.
fn warn(settings: &Settings, found: Vec<String>) {
    let mut warnings = settings.warnings.lock();
    for warning in &found {
        if !warnings.contains(warning) {
            tracing::warn!(store = %settings.target, "{warning}");
        }
    }
    *warnings = found;
}
