//! How the body of an answer ends, and its parts.

use bytes::Bytes;

use super::chunks::{Chunks, Part};
use super::unreadable::Unreadable;

/// What is to come of a body, and how its end is told.
#[derive(Debug)]
pub(super) enum Framing {
    /// Nothing.
    Over,
    /// So many bytes, and more than none.
    Length(u64),
    Chunked(Chunks),
    /// All until the connection ends.
    UntilClose,
}

impl Framing {
    pub(super) const fn of_length(length: u64) -> Self {
        match length {
            0 => Self::Over,
            length => Self::Length(length),
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// How many bytes are to come, if that is known.
    pub(super) const fn length(&self) -> Option<u64> {
        match self {
            Self::Over => Some(0),
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }

    /// How many bytes can be expected at least.
    pub(super) const fn expected(&self) -> u64 {
        match self {
            Self::Over | Self::UntilClose => 0,
            Self::Length(left) => *left,
            Self::Chunked(chunks) => chunks.left(),
        }
    }

    /// The next part, taken from `bytes`. None: more have to come. Not asked of what is over.
    pub(super) fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Part>, Unreadable> {
        let part = match self {
            Self::Over => Some(Part::End),
            Self::Chunked(chunks) => chunks.next(bytes)?,
            _ if bytes.is_empty() => None,
            Self::UntilClose => Some(Part::Data(std::mem::take(bytes))),
            Self::Length(left) => {
                let length = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= length as u64;
                let data = bytes.split_to(length);
                if *left == 0 {
                    *self = Self::Over;
                }
                return Ok(Some(Part::Data(data)));
            }
        };
        if matches!(part, Some(Part::Trailers(_) | Part::End)) {
            *self = Self::Over;
        }
        Ok(part)
    }

    /// The connection has ended.
    pub(super) fn end(&mut self) -> Result<(), Unreadable> {
        match std::mem::replace(self, Self::Over) {
            Self::Over | Self::UntilClose => Ok(()),
            Self::Length(_) | Self::Chunked(_) => Err(Unreadable::Ended),
        }
    }
}
