//! Quotas as text: `N/[n]unit [algorithm] [burst=N]`, the same everywhere.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Algorithm, Quota, QuotaError};

/// Units of time that a period may be written in: names, and microseconds each.
const UNITS: [(&[&str], u64); 6] = [
    (&["d", "day", "days"], 86_400_000_000),
    (&["h", "hour", "hours"], 3_600_000_000),
    (&["m", "min", "minute", "minutes"], 60_000_000),
    (&["s", "sec", "second", "seconds"], 1_000_000),
    (&["ms", "millisecond", "milliseconds"], 1_000),
    (&["us", "microsecond", "microseconds"], 1),
];

impl Quota {
    /// Reads several quotas joined by commas.
    ///
    /// ```
    /// let quotas = tollgate_core::Quota::parse_list("10/s, 1000/hour sliding_window")?;
    /// assert_eq!(quotas.len(), 2);
    /// # Ok::<(), tollgate_core::QuotaError>(())
    /// ```
    ///
    /// # Errors
    /// The first quota that cannot be read or built, by its number in the list.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, QuotaError> {
        if let Some(number) = number_with_commas(text) {
            return Err(QuotaError::syntax(number, COMMAS));
        }
        let count = text.split(',').count();
        text.split(',')
            .enumerate()
            .map(|(index, quota)| {
                let read = quota.parse();
                read.map_err(|error: QuotaError| error.in_list(index, count))
            })
            .collect()
    }
}

impl FromStr for Quota {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Self, QuotaError> {
        if let Some(number) = number_with_commas(text) {
            return Err(QuotaError::syntax(number, COMMAS));
        }
        if text.contains(',') {
            return Err(QuotaError::syntax(
                text,
                "has a comma, and only one quota is read here; Quota::parse_list reads several",
            ));
        }
        let mut words = text.split_whitespace();
        let Some(rate) = words.next() else {
            return Err(QuotaError::syntax(text, "is no quota: it is empty"));
        };
        let (limit, period) = split_rate(text.trim(), rate)?;
        let limit = number(limit, "is no limit: it must be a whole number in digits")?;
        let period = duration(period)?;
        let (mut algorithm, mut burst) = (None, None);
        for word in words {
            if let Some(value) = word.strip_prefix("burst=").filter(|it| !it.is_empty()) {
                let value = number(value, "is no burst: it must be a whole number in digits")?;
                if burst.replace(value).is_some() {
                    return Err(QuotaError::syntax(word, "is the second burst"));
                }
            } else if word.starts_with("burst") {
                return Err(QuotaError::syntax(
                    word,
                    "has no number right after it: burst=5, without spaces",
                ));
            } else {
                let mut known = Algorithm::ALL.into_iter();
                let Some(named) = known.find(|a| a.as_str() == word) else {
                    return Err(QuotaError::syntax(
                        word,
                        "is neither burst=N nor an algorithm: token_bucket, sliding_window, fixed_window or sliding_log",
                    ));
                };
                if algorithm.replace(named).is_some() {
                    return Err(QuotaError::syntax(word, "is the second algorithm"));
                }
            }
        }
        Self::build(
            algorithm.unwrap_or(Algorithm::TokenBucket),
            limit,
            period,
            burst,
        )
    }
}

const COMMAS: &str = "has a comma inside of a number, and commas join quotas: write digits only";

/// A number that is written like `1,000`, which would be read as two quotas.
fn number_with_commas(text: &str) -> Option<&str> {
    let is_grouped = |rate: &&str| {
        let (limit, _) = rate.split_once('/').unwrap_or((rate, ""));
        let mut groups = limit.split(',');
        let digits = |group: &str| group.bytes().all(|b| b.is_ascii_digit());
        let first = groups.next().is_some_and(|it| !it.is_empty() && digits(it));
        limit.contains(',') && first && groups.all(|it| it.len() == 3 && digits(it))
    };
    text.split_whitespace().find(is_grouped)
}

/// Limit and period. `rate` is the first word of the text.
fn split_rate<'a>(text: &str, rate: &'a str) -> Result<(&'a str, &'a str), QuotaError> {
    match rate.split_once('/') {
        Some((_, "")) | None
            if text
                .split_once('/')
                .is_some_and(|(_, unit)| !unit.is_empty()) =>
        {
            let what =
                "has spaces around the \"/\": write limit and period as one word, as in 10/s";
            Err(QuotaError::syntax(text, what))
        }
        Some(rate) => Ok(rate),
        None => Err(QuotaError::syntax(
            rate,
            "has no \"/\" between limit and period",
        )),
    }
}

fn number(text: &str, what: &'static str) -> Result<u64, QuotaError> {
    // `u64::from_str` takes a leading plus sign, which nobody means here.
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(QuotaError::syntax(text, what));
    }
    text.parse()
        .map_err(|_| QuotaError::syntax(text, "does not fit 64 bits"))
}

fn duration(text: &str) -> Result<Duration, QuotaError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    if unit.starts_with(['.', ',']) {
        return Err(QuotaError::syntax(
            text,
            "is no period: it must be a whole number and a unit, such as 1500ms",
        ));
    }
    let number = match count {
        "" => 1,
        count => number(count, "is no whole number")?,
    };
    let Some((_, micros)) = UNITS.iter().find(|(names, _)| names.contains(&unit)) else {
        return Err(if unit.is_empty() {
            QuotaError::syntax(text, "has no unit of time: use us, ms, s, m, h or d")
        } else {
            QuotaError::syntax(
                unit,
                "is no unit of time: use us, ms, s, m, h or d (a week is 7d)",
            )
        });
    };
    let micros = number
        .checked_mul(*micros)
        .ok_or(QuotaError::syntax(text, "does not fit 64 bits"))?;
    Ok(Duration::from_micros(micros))
}

/// The shortest text that reads as the same quota.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (names, micros) = UNITS
            .iter()
            .find(|(_, micros)| self.period.is_multiple_of(*micros))
            .expect("every period is a multiple of the last unit, 1 us");
        write!(f, "{}/{}{}", self.limit, self.period / micros, names[0])?;
        if self.algorithm != Algorithm::TokenBucket {
            write!(f, " {}", self.algorithm)?;
        } else if self.burst != self.limit {
            write!(f, " burst={}", self.burst)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}
