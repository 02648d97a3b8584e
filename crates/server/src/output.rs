//! Standard output and error, either of which may be a pipe that somebody closed.

use std::io::{self, ErrorKind, Write};

/// Lines to standard output, buffered.
pub(crate) struct Lines(io::BufWriter<io::Stdout>);

impl Lines {
    pub(crate) fn new() -> Self {
        Self(io::BufWriter::new(io::stdout()))
    }

    /// Writes one value as a line of JSON. `false` when nobody reads any more.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> io::Result<bool> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        read(self.0.write_all(&line))
    }

    /// Writes a line of text. `false` when nobody reads any more.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<bool> {
        read(writeln!(self.0, "{text}"))
    }

    /// Sends on what is buffered. `false` when nobody reads any more.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        read(self.0.flush())
    }
}

fn read(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// An error and its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Many errors print their cause themselves.
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Tells the user on standard error, if anybody reads it.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
