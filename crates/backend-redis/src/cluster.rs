//! A cluster: which node has a key, found out by us, so that what is sent twice is our decision.
//!
//! A call goes to the node that the map names. `MOVED`, `ASK`, `TRYAGAIN` and `CLUSTERDOWN` prove
//! that nothing ran, as does a node that cannot be connected to: those are followed up while there
//! is time. An answer that was lost never is; but who lost it looks for the node's successor.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Pipeline, Value};
use tollgate_core::{BackendError, ErrorKind};

use crate::ScriptCall;
use crate::client::note;
use crate::config::Settings;
use crate::connection::Connection;
use crate::dial::dial_node;
use crate::error::{Failure, reply_error};
use crate::flight::{Flight, Usable};
use crate::sentinel::text;
use crate::slot::{SLOTS, key_slot};
use crate::url::Address;

/// How often one call is followed up.
const FOLLOW_UPS: usize = 8;
/// The pause before asking again who is not ready.
const PAUSE: Duration = Duration::from_millis(20);
/// How long one node may take to tell the map: the next may be better.
const PATIENCE: Duration = Duration::from_millis(300);

pub(crate) struct Cluster {
    nodes: Arc<Nodes>,
    map: Flight<Map>,
}

/// Every node we know, with its connection.
struct Nodes {
    settings: Arc<Settings>,
    seeds: Vec<Address>,
    known: Mutex<HashMap<Address, Arc<Flight<Connection>>>>,
}

/// Which node has which slot.
struct Map {
    masters: Vec<Address>,
    /// The index of the master of each slot, or `NOBODY`.
    slots: Vec<u16>,
}

const NOBODY: u16 = u16::MAX;

impl Usable for Map {
    fn usable(&self) -> bool {
        true
    }
}

impl Cluster {
    pub(crate) fn new(settings: Arc<Settings>, seeds: &[Address]) -> Self {
        let nodes = Arc::new(Nodes {
            settings,
            seeds: seeds.to_vec(),
            known: Mutex::default(),
        });
        let asked = Arc::clone(&nodes);
        Self {
            nodes,
            map: Flight::new(move || ask_map(Arc::clone(&asked))),
        }
    }

    pub(crate) async fn warm_up(&self) -> Result<(), BackendError> {
        self.map.get().await.map(drop)
    }

    pub(crate) async fn run(&self, call: ScriptCall<'_>) -> Result<Vec<i64>, BackendError> {
        let slot = key_slot(call.key);
        let mut redirect: Option<(Address, bool)> = None;
        let mut follow_ups = 0;
        loop {
            let (address, asking) = match redirect.take() {
                Some(redirect) => redirect,
                None => (self.master(slot).await?, false),
            };
            let next = match self.run_at(&address, call, asking).await {
                Ok(answer) => return Ok(answer),
                Err(next) => next,
            };
            follow_ups += 1;
            match next {
                Next::Redirect(to, asking) if follow_ups < FOLLOW_UPS => {
                    redirect = Some((to, asking))
                }
                Next::Again(_) if follow_ups < FOLLOW_UPS => {
                    self.map.renew();
                    tokio::time::sleep(PAUSE).await;
                }
                Next::Redirect(to, _) => {
                    return Err(BackendError::new(
                        ErrorKind::NotReady,
                        format!("the cluster sent us around, last to {to}"),
                    ));
                }
                Next::Again(error) | Next::Fail(error) => return Err(error),
            }
        }
    }

    /// The reply to the last of some commands that change nothing, of whoever has the key.
    pub(crate) async fn ask(&self, key: &str, commands: &Pipeline) -> Result<Value, BackendError> {
        let slot = key_slot(key);
        let mut follow_ups = 0;
        loop {
            let address = self.master(slot).await?;
            let connection = self.nodes.node(&address).get().await?;
            let mut replies = connection.pipeline(commands).await?;
            match replies.pop() {
                Some(Value::ServerError(error)) if follow_ups < FOLLOW_UPS => match error.code() {
                    "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" => {
                        follow_ups += 1;
                        self.map.renew();
                        tokio::time::sleep(PAUSE).await;
                    }
                    _ => return Err(reply_error(&error)),
                },
                Some(reply) => return Ok(reply),
                None => return Ok(Value::Nil),
            }
        }
    }

    /// Where some master listens.
    pub(crate) async fn any_master(&self) -> Result<Address, BackendError> {
        let map = self.map.get().await?;
        map.masters
            .first()
            .cloned()
            .ok_or_else(|| BackendError::new(ErrorKind::NotReady, "the cluster has no masters"))
    }

    async fn master(&self, slot: u16) -> Result<Address, BackendError> {
        let map = self.map.get().await?;
        map.master(slot).cloned().ok_or_else(|| {
            self.map.renew();
            BackendError::new(
                ErrorKind::NotReady,
                format!("no node of the cluster serves slot {slot}"),
            )
        })
    }

    async fn run_at(
        &self,
        address: &Address,
        call: ScriptCall<'_>,
        asking: bool,
    ) -> Result<Vec<i64>, Next> {
        let node = self.nodes.node(address);
        let unanswered = LookAgain(Some(self));
        // Who cannot be connected to has run nothing.
        let connection = node.get().await.map_err(Next::unless_final)?;
        let answer = connection.run(call, asking).await;
        unanswered.answered();
        answer.map_err(|failure| self.next(call, &node, &connection, address, failure))
    }

    /// What to do about a failed call.
    fn next(
        &self,
        call: ScriptCall<'_>,
        node: &Flight<Connection>,
        connection: &Arc<Connection>,
        asked: &Address,
        failure: Failure,
    ) -> Next {
        match failure.code() {
            code @ ("MOVED" | "ASK") => {
                let moved = code == "MOVED";
                if moved {
                    self.map.renew();
                }
                match redirected(asked, failure.detail()) {
                    Some(to) => Next::Redirect(to, !moved),
                    None => Next::Again(failure.into()),
                }
            }
            // Some of its keys have moved already and some have not: each must go by itself.
            "TRYAGAIN" if !call.others.is_empty() => Next::Fail(failure.into()),
            "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" => Next::Again(failure.into()),
            "READONLY" => {
                // It was a master, and is one no more: the map is old.
                Next::Again(note(node, connection, failure))
            }
            _ => {
                let error = note(node, connection, failure);
                if error.may_have_charged() {
                    self.map.renew();
                }
                Next::Fail(error)
            }
        }
    }
}

/// What follows a failed call.
enum Next {
    /// The same at this node; with `ASKING` or without.
    Redirect(Address, bool),
    /// Nothing ran: the same once more, later.
    Again(BackendError),
    /// It may have run.
    Fail(BackendError),
}

impl Next {
    fn unless_final(error: BackendError) -> Self {
        if error.is_transient() {
            Self::Again(error)
        } else {
            Self::Fail(error)
        }
    }
}

/// Has the map asked for again if the call is dropped without an answer: a failover may be why.
struct LookAgain<'a>(Option<&'a Cluster>);

impl LookAgain<'_> {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for LookAgain<'_> {
    fn drop(&mut self) {
        if let Some(cluster) = self.0
            && tokio::runtime::Handle::try_current().is_ok()
        {
            cluster.map.renew();
        }
    }
}

impl Nodes {
    fn node(self: &Arc<Self>, address: &Address) -> Arc<Flight<Connection>> {
        let mut known = self.known.lock();
        let node = known.entry(address.clone()).or_insert_with(|| {
            let (settings, address) = (Arc::clone(&self.settings), address.clone());
            Arc::new(Flight::new(move || {
                dial_node(Arc::clone(&settings), address.clone())
            }))
        });
        Arc::clone(node)
    }

    /// Nodes that may know the map: those we are connected to, then the seeds, then the rest.
    fn to_ask(&self) -> Vec<Address> {
        let known = self.known.lock();
        let up = known
            .iter()
            .filter(|(_, node)| node.peek().is_some_and(|connection| connection.usable()))
            .map(|(address, _)| address.clone());
        let mut all: Vec<Address> = up.collect();
        for address in self.seeds.iter().chain(known.keys()) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }

    /// Drops the connections to nodes that are in the map no more.
    fn keep(&self, map: &Map) {
        self.known
            .lock()
            .retain(|address, _| map.masters.contains(address) || self.seeds.contains(address));
    }
}

async fn ask_map(nodes: Arc<Nodes>) -> Result<Map, BackendError> {
    let mut last = BackendError::new(ErrorKind::Unavailable, "the cluster has no nodes");
    for address in nodes.to_ask() {
        let node = nodes.node(&address);
        match tokio::time::timeout(PATIENCE, ask_one(&node, &address)).await {
            Ok(Ok(map)) => {
                nodes.keep(&map);
                return Ok(map);
            }
            Ok(Err(error)) if !error.is_transient() => return Err(error),
            Ok(Err(error)) => last = error,
            Err(_) => {
                last = BackendError::new(
                    ErrorKind::Unavailable,
                    format!("{address} did not answer within {PATIENCE:?}"),
                );
            }
        }
    }
    Err(last)
}

async fn ask_one(node: &Flight<Connection>, address: &Address) -> Result<Map, BackendError> {
    let connection = node.get().await?;
    let mut commands = redis::pipe();
    commands.cmd("CLUSTER").arg("SLOTS");
    let mut replies = connection.pipeline(&commands).await?;
    match replies.pop() {
        Some(Value::Array(ranges)) => Ok(Map::of(&ranges, address)),
        Some(Value::ServerError(error))
            if error.details().is_some_and(|d| d.contains("disabled")) =>
        {
            Err(BackendError::new(
                ErrorKind::Config,
                "the server is not part of a cluster; use a redis:// URL",
            ))
        }
        Some(Value::ServerError(error)) => Err(reply_error(&error)),
        _ => Err(BackendError::new(
            ErrorKind::Malformed,
            "CLUSTER SLOTS answered no list",
        )),
    }
}

impl Map {
    /// Reads `CLUSTER SLOTS`: of each range the first and last slot, and the master's address.
    fn of(ranges: &[Value], asked: &Address) -> Self {
        let mut map = Self {
            masters: Vec::new(),
            slots: vec![NOBODY; usize::from(SLOTS)],
        };
        for range in ranges {
            let Value::Array(range) = range else { continue };
            let [
                Value::Int(first),
                Value::Int(last),
                Value::Array(master),
                ..,
            ] = &range[..]
            else {
                continue;
            };
            let [host, Value::Int(port), ..] = &master[..] else {
                continue;
            };
            let Ok(port) = u16::try_from(*port) else {
                continue;
            };
            let address = node_address(asked, &text(host).unwrap_or_default(), port);
            let known = map.masters.iter().position(|master| *master == address);
            let index = known.unwrap_or_else(|| {
                map.masters.push(address);
                map.masters.len() - 1
            });
            for slot in (*first).max(0)..=(*last).min(i64::from(SLOTS) - 1) {
                map.slots[slot as usize] = index as u16;
            }
        }
        map
    }

    fn master(&self, slot: u16) -> Option<&Address> {
        let index = *self.slots.get(usize::from(slot))?;
        self.masters.get(usize::from(index))
    }
}

/// A node that does not know its own name is the one that was asked.
fn node_address(asked: &Address, host: &str, port: u16) -> Address {
    match asked {
        Address::Tcp(ours, _) if host.is_empty() || host == "?" => Address::Tcp(ours.clone(), port),
        _ => Address::Tcp(host.to_owned(), port),
    }
}

/// Where `MOVED 3999 127.0.0.1:6381` leads.
fn redirected(asked: &Address, detail: &str) -> Option<Address> {
    let (host, port) = detail.split_whitespace().nth(1)?.rsplit_once(':')?;
    Some(node_address(asked, host, port.parse().ok()?))
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("seeds", &self.nodes.seeds)
            .field("known", &self.nodes.known.lock().len())
            .field("map", &self.map)
            .finish()
    }
}
