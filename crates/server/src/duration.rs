//! Durations as people write them in settings, `50ms`, `2s`, `5m`, and as JSON has them.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
];

/// Reads a whole number and a unit, or 0.
pub(crate) fn parse(text: &str) -> Result<Duration, &'static str> {
    const FIX: &str = "write a whole number and a unit of us, ms, s, m or h, such as 50ms";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, micros) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(FIX)?;
    let number: u64 = number.parse().map_err(|_| FIX)?;
    let total = number
        .checked_mul(*micros)
        .ok_or("it is too long; use less")?;
    Ok(Duration::from_micros(total))
}

/// Reads a duration that is not zero.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, &'static str> {
    match parse(text)? {
        Duration::ZERO => Err("it must be longer than nothing; use 1ms or more"),
        duration => Ok(duration),
    }
}

/// Seconds of whole microseconds, divided once: [`Duration::as_secs_f64`] makes 1.9185400000000001
/// of 1.91854.
pub(crate) fn seconds(wait: Duration) -> f64 {
    wait.as_micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit() {
        assert_eq!(parse("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(parse("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        for wrong in ["", "50", "ms", "5 s", "-5s", "1.5s", "5d", "+5s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("99999999999999999h").is_err());
        assert!(parse_positive("0s").is_err());
    }

    #[test]
    fn seconds_have_no_more_digits_than_there_are_microseconds() {
        for (micros, text) in [(1_918_540, "1.91854"), (1_517_867, "1.517867"), (0, "0")] {
            assert_eq!(seconds(Duration::from_micros(micros)).to_string(), text);
        }
    }
}
