//! One multiplexed connection to one node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, Value};
use tokio::time::Instant;
use tollgate_core::{BackendError, ErrorKind};

use crate::error::{Failure, integers};
use crate::flight::{AbortOnDrop, Usable};
use crate::script::SCRIPTS;
use crate::stream::{BATCH, Stream};
use crate::url::Address;
use crate::{Script, ScriptCall};

/// How many calls may queue before the sender waits.
const QUEUE: usize = 1024;
/// A call that waited for so long and was then dropped took too long, and was not just cancelled.
const TOO_LONG: Duration = Duration::from_millis(25);
/// How often `NOSCRIPT` is answered by a load in one call. Twice, since scripts may be flushed again
/// between the load and the call.
const LOADS: usize = 2;

pub(crate) struct Connection {
    multiplexed: MultiplexedConnection,
    address: Address,
    broken: Arc<AtomicBool>,
    _driver: AbortOnDrop,
    /// How long a call may wait before the connection is in doubt.
    patience: Duration,
    scripts: [Loaded; SCRIPTS],
}

/// How often a script was loaded here; held by who loads it.
#[derive(Default)]
struct Loaded {
    times: AtomicU64,
    loading: tokio::sync::Mutex<()>,
}

impl Connection {
    /// Speaks Redis over an open stream. Nothing has been sent yet. `timeout` is how long its calls
    /// may take.
    pub(crate) async fn over(
        stream: Stream,
        address: &Address,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        // Logging in is left to the handshake, which can tell what went wrong.
        let nothing = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_write_backpressure_boundary(BATCH);
        let (multiplexed, driver) =
            MultiplexedConnection::new_with_config(&nothing, stream, config)
                .await
                .map_err(|error| Failure::broken(address, error))?;
        let broken = Arc::new(AtomicBool::new(false));
        let ended = Ended(Arc::clone(&broken));
        let task = tokio::spawn(async move {
            let _ended = ended;
            driver.await;
        });
        Ok(Self {
            multiplexed,
            address: address.clone(),
            broken,
            _driver: AbortOnDrop(task.abort_handle()),
            patience: TOO_LONG.min(timeout / 2),
            scripts: Default::default(),
        })
    }

    /// Gives the connection up: the next who asks for one gets another.
    pub(crate) fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Sends commands together and waits for all replies, errors among them.
    pub(crate) async fn pipeline(&self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        let mut multiplexed = self.multiplexed.clone();
        multiplexed
            .send_packed_commands(commands, 0, commands.len())
            .await
            .map_err(|error| Failure::broken(&self.address, error))
    }

    /// Runs a script. `NOSCRIPT` is answered by a load, of which there is one at a time and none
    /// that another caller has made unnecessary.
    pub(crate) async fn run(
        &self,
        call: ScriptCall<'_>,
        asking: bool,
    ) -> Result<Vec<i64>, Failure> {
        let loaded = &self.scripts[call.script.index];
        for _ in 0..LOADS {
            let times = loaded.times.load(Ordering::Acquire);
            match self.once(call, asking).await {
                Err(failure) if failure.code() == "NOSCRIPT" => {
                    let _loading = loaded.loading.lock().await;
                    if loaded.times.load(Ordering::Acquire) == times {
                        self.load(call.script).await?;
                        loaded.times.store(times + 1, Ordering::Release);
                    }
                }
                answer => return answer,
            }
        }
        self.once(call, asking).await
    }

    async fn once(&self, call: ScriptCall<'_>, asking: bool) -> Result<Vec<i64>, Failure> {
        let keys = 1 + call.others.len();
        let size = 96 + keys * (call.key.len() + 8) + call.args.len() * 12;
        let mut command = Cmd::with_capacity(3 + keys + call.args.len(), size);
        command
            .arg("EVALSHA")
            .arg(call.script.sha())
            .arg(keys)
            .arg(call.key);
        for key in call.others {
            command.arg(key);
        }
        for arg in call.args.iter() {
            command.arg(arg);
        }
        let unanswered = Unanswered::new(self);
        let mut multiplexed = self.multiplexed.clone();
        let value = if asking {
            let mut pipeline = redis::pipe();
            pipeline.cmd("ASKING").add_command(command);
            let replies = multiplexed.send_packed_commands(&pipeline, 0, 2).await;
            replies.map(|mut replies| replies.pop().unwrap_or_default())
        } else {
            multiplexed.send_packed_command(&command).await
        };
        unanswered.answered();
        match value {
            Ok(value) => integers(value),
            Err(error) => {
                // Whatever went wrong here, the answers may be out of step.
                self.give_up();
                Err(Failure::broken(&self.address, error))
            }
        }
    }

    async fn load(&self, script: &Script) -> Result<(), Failure> {
        let mut command = Cmd::new();
        command.arg("SCRIPT").arg("LOAD").arg(script.source());
        let unanswered = Unanswered::new(self);
        let value = self.multiplexed.clone().send_packed_command(&command).await;
        unanswered.answered();
        match value.map_err(|error| Failure::broken(&self.address, error))? {
            Value::ServerError(error) => Err(Failure::Reply(error)),
            // The server and we agree on what a SHA-1 is, or no call ever finds its script.
            Value::BulkString(sha) if sha == script.sha().as_bytes() => Ok(()),
            Value::SimpleString(sha) if sha == script.sha() => Ok(()),
            _ => Err(Failure::Broken(BackendError::new(
                ErrorKind::Malformed,
                "SCRIPT LOAD answered something else than the script's SHA-1",
            ))),
        }
    }
}

impl Usable for Connection {
    fn usable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// Notes that the driver has ended, for whatever reason: so that a connection that broke while
/// nobody used it costs no call.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A call in flight. If it is dropped after a while without an answer, the connection is given up:
/// the peer may be gone without a word; or the answer was lost on the way, and then every later
/// answer would be taken for that of the call before.
struct Unanswered<'a> {
    connection: Option<&'a Connection>,
    since: Instant,
}

impl<'a> Unanswered<'a> {
    fn new(connection: &'a Connection) -> Self {
        Self {
            connection: Some(connection),
            since: Instant::now(),
        }
    }

    fn answered(mut self) {
        self.connection = None;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection
            && self.since.elapsed() >= connection.patience
        {
            connection.give_up();
        }
    }
}
