//! Each field is parsed back with a parser of RFC 9651.

use std::time::Duration;

use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate_core::algorithm::{Operation, apply};
use tollgate_core::{Algorithm, Cost, Origin};

use super::*;

/// The middle of an hour, half a minute into a minute.
const NOW: Timestamp = Timestamp::from_micros(1_700_001_030_000_000);

struct Api {
    headers: RateLimitHeaders,
    record: Vec<Option<tollgate_core::algorithm::State>>,
}

impl Api {
    fn new(name: &str, quotas: &str, style: HeaderStyle) -> Self {
        let policy = Policy::new(name, Quota::parse_list(quotas).unwrap()).unwrap();
        Self {
            headers: RateLimitHeaders::new(&policy, style),
            record: Vec::new(),
        }
    }

    fn at(&mut self, now: Timestamp, cost: u64) -> HeaderMap {
        let quotas = self.headers.policy().quotas().to_vec();
        let operation = Operation::Acquire(Cost::new(cost).unwrap());
        let decision = apply(&quotas, &mut self.record, now, operation).decision;
        self.write(&decision, now)
    }

    fn write(&self, decision: &Decision, now: Timestamp) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.headers.write(decision, now, &mut headers);
        headers
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers
        .get(name)
        .map(|value| value.to_str().unwrap().parse().unwrap())
}

/// A field as (name, parameters).
fn parsed(value: &HeaderValue) -> Vec<(String, Vec<(String, i64)>)> {
    let list: List = Parser::new(value.as_bytes()).parse().unwrap();
    list.into_iter()
        .map(|entry| {
            let ListEntry::Item(item) = entry else {
                panic!("an inner list")
            };
            let BareItem::String(name) = item.bare_item else {
                panic!("no string")
            };
            let params = item.params.into_iter().map(|(key, value)| {
                let BareItem::Integer(value) = value else {
                    panic!("{key} is no integer")
                };
                (String::from(key), i64::from(value))
            });
            (String::from(name), params.collect())
        })
        .collect()
}

#[test]
fn b48_a_wait_below_a_second_is_one_second() {
    let mut api = Api::new("api", "5/s", HeaderStyle::IETF);
    for _ in 0..5 {
        assert!(!api.at(NOW, 1).contains_key(RETRY_AFTER));
    }
    let refused = api.at(NOW, 1);
    assert_eq!(refused[RETRY_AFTER], "1");
    assert_eq!(refused[CACHE_CONTROL], "no-store");
    assert_eq!(refused["ratelimit"], r#""api";r=0;t=1"#);
}

#[test]
fn b51_x_reset_is_the_epoch_second_and_t_is_relative() {
    let style = HeaderStyle::GATEWAY | HeaderStyle::TRIPLE;
    let mut api = Api::new("api", "10/60s fixed_window", style);
    let headers = api.at(Timestamp::from_micros(1_700_000_000_000_000), 1);
    assert_eq!(number(&headers, "x-ratelimit-limit"), Some(10));
    assert_eq!(number(&headers, "x-ratelimit-remaining"), Some(9));
    assert_eq!(number(&headers, "x-ratelimit-reset"), Some(1_700_000_040));
    assert_eq!(headers["ratelimit"], r#""api";r=9;t=40"#);
    assert_eq!(number(&headers, "ratelimit-limit"), Some(10));
    assert_eq!(number(&headers, "ratelimit-remaining"), Some(9));
    assert_eq!(number(&headers, "ratelimit-reset"), Some(40));
}

#[test]
fn b52_the_refusing_quota_speaks() {
    let start = Timestamp::from_micros(1_700_002_800_000_000);
    let quotas = "60/60s fixed_window, 10/3600s fixed_window";
    let mut api = Api::new("user", quotas, HeaderStyle::GATEWAY);
    for _ in 0..10 {
        api.at(start, 1);
    }
    let refused = api.at(start + Duration::from_secs(600), 1);
    assert_eq!(refused[RETRY_AFTER], "3000");
    assert_eq!(number(&refused, "x-ratelimit-limit"), Some(10));
    assert_eq!(number(&refused, "x-ratelimit-remaining"), Some(0));
    assert_eq!(
        refused["ratelimit"],
        r#""user.1m";r=60, "user.1h";r=0;t=3000"#
    );
}

#[test]
fn b53_fields_are_well_formed_structured_fields() {
    let quotas = "100/60s fixed_window, 1000/86400s fixed_window";
    let headers = Api::new("b", quotas, HeaderStyle::IETF).at(NOW, 1);
    assert_eq!(
        headers["ratelimit-policy"],
        r#""b.1m";q=100;w=60, "b.1d";q=1000;w=86400"#
    );
    assert!(
        headers["ratelimit"]
            .to_str()
            .unwrap()
            .starts_with(r#""b.1m";r=99;t=30, "b.1d";r=999;t="#)
    );

    let odd = Api::new(r#"a"b\c"#, "5/60s", HeaderStyle::IETF).at(NOW, 1);
    assert_eq!(odd["ratelimit-policy"], r#""a\"b\\c";q=5;w=60"#);
    assert_eq!(parsed(&odd["ratelimit-policy"])[0].0, r#"a"b\c"#);

    // What cannot be written in a field is refused when the policy is built.
    for name in ["na\u{ef}ve", "a\r\nb"] {
        assert!(Policy::new(name, ["1/s".parse().unwrap()]).is_err());
    }
}

#[test]
fn b54_remaining_counts_down_to_zero_and_back() {
    for algorithm in Algorithm::ALL {
        let mut api = Api::new("p", &format!("3/60s {algorithm}"), HeaderStyle::X_RATELIMIT);
        let remaining: Vec<_> = (0..5)
            .map(|_| number(&api.at(NOW, 1), "x-ratelimit-remaining").unwrap())
            .collect();
        assert_eq!(remaining, [2, 1, 0, 0, 0], "{algorithm}");
        let later = api.at(NOW + Duration::from_secs(600), 1);
        assert_eq!(
            number(&later, "x-ratelimit-remaining"),
            Some(2),
            "{algorithm}"
        );
    }
}

#[test]
fn s89_t_says_when_more_is_there() {
    // 60 s into an hour; r holds for the rest of it.
    let now = Timestamp::from_micros(1_699_999_200_000_000 + 60_000_000);
    let mut api = Api::new("api", "1000/h sliding_window", HeaderStyle::IETF);
    api.at(now, 1);
    assert_eq!(api.at(now, 1)["ratelimit"], r#""api";r=998;t=3540"#);
}

#[test]
fn t_is_left_out_when_nothing_is_used() {
    let api = Api::new("api", "5/s", HeaderStyle::IETF);
    let quotas = api.headers.policy().quotas();
    let peek = apply(quotas, &mut Vec::new(), NOW, Operation::Peek(Cost::ONE)).decision;
    assert_eq!(api.write(&peek, NOW)["ratelimit"], r#""api";r=5"#);
}

#[test]
fn a_burst_gives_capacity_and_window() {
    let headers = Api::new("api", "5/s burst=50", HeaderStyle::GATEWAY).at(NOW, 1);
    assert_eq!(headers["ratelimit-policy"], r#""api";q=50;w=10"#);
    assert_eq!(number(&headers, "x-ratelimit-limit"), Some(50));
}

#[test]
fn quotas_with_one_period_get_names_of_their_own() {
    let headers = Api::new("p", "5/s, 9/s burst=20, 3/h", HeaderStyle::IETF).at(NOW, 1);
    let names: Vec<_> = parsed(&headers["ratelimit"])
        .into_iter()
        .map(|item| item.0)
        .collect();
    assert_eq!(names, ["p.1s", "p.1s.2", "p.1h"]);
}

#[test]
fn b35_retry_after_is_absent_where_waiting_never_helps() {
    let refused = Api::new("p", "10/60s", HeaderStyle::GATEWAY).at(NOW, 11);
    assert!(!refused.contains_key(RETRY_AFTER));
    assert_eq!(refused[CACHE_CONTROL], "no-store");
    assert_eq!(number(&refused, "x-ratelimit-remaining"), Some(10));
}

#[test]
fn unenforced_answers_carry_the_policy_only() {
    let api = Api::new("p", "10/60s", HeaderStyle::GATEWAY | HeaderStyle::TRIPLE);
    let mut headers = HeaderMap::new();
    // What an upstream says about limits of its own is not mixed in.
    headers.insert("x-ratelimit-remaining", HeaderValue::from_static("7"));
    let open = Decision::unenforced(Origin::FailOpen, true, 1, None, NOW);
    api.headers.write(&open, NOW, &mut headers);
    assert_eq!(headers.len(), 1);
    assert_eq!(headers["ratelimit-policy"], r#""p";q=10;w=60"#);

    let closed = Decision::unenforced(Origin::FailClosed, false, 0, None, NOW);
    let headers = api.write(&closed, NOW);
    assert_eq!(headers.len(), 3);
    assert_eq!(headers[RETRY_AFTER], "1");
}

#[test]
fn s90_style_none_writes_nothing_on_success() {
    assert!(
        Api::new("p", "10/60s", HeaderStyle::NONE)
            .at(NOW, 1)
            .is_empty()
    );
}

#[test]
fn an_upstream_field_of_another_family_is_left_alone() {
    let mut headers = HeaderMap::new();
    headers.insert("x-ratelimit-limit", HeaderValue::from_static("7"));
    let mut api = Api::new("p", "10/60s", HeaderStyle::IETF);
    let quotas = api.headers.policy().quotas().to_vec();
    let decision = apply(&quotas, &mut api.record, NOW, Operation::Acquire(Cost::ONE)).decision;
    api.headers.write(&decision, NOW, &mut headers);
    assert_eq!(headers["x-ratelimit-limit"], "7");
}

/// All values, by name.
fn sorted(headers: &HeaderMap) -> Vec<(&HeaderName, Vec<&HeaderValue>)> {
    let mut all: Vec<_> = headers
        .keys()
        .map(|name| (name, headers.get_all(name).iter().collect()))
        .collect();
    all.sort_by_key(|(name, _): &(&HeaderName, _)| name.as_str());
    all
}

#[test]
fn fields_of_others_stay_however_many_there_are() {
    let others = [
        ("content-type", "text/plain"),
        ("content-length", "5"),
        ("x-one", "1"),
        ("ratelimit", "theirs"),
        ("set-cookie", "a=1"),
        ("x-ratelimit-limit", "7"),
        ("x-two", "2"),
        ("set-cookie", "b=2"),
        ("x-three", "3"),
        ("ratelimit-limit", "7"),
        ("x-four", "4"),
    ];
    let styles = (0..8).map(|bits| {
        let families = [
            HeaderStyle::IETF,
            HeaderStyle::TRIPLE,
            HeaderStyle::X_RATELIMIT,
        ];
        let chosen = (0..3).filter(|family| bits >> family & 1 == 1);
        chosen.fold(HeaderStyle::NONE, |all, family| all | families[family])
    });
    for style in styles {
        let mut api = Api::new("api", "10/60s", style);
        let quotas = api.headers.policy().quotas().to_vec();
        let decision = apply(&quotas, &mut api.record, NOW, Operation::Acquire(Cost::ONE)).decision;
        let ours = api.write(&decision, NOW);
        for (from, to) in (0..others.len()).flat_map(|a| (a..=others.len()).map(move |b| (a, b))) {
            for room in [0, 32] {
                let mut headers = HeaderMap::with_capacity(room);
                for (name, value) in &others[from..to] {
                    headers.append(*name, HeaderValue::from_static(value));
                }
                let mut expected = headers.clone();
                expected.extend(ours.clone());
                api.headers.write(&decision, NOW, &mut headers);
                assert_eq!(
                    sorted(&headers),
                    sorted(&expected),
                    "{style} {from}..{to} {room}"
                );
            }
        }
    }
}

#[test]
fn policies_do_not_mix_however_many_there_are() {
    let mut apis: Vec<_> = (1..=100)
        .map(|limit| {
            Api::new(
                &format!("p{limit}"),
                &format!("{limit}/60s"),
                HeaderStyle::GATEWAY,
            )
        })
        .collect();
    for hit in 1..=3 {
        for (limit, api) in (1..).zip(&mut apis) {
            let headers = api.at(NOW + Duration::from_secs(hit), 1);
            let remaining = number(&headers, "x-ratelimit-remaining").unwrap();
            assert_eq!(number(&headers, "x-ratelimit-limit"), Some(limit));
            assert!(remaining < limit);
            let item = format!("\"p{limit}\";r={remaining};t=");
            assert!(headers["ratelimit"].to_str().unwrap().starts_with(&item));
            assert!(
                headers["ratelimit-policy"]
                    .to_str()
                    .unwrap()
                    .contains(&format!(";q={limit};"))
            );
        }
    }
}

fn any_quota() -> impl Strategy<Value = Quota> {
    let wide = prop_oneof![1..1_000u64, 1..=1u64 << 52];
    let period = prop_oneof![1_000..100_000_000u64, 1_000..=1u64 << 52];
    (0..4usize, wide, period).prop_filter_map("countable", |(algorithm, limit, micros)| {
        Quota::new(
            Algorithm::ALL[algorithm],
            limit,
            Duration::from_micros(micros),
        )
        .ok()
    })
}

proptest! {
    /// Whatever the answers before said: numbers that stay, that change, and that come back.
    #[test]
    fn an_answer_is_written_as_if_it_were_the_first(
        answers in proptest::collection::vec(
            (0..2000u64, proptest::option::of(0..3u64), 0..3u64, 0..2u64, 0..3usize), 1..20),
        same in 0..3u64,
        families in 0..8u8,
    ) {
        let families = [HeaderStyle::IETF, HeaderStyle::TRIPLE, HeaderStyle::X_RATELIMIT]
            .into_iter()
            .zip([1, 2, 4])
            .filter(|(_, bit)| families & bit != 0);
        let style = families.fold(HeaderStyle::NONE, |all, (family, _)| all | family);
        let policy = Policy::new("api", ["2000/60s".parse().unwrap()]).unwrap();
        let lasting = RateLimitHeaders::new(&policy, style);
        for (remaining, more, reset, later, theirs) in answers {
            let seconds = Duration::from_secs;
            let decision = Decision::of_one(NOW, tollgate_core::QuotaAnswer {
                allowed: true,
                granted: 1,
                // Small numbers and large ones, and often those of before.
                remaining: if remaining < 1_000 { same } else { remaining },
                retry_after: None,
                reset_after: seconds(reset),
                more_after: more.map(seconds),
            });
            let written = |by: &RateLimitHeaders| {
                let mut headers = HeaderMap::new();
                for name in ["content-type", "ratelimit"].into_iter().take(theirs) {
                    headers.insert(name, HeaderValue::from_static("theirs"));
                }
                by.write(&decision, NOW + seconds(later), &mut headers);
                headers
            };
            let first = RateLimitHeaders::new(&policy, style);
            let (lasting, first) = (written(&lasting), written(&first));
            prop_assert_eq!(sorted(&lasting), sorted(&first));
            prop_assert!(first.iter().all(|(_, value)| !value.is_empty()));
        }
    }

    /// Any name, any numbers: the fields parse, agree with the decision, and waits are never short.
    #[test]
    fn any_policy_is_written_as_it_is(
        name in "[ -~]{1,128}",
        quotas in proptest::collection::vec(any_quota(), 1..4),
        costs in proptest::collection::vec(1..20u64, 1..12),
        at in 1u64 << 50..1u64 << 51,
    ) {
        let policy = Policy::new(&name, quotas.clone()).unwrap();
        let style = HeaderStyle::GATEWAY | HeaderStyle::TRIPLE;
        let mut api = Api { headers: RateLimitHeaders::new(&policy, style), record: Vec::new() };
        let now = Timestamp::from_micros(at);
        for cost in costs {
            let operation = Operation::Acquire(Cost::new(cost).unwrap());
            let decision = apply(&quotas, &mut api.record, now, operation).decision;
            let headers = api.write(&decision, now);

            let stated = parsed(&headers["ratelimit-policy"]);
            let state = parsed(&headers["ratelimit"]);
            let most = 999_999_999_999_999i64;
            let clamp = |number: u64| i64::try_from(number).unwrap_or(most).min(most);
            prop_assert_eq!(stated.len(), quotas.len());
            for (i, quota) in quotas.iter().enumerate() {
                let answer = &decision.quotas()[i];
                prop_assert!(stated[i].0.starts_with(&name) && stated[i].0 == state[i].0);
                prop_assert_eq!(&stated[i].1[0], &("q".to_owned(), clamp(quota.capacity())));
                prop_assert!(stated[i].1[1].0 == "w" && stated[i].1[1].1 >= 1);
                prop_assert_eq!(&state[i].1[0], &("r".to_owned(), clamp(answer.remaining)));
                prop_assert_eq!(state[i].1.len() == 1, answer.more_after.is_none());
            }
            let wait = number(&headers, "retry-after");
            prop_assert_eq!(wait.is_some(), !decision.allowed() && !decision.is_never());
            if let Some(wait) = wait {
                prop_assert!(wait >= 1 && Duration::from_secs(wait) >= decision.retry_after().unwrap());
                for (i, (_, params)) in state.iter().enumerate() {
                    let t = params.get(1).map_or(0, |(_, t)| *t);
                    prop_assert!(decision.quotas()[i].allowed || i64::try_from(wait).unwrap_or(most) >= t);
                }
            }
            let reset = number(&headers, "x-ratelimit-reset").unwrap();
            let seconds = number(&headers, "ratelimit-reset").unwrap();
            prop_assert!(reset >= at / 1_000_000 && reset <= at.div_ceil(1_000_000) + seconds);
        }
    }
}
