//! Numbers in rules: decimal text with at most six places, read exactly.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

/// One whole, in millionths.
const WHOLE: u64 = 1_000_000;

/// A number of at most six decimal places, kept as millionths.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Decimal(u64);

impl Decimal {
    /// So many millionths.
    #[must_use]
    pub const fn from_millionths(millionths: u64) -> Self {
        Self(millionths)
    }

    /// A whole number. `None` where its millionths are too many.
    #[must_use]
    pub const fn whole(number: u64) -> Option<Self> {
        match number.checked_mul(WHOLE) {
            Some(millionths) => Some(Self(millionths)),
            None => None,
        }
    }

    /// In millionths: microseconds, if it counts seconds.
    #[must_use]
    pub const fn millionths(self) -> u64 {
        self.0
    }

    /// Reads a number.
    ///
    /// # Errors
    /// What is wrong with it, and where there is one the nearest that works.
    pub fn read(number: &Number) -> Result<Self, String> {
        if let Some(whole) = number.as_u64() {
            return Self::whole(whole).ok_or_else(|| "is too large".into());
        }
        let float = number.as_f64().unwrap_or(f64::NAN);
        if !float.is_finite() || float < 0.0 {
            return Err("is below 0; use 0 or more".into());
        }
        // The shortest text that means this number: what was written, if it had at most 15 digits.
        let text = format!("{float}");
        let (whole, places) = text.split_once('.').unwrap_or((&text, ""));
        let Some(whole) = whole.parse().ok().and_then(Self::whole) else {
            return Err("is too large".into());
        };
        if places.len() > 6 {
            let millionths = whole.0 as f64 + (float.fract() * WHOLE as f64).round();
            let nearest = Self(millionths as u64);
            return Err(format!(
                "has more than 6 decimal places; the nearest that works is {nearest}"
            ));
        }
        let places: u64 = format!("{places:0<6}").parse().unwrap_or(0);
        Ok(Self(whole.0 + places))
    }

    /// The same as a value of JSON.
    #[must_use]
    pub fn to_value(self) -> Value {
        if self.0.is_multiple_of(WHOLE) {
            Value::from(self.0 / WHOLE)
        } else {
            Value::from(self.0 as f64 / WHOLE as f64)
        }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, places) = (self.0 / WHOLE, self.0 % WHOLE);
        if places == 0 {
            return write!(f, "{whole}");
        }
        let places = format!("{places:06}");
        write!(f, "{whole}.{}", places.trim_end_matches('0'))
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let number: Number = serde_json::from_str(text).unwrap();
        Decimal::read(&number).map(|it| it.to_string())
    }

    #[test]
    fn numbers_are_read_exactly_or_refused_with_the_nearest() {
        for (text, expected) in [
            ("60", "60"),
            ("60.0", "60"),
            ("0.1", "0.1"),
            ("1e-3", "0.001"),
            ("0.000001", "0.000001"),
            ("4503599627.370496", "4503599627.370496"),
            ("0", "0"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
        let error = read("0.3333333").unwrap_err();
        assert!(error.ends_with("nearest that works is 0.333333"), "{error}");
        assert!(read("-1").is_err());
        assert!(read("-0.5").is_err());
        assert!(read("1e300").unwrap_err().contains("too large"));
        assert!(read("1e-300").unwrap_err().ends_with("is 0"));
    }

    #[test]
    fn whole_numbers_are_written_as_such() {
        let text = |it: Decimal| serde_json::to_string(&it).unwrap();
        assert_eq!(text(Decimal(60_000_000)), "60");
        assert_eq!(text(Decimal(500_000)), "0.5");
        assert_eq!(text(Decimal(1_000_001)), "1.000001");
    }
}
