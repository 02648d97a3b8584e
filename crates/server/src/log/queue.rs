//! The queue between those who log and the thread that writes.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// So many lines wait at most.
const CAPACITY: usize = 8_192;

/// So long the end of the program waits for the last lines to be written.
const LAST_LINES: Duration = Duration::from_millis(500);

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Where log lines are written from.
#[derive(Debug)]
pub(crate) struct Logs(Queue);

/// Where log lines go to.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Logs {
    /// Starts the thread that writes. It lives as long as the process.
    pub(super) fn start() -> (Self, Queue) {
        let (sender, receiver) = sync_channel(CAPACITY);
        let queue = Queue {
            sender,
            dropped: Arc::default(),
        };
        let dropped = Arc::clone(&queue.dropped);
        let writer = std::thread::Builder::new()
            .name("tollgate-log".into())
            .spawn(move || write_all(&receiver, &dropped));
        if writer.is_err() {
            // Lines are then dropped, as they are when nobody reads them.
            let _ = writeln!(
                io::stderr(),
                "tollgate: no thread for logging could be started"
            );
        }
        (Self(queue.clone()), queue)
    }

    /// Waits a moment until what was logged is written.
    pub(crate) fn finish(self) {
        let (done, finished) = sync_channel(1);
        if self.0.sender.try_send(Message::Flush(done)).is_ok() {
            let _ = finished.recv_timeout(LAST_LINES);
        }
    }
}

fn write_all(receiver: &Receiver<Message>, dropped: &AtomicU64) {
    let mut stderr = io::stderr();
    for message in receiver {
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(
                stderr,
                "{lost} log lines were dropped: nobody read standard error"
            );
        }
        match message {
            Message::Line(line) => {
                let _ = stderr.write_all(&line);
            }
            Message::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

/// Each write is one whole line: that is how the formatter writes.
impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.sender.try_send(Message::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
