//! Whole numbers as DynamoDB writes them: decimal text of up to 38 digits.

use std::str::FromStr;

/// Reads a whole number; `None` for anything else.
///
/// A store may write `1.7E+30` for 17 and 29 zeros: what it is given is a number, not text.
pub(crate) fn parse<T: FromStr>(text: &str) -> Option<T> {
    let Some((mantissa, exponent)) = text.split_once(['E', 'e']) else {
        return match text.split_once('.') {
            Some((whole, fraction)) if fraction.bytes().all(|b| b == b'0') => whole.parse().ok(),
            Some(_) => None,
            None => text.parse().ok(),
        };
    };
    let exponent: usize = exponent
        .strip_prefix('+')
        .unwrap_or(exponent)
        .parse()
        .ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let zeros = exponent.checked_sub(fraction.len())?;
    if zeros > 40 {
        return None;
    }
    format!("{whole}{fraction}{}", "0".repeat(zeros))
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_whole_number_is_read() {
        let big = 17_u128 * 10_u128.pow(29);
        for text in ["1.7E+30", "17E29", "1.70e30", &big.to_string()] {
            assert_eq!(parse::<u128>(text), Some(big), "{text}");
        }
        assert_eq!(
            parse::<u128>("99999999999999999999999999999999999999"),
            Some(10_u128.pow(38) - 1)
        );
        assert_eq!(parse::<u64>("5.0"), Some(5));
    }

    #[test]
    fn anything_else_is_not() {
        for text in [
            "",
            "-1",
            "1.5",
            "1.25E+1",
            "1E-3",
            "1E+900",
            "1E+99999999999999999999",
            "x",
            "é",
        ] {
            assert_eq!(parse::<u128>(text), None, "{text}");
        }
    }
}
