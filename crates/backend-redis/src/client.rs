//! Our own client: one multiplexed connection a node, made anew by itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Pipeline, Value};
use tollgate_core::{BackendError, ErrorKind};

use crate::cluster::Cluster;
use crate::config::Settings;
use crate::connection::Connection;
use crate::dial::dial_master;
use crate::error::Failure;
use crate::flight::Flight;
use crate::sentinel;
use crate::url::{Address, Topology};
use crate::{Merging, RedisExecutor, ScriptCall};

/// After a replica has refused a write the connection is dropped, so that a failover is noticed, and
/// for so long nobody connects again.
const READ_ONLY_PAUSE: Duration = Duration::from_millis(100);

/// The client that a [`Builder`](crate::Builder) makes. Clones share the connections.
#[derive(Clone)]
pub struct Client {
    settings: Arc<Settings>,
    nodes: Arc<Nodes>,
}

#[derive(Debug)]
enum Nodes {
    One(Flight<Connection>),
    Cluster(Cluster),
}

impl Client {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        let nodes = if let Topology::Cluster(seeds) = &settings.target.topology {
            Nodes::Cluster(Cluster::new(Arc::clone(&settings), seeds))
        } else {
            let settings = Arc::clone(&settings);
            Nodes::One(Flight::new(move || dial_master(Arc::clone(&settings))))
        };
        Self {
            settings,
            nodes: Arc::new(nodes),
        }
    }

    /// Connects once, within the connect timeout.
    pub(crate) async fn warm_up(&self) -> Result<(), BackendError> {
        match &*self.nodes {
            Nodes::One(connection) => connection.get().await.map(drop),
            Nodes::Cluster(cluster) => cluster.warm_up().await,
        }
    }

    pub(crate) fn warnings(&self) -> Arc<Mutex<Vec<String>>> {
        Arc::clone(&self.settings.warnings)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(&*self.nodes, Nodes::Cluster(_))
    }

    /// Sends commands about one key, which change nothing, to whoever has it; the reply to the last.
    pub(crate) async fn ask(&self, key: &str, commands: &Pipeline) -> Result<Value, BackendError> {
        let timeout = self.settings.timeout;
        let ask = async {
            match &*self.nodes {
                Nodes::One(flight) => {
                    let connection = flight.get().await?;
                    let replies = connection.pipeline(commands).await?;
                    Ok(replies.into_iter().next_back().unwrap_or(Value::Nil))
                }
                Nodes::Cluster(cluster) => cluster.ask(key, commands).await,
            }
        };
        tokio::time::timeout(timeout, ask)
            .await
            .unwrap_or_else(|_| Err(self.late()))
    }

    /// Where a node that takes writes listens; of a cluster, any.
    pub(crate) async fn any_master(&self) -> Result<Address, BackendError> {
        match &self.settings.target.topology {
            Topology::Single(address) => Ok(address.clone()),
            Topology::Sentinel { sentinels, master } => {
                sentinel::master(&self.settings, sentinels, master).await
            }
            Topology::Cluster(seeds) => match &*self.nodes {
                Nodes::Cluster(cluster) => cluster.any_master().await,
                Nodes::One(_) => Ok(seeds[0].clone()),
            },
        }
    }

    fn late(&self) -> BackendError {
        let (target, timeout) = (&self.settings.target, self.settings.timeout);
        BackendError::new(
            ErrorKind::Timeout,
            format!("no answer from {target} within {timeout:?}"),
        )
    }

    async fn run_unbounded(&self, call: ScriptCall<'_>) -> Result<Vec<i64>, BackendError> {
        match &*self.nodes {
            Nodes::One(flight) => {
                let connection = flight.get().await?;
                let answer = connection.run(call, false).await;
                answer.map_err(|failure| note(flight, &connection, failure))
            }
            Nodes::Cluster(cluster) => cluster.run(call).await,
        }
    }
}

impl RedisExecutor for Client {
    fn own_client(&self) -> Option<&Client> {
        Some(self)
    }

    fn merging(&self) -> Merging {
        match &*self.nodes {
            Nodes::One(_) => Merging::Always,
            Nodes::Cluster(_) => Merging::WithinSlot,
        }
    }

    async fn run(&self, call: ScriptCall<'_>) -> Result<Vec<i64>, BackendError> {
        let timeout = self.settings.timeout;
        tokio::time::timeout(timeout, self.run_unbounded(call))
            .await
            .unwrap_or_else(|_| Err(self.late()))
    }
}

/// Draws the conclusions from a failed call on a connection.
pub(crate) fn note(
    flight: &Flight<Connection>,
    connection: &Arc<Connection>,
    failure: Failure,
) -> BackendError {
    let error = BackendError::from(failure);
    match error.kind() {
        ErrorKind::ReadOnly => flight.lose(connection, READ_ONLY_PAUSE, &error),
        // A password that was changed: the next connection says so, or logs in anew.
        ErrorKind::Auth => connection.give_up(),
        _ => {}
    }
    error
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.settings.target, f)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("target", &self.settings.target)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
