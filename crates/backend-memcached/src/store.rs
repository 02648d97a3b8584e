//! The servers as one store of bytes that can compare and swap.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use memcache::exp::ReturnCode;
use tokio::time::Instant;
use tollgate_core::{BackendError, Clock, ErrorKind, StateStore, SystemClock, Versioned};

use crate::config::Settings;
use crate::error;
use crate::memory::Memory;
use crate::pool::{Server, Token};
use crate::record;
use crate::ring::Ring;
use crate::turns::Turns;

/// How long the value of a ping lives, in seconds.
const PING_EXPIRY: u32 = 60;

/// So many attempts follow one another at once.
const IMMEDIATE: u32 = 12;

/// Never waits longer than this between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(4);

#[derive(Debug)]
pub(crate) struct MemcachedStore {
    settings: Arc<Settings>,
    servers: Vec<Arc<Server>>,
    ring: Ring,
    memory: Memory,
    turns: Turns,
}

impl MemcachedStore {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        let connect = |address: &crate::url::Address| {
            Server::new(address.clone(), settings.pool, settings.connect_timeout)
        };
        Self {
            servers: settings.servers.iter().map(connect).collect(),
            ring: Ring::new(&settings.servers),
            memory: Memory::new(settings.memory),
            turns: Turns::default(),
            settings,
        }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.settings.connect_timeout
    }

    fn server(&self, key: &str) -> &Arc<Server> {
        &self.servers[self.ring.server(&record::wire_key(key))]
    }

    /// Writes to every server, so that one that cannot keep anything is not reported well. All of it
    /// takes no longer than the limit; the error names the server.
    pub(crate) async fn ping(&self, key: &str, limit: Duration) -> Result<(), BackendError> {
        let began = Instant::now();
        for server in &self.servers {
            let asked = server.ask(record::set(key, b"1", PING_EXPIRY));
            let left = limit.saturating_sub(began.elapsed());
            let (answer, _) = match tokio::time::timeout(left, asked).await {
                Ok(answer) => answer?,
                Err(_) => return Err(error::of_silence(server.address(), limit)),
            };
            match (answer.rc, answer.cas) {
                (ReturnCode::Hd, Some(0)) => return Err(error::without_cas(server.address())),
                (ReturnCode::Hd, Some(_)) => {}
                _ => return Err(error::of_answer(server.address())),
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        key: &str,
        number: u128,
        expected: Option<Token>,
        value: &[u8],
        ttl: Duration,
    ) -> Result<bool, BackendError> {
        let server = self.server(key);
        let expiry = record::expiry(ttl, SystemClock.now());
        let (answer, asked) = match expected {
            None => server.ask(record::add(key, value, expiry)).await?,
            Some(token) => {
                let command = record::swap(key, value, expiry, token.cas);
                match server.ask_with(token, command).await? {
                    Some(answer) => answer,
                    None => {
                        self.memory.forget(number);
                        return Ok(false);
                    }
                }
            }
        };
        match (answer.rc, answer.cas) {
            (ReturnCode::Hd, Some(0)) => Err(error::without_cas(server.address())),
            (ReturnCode::Hd, Some(cas)) => {
                self.memory.wrote(number, value, Token { cas, asked });
                Ok(true)
            }
            // Another value is there, or there is one already.
            (ReturnCode::Ex | ReturnCode::Ns, _) => {
                self.memory.lost(number);
                Ok(false)
            }
            // It expired, or the server needed the room.
            (ReturnCode::Nf, _) => {
                self.memory.forget(number);
                Ok(false)
            }
            _ => Err(error::of_answer(server.address())),
        }
    }
}

impl StateStore for MemcachedStore {
    type Token = Token;

    async fn load(&self, key: &str) -> Result<Option<Versioned<Token>>, BackendError> {
        let server = self.server(key);
        let (answer, asked) = server.ask(record::get(key)).await?;
        match (answer.rc, answer.value, answer.cas) {
            (ReturnCode::En, ..) => Ok(None),
            (ReturnCode::Va, _, Some(0)) => Err(error::without_cas(server.address())),
            (ReturnCode::Va, Some(value), Some(cas)) => {
                let token = Token { cas, asked };
                Ok(Some(Versioned { value, token }))
            }
            _ => Err(error::of_answer(server.address())),
        }
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<Token>,
        value: Vec<u8>,
        ttl: Duration,
    ) -> Result<bool, BackendError> {
        // A server that is sent more than it takes drops what it had, and with it all that was used.
        if value.len() as u64 > self.settings.item_limit {
            return Err(BackendError::new(
                ErrorKind::Unsupported,
                format!(
                    "the record would have {} bytes, and item_limit is {}: sliding_log keeps each \
                     admission, so take another algorithm or a smaller limit, or raise item_limit and the \
                     -I of the servers",
                    value.len(),
                    self.settings.item_limit
                ),
            ));
        }
        // Nobody looks at it where nothing is remembered.
        let number = match self.memory.is_on() {
            true => self.memory.number(key),
            false => 0,
        };
        let written = self.write(key, number, expected, &value, ttl).await;
        if written.is_err() {
            self.memory.forget(number);
        }
        written
    }

    fn recall(&self, key: &str) -> Option<Versioned<Token>> {
        if !self.memory.is_on() {
            return None;
        }
        self.memory.recall(self.memory.number(key))
    }

    fn turn(&self, key: &str) -> impl Future<Output: Send> + Send {
        self.turns.take(self.memory.number(key))
    }

    async fn delete(&self, key: &str) -> Result<(), BackendError> {
        self.memory.forget(self.memory.number(key));
        let server = self.server(key);
        let (answer, _) = server.ask(record::delete(key)).await?;
        match answer.rc {
            ReturnCode::Hd | ReturnCode::Nf => Ok(()),
            _ => Err(error::of_answer(server.address())),
        }
    }

    /// At once for a while: whoever waits loses to whoever does not. Then, with many others, after a
    /// time that is a matter of chance.
    async fn back_off(&self, attempt: u32) {
        if attempt <= IMMEDIATE {
            tokio::task::yield_now().await;
        } else {
            let longest = LONGEST_PAUSE.min(Duration::from_millis(1) * (attempt - IMMEDIATE));
            let random = RandomState::new().hash_one(attempt);
            let micros = random % longest.as_micros() as u64;
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    }
}

/// The URL without its options.
impl fmt::Display for MemcachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memcached://")?;
        for (i, server) in self.servers.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}", server.address())?;
        }
        Ok(())
    }
}
