//! Why an upstream's answer cannot be read.

use std::io;

/// Why an answer cannot be read. The connection it came by is not used again.
#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum Unreadable {
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[from] io::Error),
    /// The connection ended before the answer did.
    #[error("the connection ended before the answer did")]
    Ended,
    /// The head is no HTTP/1, or has too many fields.
    #[error("the head is no HTTP/1, or has too many fields")]
    Head(#[from] httparse::Error),
    /// The status is none.
    #[error("the status is none")]
    Status,
    /// A field is none.
    #[error("a field is none")]
    Field,
    /// The head, what comes before it or what comes after the body is too large.
    #[error("the head, what comes before it or what comes after the body is too large")]
    TooLarge,
    /// The length of the body is no number, or there are several.
    #[error("the length of the body is no number, or there are several")]
    Length,
    /// The body has a transfer coding besides `chunked`.
    #[error("the body has a transfer coding besides chunked")]
    Coding,
    /// The body has both a length and chunks, or chunks that its version does not know.
    #[error("the body has both a length and chunks, or chunks that its version does not know")]
    TwoFramings,
    /// The chunks of the body are none.
    #[error("the chunks of the body are none")]
    Chunks,
}
