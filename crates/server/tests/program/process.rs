//! Running the program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_server::config::FIELDS;

/// Longer than anything here takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The program, without any setting of the environment the tests run in.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_bare = FIELDS.iter().any(|field| field.bare == Some(&*text));
        if text.starts_with("TOLLGATE_") || is_bare {
            command.env_remove(name);
        }
    }
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    run_with_input(arguments, "")
}

/// Runs it to its end with this on standard input.
pub(crate) fn run_with_input(arguments: &[&str], input: &str) -> Output {
    let mut child = program()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until there is something.
pub(crate) fn eventually_some<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let mut value = None;
    eventually(what, || {
        value = found();
        value.is_some()
    });
    value.unwrap()
}

/// A gateway that runs until it is dropped.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: SocketAddr,
    stderr: Arc<Mutex<String>>,
    stdout: Receiver<String>,
}

impl Gateway {
    /// Starts `tollgate serve` on a free port.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// Starts it with these settings in the environment.
    pub(crate) fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let loopback = ["--listen", "127.0.0.1:0"];
        let elsewhere = arguments.contains(&"--listen");
        let mut child = program()
            .arg("serve")
            .args(loopback.iter().filter(|_| !elsewhere))
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = Arc::default();
        let collected = Arc::clone(&stderr);
        let pipe = child.stderr.take().unwrap();
        thread::spawn(move || collect(pipe, &collected));
        let (lines, stdout) = channel();
        let pipe = child.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let line = stdout.recv_timeout(LONG).unwrap_or_else(|_| {
            let _ = child.kill();
            panic!("it did not start: {}", stderr.lock().unwrap())
        });
        let (begin, address) = line.split_once("://").unwrap();
        assert!(begin.starts_with("listening on http"), "{line}");
        let address = address.parse().unwrap();
        Self {
            child,
            address,
            stderr,
            stdout,
        }
    }

    /// What was logged up to now, in whole lines.
    pub(crate) fn log(&self) -> String {
        let log = self.stderr.lock().unwrap();
        let end = log.rfind('\n').map_or(0, |last| last + 1);
        log[..end].to_owned()
    }

    /// How long its threads and this one have queued for a processor, where the system tells: of a
    /// wait that is the machine's part, not the program's.
    pub(crate) fn queued(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let threads = threads.into_iter().flatten().flatten();
        let nanos = threads
            .map(|thread| thread.path())
            .chain(["/proc/thread-self".into()])
            .filter_map(|thread| std::fs::read_to_string(thread.join("schedstat")).ok())
            .filter_map(|told| told.split(' ').nth(1)?.parse::<u64>().ok());
        Duration::from_nanos(nanos.sum())
    }

    /// What was printed after the address.
    pub(crate) fn printed(&self) -> Vec<String> {
        self.stdout.try_iter().collect()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// How much memory it has, in KiB.
    #[cfg(target_os = "linux")]
    pub(crate) fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most that it has had.
    #[cfg(target_os = "linux")]
    pub(crate) fn most_resident(&self) -> u64 {
        self.memory("VmHWM:")
    }

    #[cfg(target_os = "linux")]
    fn memory(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(what));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.unwrap().parse().unwrap()
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut pipe: impl Read, into: &Mutex<String>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = pipe.read(&mut buffer) {
        into.lock()
            .unwrap()
            .push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
}
