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
