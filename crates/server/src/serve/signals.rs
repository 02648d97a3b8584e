//! What ends the program.

use std::io;

/// Why the program is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// SIGTERM: by a supervisor, which may still send requests for a moment.
    Terminate,
    /// SIGINT: by somebody at the keyboard.
    Interrupt,
}

/// The signals that end the program, from the time this is made.
#[derive(Debug)]
pub(super) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    pub(super) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one. A call that is dropped loses none.
    #[cfg(unix)]
    pub(super) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.terminate.recv() => Stop::Terminate,
            _ = self.interrupt.recv() => Stop::Interrupt,
        }
    }

    #[cfg(not(unix))]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next one.
    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) -> Stop {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Stop::Interrupt
    }
}
