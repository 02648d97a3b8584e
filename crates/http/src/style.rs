//! Which rate limit fields a response carries: a set, chosen by one setting.

use std::fmt;
use std::ops::BitOr;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _};

/// A set of header families.
///
/// As text, in settings: `none`, or names joined by commas.
///
/// | name | fields |
/// |---|---|
/// | `ietf` | `RateLimit` and `RateLimit-Policy`, structured fields (RFC 9651) of the IETF draft 08 and later |
/// | `triple` | `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` (seconds until nothing is used) |
/// | `x-ratelimit` | `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` (second of the epoch) |
///
/// ```
/// use tollgate_http::HeaderStyle;
///
/// let style: HeaderStyle = "ietf,x-ratelimit".parse()?;
/// assert_eq!(style, HeaderStyle::IETF | HeaderStyle::X_RATELIMIT);
/// assert!(!style.contains(HeaderStyle::TRIPLE));
/// assert_eq!(style.to_string(), "ietf,x-ratelimit");
/// # Ok::<(), tollgate_http::HeaderStyleError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderStyle(u8);

impl HeaderStyle {
    /// No rate limit fields. Refusals still carry `Retry-After` and `Cache-Control`.
    pub const NONE: Self = Self(0);
    /// `RateLimit` and `RateLimit-Policy`. The default of the library.
    pub const IETF: Self = Self(1);
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`.
    pub const TRIPLE: Self = Self(2);
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    pub const X_RATELIMIT: Self = Self(4);
    /// The default of the gateway: `ietf,x-ratelimit`.
    pub const GATEWAY: Self = Self(Self::IETF.0 | Self::X_RATELIMIT.0);

    const NAMES: [(&'static str, Self); 3] = [
        ("ietf", Self::IETF),
        ("triple", Self::TRIPLE),
        ("x-ratelimit", Self::X_RATELIMIT),
    ];

    /// Whether every family of `other` is in.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Default for HeaderStyle {
    fn default() -> Self {
        Self::IETF
    }
}

impl BitOr for HeaderStyle {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromStr for HeaderStyle {
    type Err = HeaderStyleError;

    fn from_str(text: &str) -> Result<Self, HeaderStyleError> {
        if text.trim() == "none" {
            return Ok(Self::NONE);
        }
        text.split(',')
            .map(|word| {
                Self::NAMES
                    .iter()
                    .find(|(name, _)| *name == word.trim())
                    .map(|(_, style)| *style)
                    .ok_or_else(|| HeaderStyleError(word.trim().into()))
            })
            .try_fold(Self::NONE, |all, style| Ok(all | style?))
    }
}

impl fmt::Display for HeaderStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("none");
        }
        let mut comma = "";
        for (name, style) in Self::NAMES {
            if self.contains(style) {
                write!(f, "{comma}{name}")?;
                comma = ",";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for HeaderStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeaderStyle({self})")
    }
}

impl<'de> Deserialize<'de> for HeaderStyle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// A word that names no family of headers, or `none` beside others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderStyleError(Box<str>);

impl fmt::Display for HeaderStyleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            "none" => f.write_str("header style: none stands alone; leave it out, or all others"),
            word => write!(
                f,
                "header style: {word:?} is none of ietf, triple, x-ratelimit, which may be joined \
                 by commas; none, alone, leaves them out"
            ),
        }
    }
}

impl std::error::Error for HeaderStyleError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_reads_as_it_prints() {
        for bits in 0..8 {
            let style = HeaderStyle(bits);
            assert_eq!(style.to_string().parse(), Ok(style));
        }
    }

    #[test]
    fn an_unknown_name_is_refused_and_named() {
        for text in ["", "x bad", "IETF", "ietf,"] {
            let error = text.parse::<HeaderStyle>().unwrap_err();
            assert!(error.to_string().contains("none of ietf"), "{text}");
        }
        for text in ["ietf,none", "none,ietf", "none,none"] {
            let error = text.parse::<HeaderStyle>().unwrap_err();
            assert!(error.to_string().contains("none stands alone"), "{text}");
        }
    }
}
