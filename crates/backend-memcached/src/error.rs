//! What the server or the connection said, as a kind of error.
//!
//! The one place that matches on the text of a reply.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use memcache::exp::Error;
use tollgate_core::{BackendError, ErrorKind};

/// The error of an exchange with a server.
pub(crate) fn of_exchange(server: &impl Display, error: Error) -> BackendError {
    let (kind, what) = match &error {
        Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            (ErrorKind::Timeout, "no answer in time".into())
        }
        Error::Io(_) => (ErrorKind::Unavailable, "the connection broke".into()),
        Error::Server(text) => (kind_of_server_error(text), said(text)),
        // What a server before 1.6 says to every command of the meta protocol.
        Error::Rejected(text) if text == "ERROR" => (
            ErrorKind::Unsupported,
            "it does not speak the meta protocol, which came with memcached 1.6".into(),
        ),
        Error::Rejected(text) if text.starts_with("ERROR Too many open connections") => {
            (ErrorKind::NotReady, said(text))
        }
        Error::Rejected(text) => (ErrorKind::Unsupported, said(text)),
        Error::Usage(text) => (ErrorKind::Config, said(text)),
        _ => (ErrorKind::Malformed, "its answer makes no sense".into()),
    };
    BackendError::new(kind, format!("{server}: {what}")).with_source(error)
}

fn kind_of_server_error(text: &str) -> ErrorKind {
    if text.starts_with("out of memory") {
        ErrorKind::OutOfMemory
    } else if text.starts_with("object too large") {
        ErrorKind::Unsupported
    } else {
        ErrorKind::NotReady
    }
}

fn said(text: &str) -> String {
    text.chars().take(200).collect()
}

/// The error of connecting to a server.
pub(crate) fn of_connect(server: &impl Display, error: io::Error) -> BackendError {
    let kind = match error.kind() {
        io::ErrorKind::TimedOut => ErrorKind::Timeout,
        _ => ErrorKind::Unavailable,
    };
    BackendError::new(kind, format!("{server}: it cannot be connected to")).with_source(error)
}

/// A server that says nothing.
pub(crate) fn of_silence(server: &impl Display, limit: Duration) -> BackendError {
    BackendError::new(
        ErrorKind::Timeout,
        format!("{server}: no answer within {limit:?}"),
    )
}

/// An answer of a kind that the command does not have.
pub(crate) fn of_answer(server: &impl Display) -> BackendError {
    BackendError::new(
        ErrorKind::Malformed,
        format!("{server}: an answer that the command does not have"),
    )
}

/// A server that does not number its values.
pub(crate) fn without_cas(server: &impl Display) -> BackendError {
    BackendError::new(
        ErrorKind::Unsupported,
        format!(
            "{server}: it was started with -C, which turns compare and swap off: start it without"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_has_its_kind() {
        let kind = |error| of_exchange(&"s", error).kind();
        let server = |text: &str| kind(Error::Server(text.into()));
        assert_eq!(
            server("out of memory storing object"),
            ErrorKind::OutOfMemory
        );
        assert_eq!(server("object too large for cache"), ErrorKind::Unsupported);
        assert_eq!(server("temporary failure"), ErrorKind::NotReady);
        let rejected = |text: &str| kind(Error::Rejected(text.into()));
        assert_eq!(rejected("ERROR"), ErrorKind::Unsupported);
        assert_eq!(rejected("invalid flag"), ErrorKind::Unsupported);
        assert_eq!(
            kind(Error::Io(io::ErrorKind::ConnectionReset.into())),
            ErrorKind::Unavailable
        );
        assert_eq!(
            kind(Error::Io(io::ErrorKind::TimedOut.into())),
            ErrorKind::Timeout
        );
        assert_eq!(kind(Error::Protocol("x".into())), ErrorKind::Malformed);
    }
}
