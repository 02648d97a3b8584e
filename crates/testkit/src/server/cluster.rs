//! A cluster of masters, with or without replicas.

use std::time::Duration;

use super::{PATIENCE, RedisBuilder, RedisServer};
use crate::{Reply, wait_until};

/// How many slots there are.
const SLOTS: u16 = 16_384;

/// Three masters that share the slots, and as many replicas as are asked for.
///
/// A cluster takes about 2 s until it says that it is well, whatever one does.
#[derive(Debug)]
pub struct RedisCluster {
    /// Masters first, then the replicas, in the order of their masters.
    nodes: Vec<RedisServer>,
    masters: usize,
}

impl RedisCluster {
    /// Three masters.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start() -> Self {
        Self::start_with(RedisServer::builder(), 0).await
    }

    /// Three masters with a replica each, which takes over within 2 to 3 s.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start_with_replicas() -> Self {
        Self::start_with(RedisServer::builder(), 1).await
    }

    /// Three masters with so many replicas each, with these settings.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start_with(builder: RedisBuilder, replicas: usize) -> Self {
        const MASTERS: usize = 3;
        let builder = builder
            .set("cluster-enabled", "yes")
            .set("cluster-node-timeout", "1000");
        let mut nodes = Vec::new();
        for _ in 0..MASTERS * (1 + replicas) {
            nodes.push(builder.clone().start().await);
        }
        let cluster = Self {
            nodes,
            masters: MASTERS,
        };
        cluster.assemble().await;
        cluster
    }

    async fn assemble(&self) {
        let share = usize::from(SLOTS).div_ceil(self.masters);
        for (i, node) in self.masters().iter().enumerate() {
            let end = usize::from(SLOTS).min((i + 1) * share);
            // One by one: 6.2 has no command for a range.
            let mut words = vec!["CLUSTER".to_owned(), "ADDSLOTS".into()];
            words.extend((i * share..end).map(|slot| slot.to_string()));
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            ok(node, &words).await;
            ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]).await;
        }
        let (first, others) = self.nodes.split_first().expect("there are masters");
        for node in others {
            let port = node.port().to_string();
            ok(first, &["CLUSTER", "MEET", "127.0.0.1", &port]).await;
        }
        let all = self.nodes.len().to_string();
        for node in &self.nodes {
            info(node, "CLUSTER", &format!("cluster_known_nodes:{all}")).await;
        }
        for (i, node) in self.nodes[self.masters..].iter().enumerate() {
            let master = self.nodes[i % self.masters]
                .command(&["CLUSTER", "MYID"])
                .await;
            let master = master.text().expect("a node has a name");
            ok(node, &["CLUSTER", "REPLICATE", &master]).await;
        }
        for node in &self.nodes {
            info(node, "CLUSTER", "cluster_state:ok").await;
        }
        for node in &self.nodes[self.masters..] {
            info(node, "replication", "master_link_status:up").await;
        }
    }

    /// The nodes that were made masters.
    #[must_use]
    pub fn masters(&self) -> &[RedisServer] {
        &self.nodes[..self.masters]
    }

    /// All nodes, masters first.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// One node, to kill or freeze.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn node(&mut self, index: usize) -> &mut RedisServer {
        &mut self.nodes[index]
    }

    /// `redis+cluster://` with the addresses of all masters.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses = self.masters().iter().map(|node| node.address().to_string());
        format!(
            "redis+cluster://{}",
            addresses.collect::<Vec<_>>().join(",")
        )
    }
}

async fn ok(node: &RedisServer, words: &[&str]) {
    let reply = node.command(words).await;
    assert_eq!(reply, Reply::Text("OK".into()), "{:?}", &words[..2]);
}

/// Waits until a line of `CLUSTER INFO` or of a section of `INFO` is this one.
async fn info(node: &RedisServer, section: &str, line: &str) {
    let words = match section {
        "CLUSTER" => ["CLUSTER", "INFO"],
        section => ["INFO", section],
    };
    let says = async || {
        let info = node.command(&words).await.text().unwrap_or_default();
        info.lines().any(|found| found.trim_end() == line)
    };
    let patience = PATIENCE.max(Duration::from_secs(20));
    wait_until(&format!("{line} on port {}", node.port()), patience, says).await;
}
