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
    /// The first quota that cannot be read or built.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, QuotaError> {
        text.split(',').map(str::parse).collect()
    }
}

impl FromStr for Quota {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Self, QuotaError> {
        let mut words = text.split_whitespace();
        let rate = words
            .next()
            .ok_or(QuotaError::syntax("the quota is empty"))?;
        let (limit, period) = rate.split_once('/').ok_or(QuotaError::syntax(
            "the quota has no \"/\" between limit and period",
        ))?;
        let limit = number(limit, "limit is no whole number")?;
        let period = duration(period)?;
        let (mut algorithm, mut burst) = (None, None);
        for word in words {
            if let Some(value) = word.strip_prefix("burst=") {
                if burst
                    .replace(number(value, "burst is no whole number")?)
                    .is_some()
                {
                    return Err(QuotaError::syntax("burst is given twice"));
                }
            } else {
                let named = Algorithm::ALL.into_iter().find(|a| a.as_str() == word).ok_or(QuotaError::syntax(
                    "algorithm is none of token_bucket, sliding_window, fixed_window, sliding_log",
                ))?;
                if algorithm.replace(named).is_some() {
                    return Err(QuotaError::syntax("algorithm is given twice"));
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

fn number(text: &str, what: &'static str) -> Result<u64, QuotaError> {
    // `u64::from_str` takes a leading plus sign, which nobody means here.
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(QuotaError::syntax(what));
    }
    text.parse()
        .map_err(|_| QuotaError::syntax("a number does not fit 64 bits"))
}

fn duration(text: &str) -> Result<Duration, QuotaError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let count = if count.is_empty() {
        1
    } else {
        number(count, "period is no whole number")?
    };
    let micros = UNITS
        .iter()
        .find(|(names, _)| names.contains(&unit))
        .map(|(_, micros)| *micros)
        .ok_or(QuotaError::syntax("period has no unit of ms, s, m, h or d"))?;
    let micros = count
        .checked_mul(micros)
        .ok_or(QuotaError::syntax("period does not fit 64 bits"))?;
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
