//! A piece of somebody's text, for an error.

use std::fmt;

/// The beginning of a text. It owns no memory, so that an error that holds it can be dropped in a
/// constant, where quotas may be built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Snippet {
    bytes: [u8; Self::MOST],
    length: u8,
    cut: bool,
}

impl Snippet {
    const MOST: usize = 32;

    pub(super) fn new(text: &str) -> Self {
        let length = text.floor_char_boundary(Self::MOST);
        let mut bytes = [0; Self::MOST];
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        Self {
            bytes,
            length: length as u8,
            cut: length < text.len(),
        }
    }
}

/// In quotes, and escaped.
impl fmt::Display for Snippet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default();
        write!(f, "{text:?}{}", if self.cut { ".." } else { "" })
    }
}

impl fmt::Debug for Snippet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
