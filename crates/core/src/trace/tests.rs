use super::*;

const ONE: &str = r#"{"name":"t","quota":{"algorithm":"token_bucket","limit":2,"period_us":1000000,"burst":4},"steps":[
 {"at_us":1,"op":"acquire","key":"a b\tc","cost":1,"max":3,"expect":{"allowed":true,"granted":3,"remaining":1,"retry_after_us":null,"reset_after_us":1}},
 {"at_us":2,"op":"refund","key":"a","cost":1,"charged_at_us":1},
 {"at_us":1,"op":"reset","key":"a","expect":null}]}"#;

#[test]
fn a_line_is_read_field_by_field() {
    let trace = Trace::parse(ONE).unwrap();
    assert_eq!(
        trace.limits(),
        &Limits::Quota("2/s burst=4".parse().unwrap())
    );
    assert!(trace.clock_moves_back());
    let [acquire, refund, reset] = trace.steps() else {
        panic!("three steps")
    };
    assert_eq!(acquire.call, Call::Acquire(Cost::range(1, 3).unwrap()));
    assert_eq!(acquire.key, "a b\tc");
    assert_eq!(
        refund.call,
        Call::Refund(Refund {
            cost: 1,
            charged_at: Timestamp::from_micros(1)
        })
    );
    // No expectation is not the expectation of nothing.
    assert_eq!(
        (&refund.expect, &reset.expect),
        (&None, &Some(Answer::Reset))
    );
}

#[test]
fn a_burst_counts_where_its_limit_alone_would_not() {
    let line = |burst: &str| {
        format!(
            r#"{{"name":"t","quota":{{"algorithm":"token_bucket","limit":4503599627370449,"period_us":60000000{burst}}},"steps":[]}}"#
        )
    };
    assert!(matches!(
        Trace::parse(&line("")),
        Err(FormatError::Quota { index: 0, .. })
    ));
    assert!(Trace::parse(&line(",\"burst\":1")).is_ok());
}

#[test]
fn what_could_be_misread_is_refused() {
    for line in [
        "",
        r#"{"name":"t","steps":[]}"#,
        r#"{"name":"t","quotas":[],"steps":[]}"#,
        r#"{"name":"t","slots":1,"steps":[]}"#,
        r#"{"name":"t","quota":{"algorithm":"leaky","limit":1,"period_us":1000},"steps":[]}"#,
        r#"{"name":"t","quota":{"algorithm":"fixed_window","limit":1,"period_us":1000,"brust":2},"steps":[]}"#,
        r#"{"name":"t","quota":{"algorithm":"fixed_window","limit":1,"period_us":1000,"burst":2},"steps":[]}"#,
        r#"{"name":"t","quota":{"algorithm":"fixed_window","limit":1,"period_us":1000},"steps":[{"at_us":1,"op":"acquire","key":"a"}]}"#,
        r#"{"name":"t","quota":{"algorithm":"fixed_window","limit":1,"period_us":1000},"steps":[{"at_us":1,"op":"acquire","key":"a","cost":0}]}"#,
        r#"{"name":"t","quota":{"algorithm":"fixed_window","limit":1,"period_us":1000},"steps":[{"at_us":1,"op":"renew","key":"a","holder":"h"}]}"#,
        r#"{"name":"t","slots":1,"ttl_us":1,"steps":[{"at_us":1,"op":"peek","key":"a","cost":1}]}"#,
    ] {
        assert!(Trace::parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_misspelt_field_is_refused_by_its_name() {
    let line = |trace: &str, step: &str| {
        format!(
            r#"{{"name":"shop","quota":{{"algorithm":"fixed_window","limit":1,"period_us":1000}}{trace},"steps":[
                {{"at_us":1,"op":"reset","key":"a"}},
                {{"at_us":1,"op":"acquire","key":"a","cost":1{step}}}]}}"#
        )
    };
    assert!(Trace::parse(&line("", "")).is_ok());
    for (trace, step, message) in [
        (
            "",
            r#","expekt":null"#,
            r#"trace "shop", step 1: unknown field "expekt""#,
        ),
        (
            "",
            r#","charged_at":7"#,
            r#"trace "shop", step 1: unknown field "charged_at""#,
        ),
        (
            r#","slot":{"a":[1]}"#,
            "",
            r#"trace "shop": unknown field "slot""#,
        ),
    ] {
        let error = Trace::parse(&line(trace, step)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn an_answer_that_is_wrong_missing_or_not_expected_is_a_difference() {
    let trace = Trace::parse(ONE).unwrap();
    let right = trace.steps()[0].expect.clone().unwrap();
    let answers = [right.clone(), right, Answer::Reset];
    let steps: Vec<_> = trace.differences(&answers).iter().map(|d| d.step).collect();
    assert_eq!(steps, [1], "no expectation");
    assert_eq!(trace.differences(&[]).len(), 3);
    let text = trace.differences(&[Answer::Reset])[0].to_string();
    assert!(
        text.starts_with(r#"step 0: expected {"allowed":true"#),
        "{text}"
    );
    assert!(text.ends_with("got null"), "{text}");
}
