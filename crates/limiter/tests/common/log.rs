//! What was logged on this thread.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};

/// Collects lines until it is dropped.
pub struct Log {
    text: Text,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Hears everything from `level` up.
    pub fn new(level: Level) -> Self {
        // While there is just one subscriber, an event that is met first on a thread without one is
        // taken to interest nobody, for good. So there are always two.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| {
            Dispatch::new(
                tracing_subscriber::fmt()
                    .with_max_level(Level::ERROR)
                    .finish(),
            )
        });
        let text = Text::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap()
    }

    /// How many lines have this level.
    pub fn count(&self, level: &str) -> usize {
        self.text()
            .lines()
            .filter(|line| line.trim_start().starts_with(level))
            .count()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
