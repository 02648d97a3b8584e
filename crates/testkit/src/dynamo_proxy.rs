//! What stands between a client and a DynamoDB: counts the calls, and answers, delays or loses them.

mod units;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::port;

pub use units::Units;

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// It is answered with this status and this exception, and nobody else hears of it.
    Answer(u16, String),
    /// It is forwarded, and its answer is lost: the connection closes.
    LoseAnswer,
    /// It is forwarded after so long.
    Delay(Duration),
    /// It is taken, and nothing comes back.
    Silence,
    /// The connection closes, and nobody hears of it.
    Cut,
}

impl Mischief {
    /// An exception of DynamoDB's, with status 400.
    #[must_use]
    pub fn exception(name: &str) -> Self {
        Self::Answer(400, name.into())
    }
}

/// A proxy before a DynamoDB, call by call. It speaks HTTP/1.1 as far as the SDK does.
///
/// ```no_run
/// # async fn example() {
/// use tollgate_testkit::{DynamoProxy, LocalDynamo, Mischief};
///
/// let server = LocalDynamo::start().await;
/// let proxy = DynamoProxy::start(server.address()).await;
/// proxy.always(Mischief::exception("ThrottlingException"));
/// // .. a charge through proxy.endpoint() ..
/// assert_eq!(proxy.calls("UpdateItem"), 1);
/// proxy.well();
/// # }
/// ```
#[derive(Debug)]
pub struct DynamoProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    state: std::sync::Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    calls: BTreeMap<String, u64>,
    connections: u64,
    /// What calls have cost, if that is asked for.
    units: Option<Units>,
    next: VecDeque<(String, Mischief)>,
    always: Option<Mischief>,
}

impl DynamoProxy {
    /// Listens on a free port before a server.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = port::listen().await;
        let address = listener.local_addr().expect("it listens");
        let shared = Arc::new(Shared {
            server,
            state: std::sync::Mutex::default(),
            changed: Notify::new(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            accepting,
        }
    }

    /// `http://` and its address.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many calls of an operation came, such as `UpdateItem`.
    #[must_use]
    pub fn calls(&self, operation: &str) -> u64 {
        self.state().calls.get(operation).copied().unwrap_or(0)
    }

    /// How many calls came in all.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        self.state().calls.values().sum()
    }

    /// How many connections were made.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.state().connections
    }

    /// Asks what each call costs, from now on.
    pub fn measure(&self) {
        self.state().units = Some(Units::default());
    }

    /// What all calls since [`measure`](Self::measure) have cost. A write that its condition refused
    /// counts by what comes back, a unit a KB.
    #[must_use]
    pub fn units(&self) -> Units {
        self.state().units.unwrap_or_default()
    }

    /// Does this to the next call of an operation; several add up, in order.
    pub fn once(&self, operation: &str, mischief: Mischief) {
        self.state().next.push_back((operation.into(), mischief));
    }

    /// Does this to every call, from now on.
    pub fn always(&self, mischief: Mischief) {
        self.state().always = Some(mischief);
        self.shared.changed.notify_waiters();
    }

    /// Leaves calls alone. Those that wait in silence are lost.
    pub fn well(&self) {
        let mut state = self.state();
        state.always = None;
        state.next.clear();
        drop(state);
        self.shared.changed.notify_waiters();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Drop for DynamoProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    fn measures(&self) -> bool {
        self.state().units.is_some()
    }

    /// Adds what a call has cost.
    fn add(&self, cost: Units) {
        if let Some(units) = &mut self.state().units {
            units.read += cost.read;
            units.written += cost.written;
        }
    }

    /// Counts a call, and says what is to happen to it.
    fn meet(&self, operation: &str) -> Option<Mischief> {
        let mut state = self.state();
        *state.calls.entry(operation.into()).or_default() += 1;
        let next = state.next.iter().position(|(name, _)| name == operation);
        match next {
            Some(index) => state.next.remove(index).map(|(_, mischief)| mischief),
            None => state.always.clone(),
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Ends, and so closes its connections, with the proxy.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        shared.state().connections += 1;
        let shared = Arc::clone(&shared);
        connections.spawn(async move { serve(client, &shared).await });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut server = None;
    let mut bytes = Vec::new();
    while let Some(message) = read_message(&mut client, &mut bytes).await? {
        let operation = header(&message, "x-amz-target");
        let operation = operation.rsplit('.').next().unwrap_or_default().to_owned();
        // To be told of a change that comes from here on.
        let changed = shared.changed.notified();
        let mischief = shared.meet(&operation);
        match &mischief {
            Some(Mischief::Answer(status, exception)) => {
                client.write_all(&answer(*status, exception)).await?;
                continue;
            }
            Some(Mischief::Silence) => {
                changed.await;
                return Ok(());
            }
            Some(Mischief::Cut) => return Ok(()),
            Some(Mischief::Delay(by)) => tokio::time::sleep(*by).await,
            Some(Mischief::LoseAnswer) | None => {}
        }
        let stream = match &mut server {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(shared.server).await?;
                stream.set_nodelay(true)?;
                server.insert(stream)
            }
        };
        if shared.measures() {
            stream.write_all(&units::ask(&message)).await?;
        } else {
            stream.write_all(&message).await?;
        }
        let mut rest = Vec::new();
        let Some(reply) = read_message(stream, &mut rest).await? else {
            return Ok(());
        };
        shared.add(units::told(&operation, &reply));
        if mischief == Some(Mischief::LoseAnswer) {
            return Ok(());
        }
        client.write_all(&reply).await?;
    }
    Ok(())
}

/// One request or answer whose length is stated; `None` at the end. What follows stays in `bytes`.
async fn read_message(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(head) = head {
            let body = header(&bytes[..head + 4], "content-length");
            let length = head + 4 + body.parse::<usize>().unwrap_or(0);
            if bytes.len() >= length {
                return Ok(Some(bytes.drain(..length).collect()));
            }
        }
        if stream.read_buf(bytes).await? == 0 {
            return Ok(None);
        }
    }
}

/// The value of a header; empty if there is none.
fn header(message: &[u8], name: &str) -> String {
    let head = message.windows(4).position(|four| four == b"\r\n\r\n");
    let head = String::from_utf8_lossy(&message[..head.unwrap_or(message.len())]).into_owned();
    let found = head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found
            .eq_ignore_ascii_case(name)
            .then(|| value.trim().to_owned())
    });
    found.unwrap_or_default()
}

fn answer(status: u16, exception: &str) -> Vec<u8> {
    let body = format!(
        r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{exception}","message":"a test"}}"#
    );
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Test\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
