//! What was logged on this thread, for tests.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};

/// Collects lines until it is dropped.
pub(crate) struct Log {
    text: Text,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn new() -> Self {
        // While there is just one subscriber, an event that is met first on a thread without one is
        // taken to interest nobody, for good. So there are always two.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| {
            let silent = tracing_subscriber::fmt().with_max_level(Level::ERROR);
            Dispatch::new(silent.with_writer(io::sink).finish())
        });
        let text = Text::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::INFO)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap()
    }

    /// How many lines have this level.
    pub(crate) fn count(&self, level: &str) -> usize {
        let text = self.text();
        let lines = text.lines().map(str::trim_start);
        lines.filter(|line| line.starts_with(level)).count()
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
