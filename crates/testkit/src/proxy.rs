//! A TCP proxy that does to a store's traffic what networks do, when the test says so.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use tollgate_testkit::{FaultProxy, Rule};
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # let store = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let address = store.local_addr()?;
//! # tokio::spawn(async move { let mut c = store.accept().await?.0; let mut b = [0; 64];
//! #     while c.read(&mut b).await? > 0 { c.write_all(b"+PONG\r\n").await?; }
//! #     Ok::<(), std::io::Error>(()) });
//! let proxy = FaultProxy::start(address).await;
//! // The reply to the first PING is another one than the store gave.
//! proxy.on(Rule::command("PING").reply("-LOADING dataset\r\n"));
//! let mut client = tokio::net::TcpStream::connect(proxy.address()).await?;
//! client.write_all(b"*1\r\n$4\r\nPING\r\n").await?;
//! proxy.wait_for_commands(1).await;
//! # let mut reply = [0; 18]; client.read_exact(&mut reply).await?;
//! # assert_eq!(&reply, b"-LOADING dataset\r\n");
//! assert_eq!(proxy.commands_named("PING"), 1);
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```

mod connection;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use rule::Action;
pub use rule::Rule;

use crate::resp::Reply;
use crate::wait::within;

/// Stands between a client and a server that speaks the protocol of Redis or of memcached, counts
/// commands, and breaks what it is told to break.
///
/// Dropping it closes everything. It belongs to the runtime that started it.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    protocol: Protocol,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// How commands and replies are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Redis,
    Memcached,
}

impl Protocol {
    /// The name of the first whole command in `bytes`, and its length.
    fn command(self, bytes: &[u8]) -> Option<(String, usize)> {
        match self {
            Self::Redis => crate::resp::command(bytes),
            Self::Memcached => crate::memcached::command(bytes),
        }
    }

    /// What a test gives as the answer to a command.
    fn answer(self, command: &[u8], answer: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Redis => answer,
            Self::Memcached => crate::memcached::answer(command, answer),
        }
    }

    /// The length of the first whole reply in `bytes`, and whether nobody asked for it.
    fn reply(self, bytes: &[u8]) -> Option<(usize, bool)> {
        match self {
            Self::Redis => {
                Reply::parse(bytes).map(|(reply, length)| (length, matches!(reply, Reply::Push(_))))
            }
            Self::Memcached => crate::memcached::reply(bytes).map(|length| (length, false)),
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Changes with every command, connection and fault, so that all who wait look again.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    upstream: SocketAddr,
    mode: Mode,
    delay: Duration,
    rules: Vec<Rule>,
    commands: HashMap<String, u64>,
    connections: u64,
    open: u64,
    /// Connections of an earlier era are closed.
    era: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Forwards.
    Pass,
    /// Accepts, reads and counts; forwards nothing and never answers.
    Silent,
    /// Forwards commands, holds replies back.
    Hold,
    /// Nobody listens.
    Refuse,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked leaves nothing half changed here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let value = f(&mut self.state());
        self.changed.send_modify(|count| *count += 1);
        value
    }

    /// Counts a command and says what is to be done to it.
    fn command(&self, name: &str) -> Action {
        self.change(|state| {
            *state.commands.entry(name.into()).or_default() += 1;
            let action = state.rules.iter_mut().find_map(|rule| rule.meet(name));
            action.unwrap_or(Action::Forward)
        })
    }
}

impl FaultProxy {
    /// Listens on a free port of 127.0.0.1 in front of a Redis, which need not be up yet.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn start(upstream: SocketAddr) -> Self {
        Self::start_with(Protocol::Redis, upstream).await
    }

    /// The same in front of a memcached. Commands have their own names there: `MG`, `MS`, `MD`. In
    /// an answer that a [`Rule`] gives `{opaque}` stands for the number (`O12`) by which the client
    /// knows the answer to its command.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn start_memcached(upstream: SocketAddr) -> Self {
        Self::start_with(Protocol::Memcached, upstream).await
    }

    async fn start_with(protocol: Protocol, upstream: SocketAddr) -> Self {
        let listener = crate::port::listen().await;
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                upstream,
                mode: Mode::Pass,
                delay: Duration::ZERO,
                rules: Vec::new(),
                commands: HashMap::new(),
                connections: 0,
                open: 0,
                era: 0,
            }),
            changed: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, protocol, Arc::clone(&shared)));
        Self {
            address,
            protocol,
            shared,
            accepting,
        }
    }

    /// Where clients connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `redis://` or `memcached://`, and the address.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = match self.protocol {
            Protocol::Redis => "redis",
            Protocol::Memcached => "memcached",
        };
        format!("{scheme}://{}", self.address)
    }

    /// Sends new connections elsewhere.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.shared.change(|state| state.upstream = upstream);
    }

    /// Adds a rule. For each command the first rule that matches acts.
    pub fn on(&self, rule: Rule) {
        self.shared.change(|state| state.rules.push(rule));
    }

    /// Accepts, and from now on neither forwards nor answers. A connection whose commands were lost
    /// so stays dead after [`restore`](Self::restore), as one does over a broken network.
    pub fn stay_silent(&self) {
        self.shared.change(|state| state.mode = Mode::Silent);
    }

    /// Forwards commands, but holds the replies back until [`restore`](Self::restore); then they
    /// arrive late.
    pub fn hold_replies(&self) {
        self.shared.change(|state| state.mode = Mode::Hold);
    }

    /// Every reply from now on comes so much later.
    pub fn delay_replies(&self, by: Duration) {
        self.shared.change(|state| state.delay = by);
    }

    /// Closes the port and every connection: clients are refused.
    pub async fn refuse(&self) {
        self.shared.change(|state| {
            state.mode = Mode::Refuse;
            state.era += 1;
        });
        let refused = async || TcpStream::connect(self.address).await.is_err();
        crate::wait_until("a closed port", Duration::from_secs(5), refused).await;
    }

    /// Closes every connection that is open now.
    pub fn kill_connections(&self) {
        self.shared.change(|state| state.era += 1);
    }

    /// Ends every fault and forgets every rule. Returns when the port accepts again.
    pub async fn restore(&self) {
        self.shared.change(|state| {
            state.mode = Mode::Pass;
            state.delay = Duration::ZERO;
            state.rules.clear();
        });
        let accepted = async || TcpStream::connect(self.address).await.is_ok();
        crate::wait_until("an open port", Duration::from_secs(5), accepted).await;
    }

    /// How many commands came, whatever became of them. Those by which a client introduces itself
    /// (HELLO, AUTH, SELECT, CLIENT) count too.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.shared.state().commands.values().sum()
    }

    /// How many of this name came; capitals or not.
    #[must_use]
    pub fn commands_named(&self, name: &str) -> u64 {
        let name = name.to_ascii_uppercase();
        self.shared
            .state()
            .commands
            .get(&name)
            .copied()
            .unwrap_or(0)
    }

    /// How many connections were ever accepted.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.state().connections
    }

    /// How many are open.
    #[must_use]
    pub fn open_connections(&self) -> u64 {
        self.shared.state().open
    }

    /// Returns when so many commands have come in all.
    ///
    /// # Panics
    /// When they do not come within 10 s.
    pub async fn wait_for_commands(&self, count: u64) {
        let what = format!("{count} commands at the proxy");
        self.wait(&what, || self.commands() >= count).await;
    }

    /// Returns when so many commands of this name have come.
    ///
    /// # Panics
    /// When they do not come within 10 s.
    pub async fn wait_for(&self, name: &str, count: u64) {
        let what = format!("{count} {name} at the proxy");
        self.wait(&what, || self.commands_named(name) >= count)
            .await;
    }

    async fn wait(&self, what: &str, reached: impl Fn() -> bool + Send + Sync) {
        let mut changed = self.shared.changed.subscribe();
        let waiting = async {
            while !reached() {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        within(what, Duration::from_secs(10), waiting).await;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.kill_connections();
    }
}

/// Accepts for as long as somebody should listen, and listens again when somebody should again.
async fn accept(listener: TcpListener, protocol: Protocol, shared: Arc<Shared>) {
    let address = listener.local_addr().expect("a listener has an address");
    let mut listener = Some(listener);
    let mut changed = shared.changed.subscribe();
    loop {
        changed.borrow_and_update();
        let refusing = shared.state().mode == Mode::Refuse;
        if refusing {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await.ok(),
                None => std::future::pending().await,
            }
        };
        // A port that somebody else took meanwhile is tried again.
        let retry = async {
            match listener.is_none() && !refusing {
                true => tokio::time::sleep(Duration::from_millis(5)).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((client, _)) = accepted => {
                tokio::spawn(connection::serve(client, protocol, Arc::clone(&shared)));
            }
            _ = changed.changed() => {}
            () = retry => {}
        }
    }
}
