//! A DynamoDB: in this process, or as a process of its own that a test may kill and freeze.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::tempfolder::TempFolder;
use super::{PATIENCE, Process, variable};
use crate::port;

/// An empty DynamoDB in this process, on a port of its own. It ends with this value.
///
/// It is `dynoxide`, which keeps its conditions and writes atomic and returns the item of a failed
/// condition, as the service does.
#[derive(Debug)]
pub struct LocalDynamo {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl LocalDynamo {
    /// Starts one. It has a thread and a runtime of its own, so that it outlives the runtime of
    /// whatever test came first.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Self {
        let (stop, stopped) = oneshot::channel();
        let (started, address) = oneshot::channel();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a test can start a runtime");
            runtime.block_on(async move {
                let listener = port::listen().await;
                let address = listener.local_addr().expect("it listens");
                let database = dynoxide::Database::memory().expect("memory is there");
                let server = tokio::spawn(dynoxide::server::serve_on(listener, database));
                let _ = started.send(address);
                let _ = stopped.await;
                server.abort();
            });
        };
        let thread = thread::spawn(serve);
        Self {
            address: address.await.expect("it starts"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://` and the address.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for LocalDynamo {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Which implementation of DynamoDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DynamoFlavor {
    /// `TOLLGATE_DYNAMODB_SERVER`: `dynoxide`.
    Dynoxide,
    /// `TOLLGATE_MOTO_SERVER`: `moto_server`, written by others in another language. It checks and
    /// writes in two steps, so only one request at a time is of any use.
    Moto,
}

impl DynamoFlavor {
    /// The variable that names the binary.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Dynoxide => "TOLLGATE_DYNAMODB_SERVER",
            Self::Moto => "TOLLGATE_MOTO_SERVER",
        }
    }

    fn program(self) -> PathBuf {
        let found = variable(self.variable()).map(PathBuf::from);
        found.unwrap_or_else(|| {
            panic!(
                "no server for this test: run scripts/servers, or set {} to the path of one",
                self.variable()
            )
        })
    }
}

/// A DynamoDB as a process of its own, which a test may kill and freeze. What was written to
/// `dynoxide` is there again after a restart; `moto` forgets.
#[derive(Debug)]
pub struct DynamoServer {
    flavor: DynamoFlavor,
    port: u16,
    process: Process,
    folder: TempFolder,
}

impl DynamoServer {
    /// Starts one, and returns when it answers.
    ///
    /// # Panics
    /// When there is no such server on this machine, or it does not start.
    pub async fn start(flavor: DynamoFlavor) -> Self {
        let mut log = String::new();
        // A port can be taken between finding it free and using it.
        for _ in 0..5 {
            let (folder, port) = (TempFolder::new(), port::free());
            let process = spawn(flavor, port, &folder);
            let mut server = Self {
                flavor,
                port,
                process,
                folder,
            };
            if server.ready().await {
                return server;
            }
            log = server.process.log();
        }
        panic!("{flavor:?} does not start:\n{log}");
    }

    /// Where it listens; the same over restarts.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// `http://` and the address.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Freezes it (SIGSTOP): connections stay open, and nothing answers.
    pub fn pause(&mut self) {
        self.process.signal("STOP");
    }

    /// Ends a freeze.
    pub fn resume(&mut self) {
        self.process.signal("CONT");
    }

    /// Kills it (SIGKILL): connections break, and nobody listens.
    pub fn kill(&mut self) {
        self.process.signal("KILL");
    }

    /// Starts it again on the same port, killing it if it runs.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.flavor, self.port, &self.folder);
        assert!(
            self.ready().await,
            "{self:?} does not start again:\n{}",
            self.process.log()
        );
    }

    async fn ready(&mut self) -> bool {
        // Python takes its time on a busy machine.
        let deadline = Instant::now() + 2 * PATIENCE;
        while Instant::now() < deadline && self.process.is_alive() {
            if timeout(Duration::from_secs(1), answers(self.address())).await == Ok(true) {
                return self.process.is_alive();
            }
            sleep(Duration::from_millis(3)).await;
        }
        false
    }
}

fn spawn(flavor: DynamoFlavor, port: u16, folder: &TempFolder) -> Process {
    let mut arguments: Vec<String> = Vec::new();
    let port = port.to_string();
    match flavor {
        DynamoFlavor::Dynoxide => {
            let file = folder.path().join("db").display().to_string();
            let words = ["serve", "--host", "127.0.0.1", "--port", &port];
            arguments.extend(words.map(str::to_owned));
            arguments.extend(["--db-path".into(), file]);
        }
        DynamoFlavor::Moto => {
            arguments.extend(["-H", "127.0.0.1", "-p", &port].map(str::to_owned));
        }
    }
    Process::spawn(&flavor.program(), &arguments, folder.path())
}

/// Whether something speaks HTTP there.
pub(super) async fn answers(address: SocketAddr) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).await?;
        std::io::Result::Ok(bytes)
    };
    asked.await.is_ok_and(|bytes| &bytes == b"HTTP/")
}
