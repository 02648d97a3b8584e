//! The connections to one server: at most so many, made when needed, each used by one call at a
//! time.
//!
//! The pool has moments, which are numbers in the order of what happens. They answer two questions
//! that time cannot:
//! - Is the server that gave this token the one that runs now? memcached numbers its values from 1
//!   after each start, so after a restart a token may by chance be that of somebody else's value. A
//!   token is therefore used only over a connection that was there before it was asked for: one
//!   that still works has the same server behind it now as then.
//! - Which idle connections are in doubt? When an exchange fails, or its caller gives up on it, those
//!   that were not seen to work since it began may lead to the same nowhere. They are dropped, so
//!   that a network that is back is used at once, and not one lost call later for each of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use memcache::exp::{Error, MetaCommand, MetaCommandResult, ReturnCode, parse_meta_result};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_core::{BackendError, ErrorKind};

use crate::connection::Connection;
use crate::error;
use crate::url::Address;

/// Names one version of a value, and the moment before it was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) cas: u64,
    pub(crate) asked: u64,
}

/// One server and the connections to it.
pub(crate) struct Server {
    address: Address,
    connect_timeout: Duration,
    slots: Arc<Semaphore>,
    /// The last one that was used is used next.
    idle: Mutex<Vec<Connection>>,
    moment: AtomicU64,
}

impl Server {
    pub(crate) fn new(address: Address, pool: usize, connect_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            address,
            connect_timeout,
            slots: Arc::new(Semaphore::new(pool)),
            idle: Mutex::default(),
            moment: AtomicU64::new(1),
        })
    }

    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    fn next_moment(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst)
    }

    /// Sends a command over any connection; the answer, and the moment before it was asked.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        command: MetaCommand,
    ) -> Result<(MetaCommandResult, u64), BackendError> {
        let permit = self.permit().await?;
        let connection = self.take(|_| true);
        let mut checkout = match connection {
            Some(connection) => Checkout::new(self, connection, permit),
            None => self.dial(permit).await?,
        };
        checkout.exchange(command).await
    }

    /// Sends a command that names a token. `None`, and nothing was sent, if no connection is idle
    /// that proves that the server is still the one that gave it.
    pub(crate) async fn ask_with(
        self: &Arc<Self>,
        token: Token,
        command: MetaCommand,
    ) -> Result<Option<(MetaCommandResult, u64)>, BackendError> {
        let permit = self.permit().await?;
        let Some(connection) = self.take(|connection| connection.made < token.asked) else {
            return Ok(None);
        };
        let mut checkout = Checkout::new(self, connection, permit);
        checkout.exchange(command).await.map(Some)
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, BackendError> {
        let permit = Arc::clone(&self.slots).acquire_owned().await;
        permit.map_err(|_| BackendError::new(ErrorKind::Unavailable, "the pool is closed"))
    }

    /// The idle connection that was used last among those that will do and are alive.
    fn take(&self, will_do: impl Fn(&Connection) -> bool) -> Option<Connection> {
        let mut idle = self.idle.lock();
        loop {
            let found = idle.iter().rposition(&will_do)?;
            let connection = idle.remove(found);
            if connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    /// Connects, in a task of its own that ends with the connect timeout: a caller who has less time
    /// than connecting takes leaves the connection to the next one.
    async fn dial(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Checkout, BackendError> {
        let server = Arc::clone(self);
        let dialing = tokio::spawn(async move {
            let opening = Connection::open(&server.address);
            let opened = match tokio::time::timeout(server.connect_timeout, opening).await {
                Ok(opened) => opened,
                Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
            };
            let opened = opened.map_err(|error| error::of_connect(&server.address, error))?;
            let connection = Connection::new(opened, server.next_moment());
            Ok(Checkout::new(&server, connection, permit))
        });
        dialing.await.unwrap_or_else(|error| {
            let what = "the task that connects ended early";
            Err(BackendError::new(ErrorKind::Unavailable, what).with_source(error))
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .field("idle", &self.idle.lock().len())
            .finish_non_exhaustive()
    }
}

/// A connection in use. Dropped between exchanges it is idle again; dropped in one it is closed,
/// because the answer is still to come.
struct Checkout {
    server: Arc<Server>,
    connection: Option<Connection>,
    /// When the exchange began that is under way.
    began: Option<u64>,
    _permit: OwnedSemaphorePermit,
}

impl Checkout {
    fn new(server: &Arc<Server>, connection: Connection, permit: OwnedSemaphorePermit) -> Self {
        Self {
            server: Arc::clone(server),
            connection: Some(connection),
            began: None,
            _permit: permit,
        }
    }

    async fn exchange(
        &mut self,
        command: MetaCommand,
    ) -> Result<(MetaCommandResult, u64), BackendError> {
        let began = self.server.next_moment();
        self.began = Some(began);
        let connection = self.connection.as_mut();
        let connection = connection.expect("it is given back only when this is dropped");
        let number = format!("O{began}");
        let command = command.flag(number.as_str());
        let answer = connection.execute(&command).await;
        let address = &self.server.address;
        match answer.and_then(parse_meta_result) {
            Ok(result) => {
                // The server gives the number back, but for what is not there. Another one is the
                // answer to something else: what follows on this connection is too.
                let told = result.opaque.as_deref();
                if result.rc != ReturnCode::En && told != Some(&number.as_bytes()[1..]) {
                    return Err(error::of_answer(address));
                }
                connection.works(self.server.next_moment());
                self.began = None;
                Ok((result, began))
            }
            Err(error) => {
                // A refusal of the server says nothing against the other connections.
                if matches!(error, Error::Server(_) | Error::Rejected(_)) {
                    self.connection = None;
                }
                Err(error::of_exchange(address, error))
            }
        }
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        let mut idle = self.server.idle.lock();
        match self.began {
            None => idle.push(connection),
            Some(began) => idle.retain(|other| other.worked() > began),
        }
    }
}
