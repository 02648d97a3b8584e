use super::*;

fn text(quota: &str) -> Result<Quota, QuotaError> {
    quota.parse()
}

#[test]
fn text_is_read_and_printed() {
    for (written, printed) in [
        ("100/60s", "100/1m"),
        ("100/minute", "100/1m"),
        ("5/15m sliding_window", "5/15m sliding_window"),
        ("100/60s token_bucket burst=20", "100/1m burst=20"),
        ("  7/2days   fixed_window ", "7/2d fixed_window"),
        ("3/1500ms sliding_log", "3/1500ms sliding_log"),
        ("3/1500us", "3/1500us"),
    ] {
        let quota = text(written).unwrap();
        assert_eq!(quota.to_string(), printed);
        assert_eq!(text(printed).unwrap(), quota);
    }
}

#[test]
fn text_that_is_no_quota_is_refused_with_the_grammar() {
    for written in [
        "",
        "100",
        "/60s",
        "100/",
        "100/60",
        "+1/s",
        "1/2/s",
        "1.5/s",
        "100/60s token",
        "100/60s burst=",
        "1/s 1/s",
        "1/s burst=2 burst=2",
        "1/s token_bucket token_bucket",
        "99999999999999999999/s",
        "1/99999999999999999999s",
    ] {
        let error = text(written).unwrap_err();
        assert!(
            matches!(error.fault(), QuotaFault::Syntax(_)),
            "{written}: {error}"
        );
        assert!(error.to_string().contains("N/[n]unit"), "{error}");
    }
}

#[test]
fn an_error_shows_the_words_that_are_wrong() {
    for (written, shown) in [
        ("", r#""" is no quota: it is empty"#),
        ("100", r#""100" has no "/""#),
        ("/60s", r#""" is no limit"#),
        ("1.5/s", r#""1.5" is no limit: it must be a whole number"#),
        ("1_000/s", r#""1_000" is no limit"#),
        ("10/", r#""" has no unit of time"#),
        (
            "10/60",
            r#""60" has no unit of time: use us, ms, s, m, h or d"#,
        ),
        ("10/x", r#""x" is no unit of time"#),
        (
            "10/2weeks",
            r#""weeks" is no unit of time: use us, ms, s, m, h or d (a week is 7d)"#,
        ),
        (
            "10/1.5s",
            r#""1.5s" is no period: it must be a whole number and a unit"#,
        ),
        ("10 / s", r#""10 / s" has spaces around the "/""#),
        ("10/ s", r#""10/ s" has spaces around the "/""#),
        (
            "10 /s burst=3",
            r#""10 /s burst=3" has spaces around the "/""#,
        ),
        (
            "10/s token",
            r#""token" is neither burst=N nor an algorithm: token_bucket, "#,
        ),
        (
            "10/s burst = 5",
            r#""burst" has no number right after it: burst=5, without spaces"#,
        ),
        ("10/s burst= 5", r#""burst=" has no number right after it"#),
        ("10/s burst=x", r#""x" is no burst"#),
        ("10/s burst=1 burst=1", r#""burst=1" is the second burst"#),
        (
            "10/s, 5/h",
            r#""10/s, 5/h" has a comma, and only one quota is read here; Quota::parse_list"#,
        ),
        ("1,000/h", r#""1,000/h" has a comma inside of a number"#),
        ("10/s \u{7}", r#""\u{7}" is neither"#),
    ] {
        let error = text(written).unwrap_err().to_string();
        assert!(error.starts_with(shown), "{written}: {error}");
    }
    let long = text(&"\u{e4}".repeat(1_000)).unwrap_err().to_string();
    assert!(
        long.starts_with(&format!("\"{}\".. has no", "\u{e4}".repeat(16))),
        "{long}"
    );
}

#[test]
fn an_error_in_a_list_says_which_quota() {
    for (written, shown) in [
        ("10/s, 5/h, 10/x", r#"quota 3 of 3: "x" is no unit"#),
        ("10/s, 0/h", "quota 2 of 2: limit: 0 would admit nothing"),
        ("10/s,", r#"quota 2 of 2: "" is no quota: it is empty"#),
        ("10/x", r#""x" is no unit"#),
        (
            "10/s, 1,000/h",
            r#""1,000/h" has a comma inside of a number"#,
        ),
        (
            "1,000,000/h sliding_window",
            r#""1,000,000/h" has a comma inside"#,
        ),
    ] {
        let error = Quota::parse_list(written).unwrap_err().to_string();
        assert!(error.starts_with(shown), "{written}: {error}");
    }
    // No number with commas: lists without spaces.
    for list in ["10/s,100/h", "100/m,200/h", "1/s,100/m,200/h"] {
        assert!(Quota::parse_list(list).is_ok(), "{list}");
    }
}

#[test]
fn numbers_out_of_range_name_the_field_and_the_fix() {
    let second = Duration::from_secs(1);
    let cases = [
        (
            Quota::fixed_window(0, second),
            QuotaFault::LimitIsZero,
            "limit",
        ),
        (
            Quota::fixed_window(MAX_EXACT + 1, second),
            QuotaFault::LimitTooLarge,
            "limit",
        ),
        (
            Quota::fixed_window(u64::MAX, Duration::from_secs(365 * 86_400)),
            QuotaFault::LimitTooLarge,
            "limit",
        ),
        (
            Quota::fixed_window(1, Duration::ZERO),
            QuotaFault::PeriodTooShort,
            "period",
        ),
        (
            Quota::fixed_window(1, Duration::from_micros(999)),
            QuotaFault::PeriodTooShort,
            "period",
        ),
        (
            Quota::token_bucket(1, Duration::from_millis(u64::MAX)),
            QuotaFault::PeriodTooLong,
            "period",
        ),
        (
            Quota::token_bucket(1, Duration::from_nanos(1_000_500)),
            QuotaFault::PeriodNotWholeMicros,
            "period",
        ),
        (
            Quota::token_bucket(1, second).unwrap().with_burst(0),
            QuotaFault::BurstIsZero,
            "burst",
        ),
        (
            Quota::token_bucket(1, second).unwrap().with_burst(u64::MAX),
            QuotaFault::BurstTooLarge,
            "burst",
        ),
        (
            Quota::fixed_window(1, second).unwrap().with_burst(1),
            QuotaFault::BurstWithoutBucket,
            "burst",
        ),
    ];
    for (built, fault, field) in cases {
        let error = built.unwrap_err();
        assert_eq!(error.fault(), fault);
        assert!(error.to_string().starts_with(field), "{error}");
    }
}

#[test]
fn a_quota_that_cannot_be_exact_names_one_that_can() {
    let year = Duration::from_secs(365 * 86_400);
    for error in [
        Quota::token_bucket(999_999_999_989, year).unwrap_err(),
        Quota::token_bucket(1, year)
            .unwrap()
            .with_burst(MAX_EXACT)
            .unwrap_err(),
        Quota::sliding_window(999_999_999_989, year).unwrap_err(),
        Quota::sliding_window(10_000_000, Duration::from_micros(3_600_000_001)).unwrap_err(),
    ] {
        assert_eq!(error.fault(), QuotaFault::NotExact);
        let nearest = error.nearest().unwrap();
        assert!(error.to_string().contains(&nearest.to_string()), "{error}");
    }
    let error =
        Quota::sliding_window(10_000_000, Duration::from_micros(3_600_000_001)).unwrap_err();
    assert_eq!(
        error.nearest(),
        Some(text("10000000/1h sliding_window").unwrap())
    );
}

#[test]
fn a_token_is_a_whole_number_of_units() {
    let quota = text("100/15m").unwrap();
    assert_eq!(
        (
            quota.tick_micros(),
            quota.units_per_token(),
            quota.units_per_tick()
        ),
        (1, 9_000_000, 1)
    );
    let quota = text("7/s burst=3").unwrap();
    assert_eq!(
        (
            quota.units_per_token(),
            quota.units_per_tick(),
            quota.units_when_full()
        ),
        (1_000_000, 7, 3_000_000)
    );
}

#[test]
fn every_u32_a_second_minute_or_hour_can_be_counted() {
    for limit in [1, 7, 65_537, u32::MAX - 4, u32::MAX] {
        let limit = NonZeroU32::new(limit).unwrap();
        for quota in [
            Quota::per_second(limit),
            Quota::per_minute(limit),
            Quota::per_hour(limit),
        ] {
            assert!(quota.units_when_full() <= MAX_EXACT);
        }
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn algorithm() -> impl Strategy<Value = Algorithm> {
        prop::sample::select(&Algorithm::ALL[..])
    }

    /// Numbers of every magnitude, not only large ones.
    fn number(max_bits: u32) -> impl Strategy<Value = u64> {
        (0..=max_bits, any::<u64>()).prop_map(|(bits, n)| (n >> (64 - bits).min(63)).max(1))
    }

    proptest! {
        #[test]
        fn what_is_built_is_exact_and_survives_its_text(
            algorithm in algorithm(), limit in number(52), period in number(52), burst in number(52)
        ) {
            let period = Duration::from_micros(period.max(1_000));
            let plain = Quota::new(algorithm, limit, period);
            for quota in [plain.clone(), plain.and_then(|quota| quota.with_burst(burst))].into_iter().flatten() {
                prop_assert!(algorithm != Algorithm::TokenBucket || quota.units_when_full() <= MAX_EXACT);
                prop_assert_eq!(quota.to_string().parse::<Quota>(), Ok(quota));
            }
        }

        #[test]
        fn what_is_not_exact_has_a_nearest(
            bucket in any::<bool>(), limit in number(52), seconds in number(32), burst in number(52)
        ) {
            // Smooth periods: the error of any other is the same, only slower to word.
            let period = Duration::from_secs(seconds % 1_000_000 + 1);
            let built = if bucket {
                format!("{limit}/{}s burst={burst}", period.as_secs()).parse::<Quota>()
            } else {
                Quota::sliding_window(limit, period)
            };
            if let Err(error) = built {
                prop_assert_eq!(error.fault(), QuotaFault::NotExact);
                let nearest = error.nearest();
                prop_assert!(nearest.is_some(), "{}", error);
            }
        }
    }
}
