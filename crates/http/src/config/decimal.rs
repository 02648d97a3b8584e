//! Decimal text with at most six places, exactly.

/// Millionths in a decimal number. The error says what is wrong and what to write.
pub(super) fn millionths(text: &str) -> Result<u64, String> {
    const FIX: &str = "write a number above 0 such as 60 or 0.5";
    // TOML allows these in its numbers, and they change nothing.
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    let plain = plain.strip_prefix('+').unwrap_or(&plain);
    let (whole, places) = plain.split_once('.').unwrap_or((plain, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(places) || plain.ends_with('.') {
        return Err(FIX.into());
    }
    let too_large = || "it is too large; write 4503599627 or less".to_owned();
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let kept = places.get(..6).unwrap_or(places);
    let part: u64 = format!("{kept:0<6}").parse().unwrap_or(0);
    let exact = whole
        .checked_mul(1_000_000)
        .and_then(|it| it.checked_add(part))
        .ok_or_else(too_large)?;
    if places.len() > 6 {
        let up = places.as_bytes().get(6).is_some_and(|digit| *digit >= b'5');
        let nearest = exact.saturating_add(u64::from(up)).max(1);
        return Err(format!(
            "it has more than 6 decimal places; the nearest that works is {}",
            shown(nearest)
        ));
    }
    if exact == 0 {
        return Err(FIX.into());
    }
    Ok(exact)
}

/// Millionths as decimal text, without trailing zeros.
pub(super) fn shown(millionths: u64) -> String {
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_exactly() {
        for (text, exact) in [
            ("60.0", 60_000_000),
            ("60", 60_000_000),
            ("0.1", 100_000),
            ("0.000001", 1),
            ("1_000.5", 1_000_500_000),
            ("+2.5", 2_500_000),
            // The neighbours of this number among doubles are 2 us away.
            ("9007199254.740993", 9_007_199_254_740_993),
        ] {
            assert_eq!(millionths(text), Ok(exact), "{text}");
        }
    }

    #[test]
    fn more_than_six_places_are_refused_with_the_nearest_that_works() {
        for (text, nearest) in [
            ("0.1234567", "0.123457"),
            ("0.12345649", "0.123456"),
            ("60.0000000", "60"),
            ("59.9999999", "60"),
            ("0.0000001", "0.000001"),
        ] {
            let error = millionths(text).unwrap_err();
            assert!(error.ends_with(&format!("is {nearest}")), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", ".", "1.", ".5", "-1", "1e3", "inf", "nan", "0", "0.0", "1.2.3", "١", "1 ",
        ] {
            assert!(millionths(text).unwrap_err().contains("write"), "{text}");
        }
        assert!(
            millionths("99999999999999999999")
                .unwrap_err()
                .contains("too large")
        );
        assert!(
            millionths("18446744073709.6")
                .unwrap_err()
                .contains("too large")
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic_and_what_is_shown_reads_the_same(
            text in "\\PC{0,12}", number in 1_u64..
        ) {
            let _ = millionths(&text);
            proptest::prop_assert_eq!(millionths(&shown(number)), Ok(number));
        }
    }
}
