//! Paths in rules: `/a`, `/a/{x}`, `/a/*`.

/// A path with parts that may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub(super) parts: Vec<Part>,
    /// Whether whatever is below matches too.
    pub(super) open: bool,
    length: usize,
}

/// A part between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// This text.
    Text(Box<str>),
    /// Any text but none.
    Any,
}

/// The most parts of a pattern.
const MAX_PARTS: usize = 32;

/// How much a pattern says; the smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// One path.
    Exact,
    /// Some parts may be anything.
    Template,
    /// All that is below.
    Open,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err("does not begin with /".into());
        };
        if let Some(wrong) = text
            .chars()
            .find(|it| matches!(it, '?' | '#') || it.is_control())
        {
            return Err(format!("has {wrong:?}, which no path has"));
        }
        let (rest, open) = match rest.strip_suffix('*') {
            Some("") => ("", true),
            Some(before) => match before.strip_suffix('/') {
                Some(before) => (before, true),
                None => return Err("has a * that is no part of its own; write /a/*".into()),
            },
            None => (rest, false),
        };
        let mut parts = Vec::new();
        if !(open && rest.is_empty()) || text.starts_with("//") {
            for part in rest.split('/') {
                parts.push(Part::parse(part)?);
            }
        }
        if parts.len() > MAX_PARTS {
            return Err(format!("has more than {MAX_PARTS} parts"));
        }
        Ok(Self {
            parts,
            open,
            length: text.len(),
        })
    }

    /// Whether a path is meant.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let Some(rest) = path.strip_prefix('/') else {
            return false;
        };
        let mut rest = Some(rest);
        for part in &self.parts {
            let Some(left) = rest else { return false };
            let (first, after) = split(left);
            if !part.matches(first) {
                return false;
            }
            rest = after;
        }
        if self.open {
            rest.is_some()
        } else {
            rest.is_none()
        }
    }

    pub(super) fn kind(&self) -> Kind {
        if self.open {
            Kind::Open
        } else if self.parts.contains(&Part::Any) {
            Kind::Template
        } else {
            Kind::Exact
        }
    }

    pub(super) const fn length(&self) -> usize {
        self.length
    }
}

/// The first part of what follows a slash, and what follows the next one.
pub(super) fn split(path: &str) -> (&str, Option<&str>) {
    match path.split_once('/') {
        Some((first, after)) => (first, Some(after)),
        None => (path, None),
    }
}

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
            return if !name.is_empty() && !name.contains(['{', '}', '*']) {
                Ok(Self::Any)
            } else {
                Err(format!("has {text:?}, which is no part such as {{id}}"))
            };
        }
        if text.contains(['{', '}', '*']) {
            return Err(format!(
                "has {text:?}: braces and * stand for whole parts only, * for the last"
            ));
        }
        Ok(Self::Text(text.into()))
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Text(this) => **this == *text,
            Self::Any => !text.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_they_say() {
        for (pattern, yes, no) in [
            ("/", vec!["/"], vec!["/a", "//", ""]),
            ("/a", vec!["/a"], vec!["/a/", "/A", "/ab", "/"]),
            ("/a/", vec!["/a/"], vec!["/a", "/a/b"]),
            ("/a/{x}", vec!["/a/b"], vec!["/a", "/a/", "/a/b/c"]),
            ("/{x}/b", vec!["/a/b"], vec!["//b", "/a/c"]),
            ("/*", vec!["/", "/a", "/a/b"], vec!["", "*"]),
            ("/a/*", vec!["/a/", "/a/b", "/a/b/c"], vec!["/a", "/ab"]),
            ("/a/{x}/*", vec!["/a/b/", "/a/b/c/d"], vec!["/a/b", "/a//c"]),
        ] {
            let parsed = Pattern::parse(pattern).unwrap();
            for path in yes {
                assert!(parsed.matches(path), "{pattern} {path}");
            }
            for path in no {
                assert!(!parsed.matches(path), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for wrong in [
            "", "a", "*", "/a*", "/*/a", "/{}", "/{a", "/a{b}", "/a?b", "/a#", "/{a*}", "/\n",
        ] {
            assert!(Pattern::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
