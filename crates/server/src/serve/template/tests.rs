use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::{Connect, Decision, Limiter, Origin, QuotaAnswer, Timestamp};
use tollgate_http::HeaderStyle;

use super::*;
use crate::engine::Outcome;
use crate::rules::{Compiler, LiveRule, Rule};

const NOW: Timestamp = Timestamp::from_micros(1_753_881_072_000_000);

async fn rule(headers: HeaderStyle, rule: Value) -> Arc<LiveRule> {
    let backend = Connect::new("memory://").connect().await.unwrap();
    let compiler = Compiler {
        limiter: Limiter::builder(backend).build(),
        headers,
        default: Vec::new(),
        normalise: Arc::new(|_, text| text.as_bytes().to_vec()),
    };
    Arc::new(compiler.live(Rule::read(&rule).unwrap()).unwrap())
}

async fn window(headers: HeaderStyle, limit: u32) -> Arc<LiveRule> {
    let config = json!({"algorithm": "sliding_window", "limit": limit, "window_seconds": 60});
    let described = json!({"id": "r", "identity_type": "ip_address", "config": config});
    rule(headers, described).await
}

/// What a quota says of whom it refuses until then.
fn refusal(now: Timestamp, until: Timestamp, remaining: u64) -> QuotaAnswer {
    let wait = until.saturating_since(now);
    QuotaAnswer {
        allowed: false,
        granted: 0,
        remaining,
        retry_after: Some(wait),
        reset_after: wait * 3,
        more_after: Some(wait / 2),
    }
}

fn refused(rule: &Arc<LiveRule>, decision: Decision, now: Timestamp) -> Verdict {
    let mut verdict = Verdict::new(Arc::clone(rule), Outcome::Decided(decision), now);
    let counted = rule.counted();
    verdict.set_counted(counted.headers.clone(), counted.number);
    verdict
}

/// Answers to one request.
struct Asked {
    style: BodyStyle,
    path: &'static str,
    given: Option<&'static str>,
    template: Option<Template>,
    /// Where they are written, one behind the other.
    answers: Vec<u8>,
    copied: usize,
    written: usize,
}

impl Asked {
    fn new(style: BodyStyle, path: &'static str, given: Option<&'static str>) -> Self {
        Self {
            style,
            path,
            given,
            template: None,
            answers: Vec::new(),
            copied: 0,
            written: 0,
        }
    }

    /// Writes an answer, which is the same without any template.
    fn answer(&mut self, verdict: &Verdict) -> &[u8] {
        let mut date = Date::default();
        let made = RequestId::made(verdict.now());
        let answer = Answer {
            verdict,
            style: self.style,
            path: self.path,
            id: self.given.map_or(Id::Made(made), Id::Given),
            date: date.text(verdict.now()),
        };
        let text = |it: &Option<Template>| it.as_ref().map(|it| it.text.as_ptr());
        let (start, before) = (self.answers.len(), text(&self.template));
        let status = answer.write(&mut self.template, &mut self.answers);
        if before.is_some() && text(&self.template) == before {
            self.copied += 1;
        } else {
            self.written += 1;
        }
        let mut whole = Vec::new();
        assert_eq!(answer.write(&mut None, &mut whole), status);
        let answer = &self.answers[start..];
        assert_eq!(
            String::from_utf8_lossy(answer),
            String::from_utf8_lossy(&whole)
        );
        answer
    }
}

#[tokio::test]
async fn a_copy_is_what_would_be_written_whatever_changes() {
    let until = NOW + Duration::from_micros(12_000_500);
    for style in [HeaderStyle::GATEWAY, HeaderStyle::TRIPLE, HeaderStyle::NONE] {
        let rule = window(style, 5).await;
        for body in [BodyStyle::Problem, BodyStyle::Plain] {
            for given in [None, Some("mine"), Some("a-longer-one-of-the-client")] {
                let mut asked = Asked::new(body, "/a?\"request_id\":\"mine\"", given);
                // Through all that a second can do to a number of digits.
                for step in 0..1_200 {
                    let now = NOW + Duration::from_micros(10_000 * step);
                    let decision = Decision::of_one(now, refusal(now, until, step / 500));
                    let origin = [Origin::Shared, Origin::RememberedRefusal][step as usize % 2];
                    asked.answer(&refused(&rule, decision.with_origin(origin), now));
                }
                assert!(
                    asked.copied > 1_000,
                    "{style:?} {body:?} {given:?}: {}",
                    asked.copied
                );
                assert!(
                    asked.written > 10,
                    "{style:?} {body:?} {given:?}: {}",
                    asked.written
                );
            }
        }
    }
}

#[tokio::test]
async fn another_rule_has_another_answer() {
    let rules = [
        window(HeaderStyle::GATEWAY, 5).await,
        window(HeaderStyle::GATEWAY, 6).await,
        window(HeaderStyle::TRIPLE, 5).await,
    ];
    let mut asked = Asked::new(BodyStyle::Problem, "/", None);
    for rule in rules.iter().chain(&rules) {
        for copied in [0, 1] {
            let before = asked.copied;
            let decision = Decision::of_one(NOW, refusal(NOW, NOW + Duration::from_secs(9), 0));
            let answer = asked.answer(&refused(rule, decision, NOW)).to_vec();
            assert_eq!(asked.copied - before, copied);
            let limit = rule.rule().configs()[0].quota().unwrap().unwrap().limit();
            let told = format!("\"limit\":{limit},");
            assert!(String::from_utf8(answer).unwrap().contains(&told), "{told}");
        }
    }
}

#[tokio::test]
async fn blocks_are_copied_and_what_is_rare_is_not() {
    let rule = window(HeaderStyle::GATEWAY, 5).await;
    let verdict = |outcome| Verdict::new(Arc::clone(&rule), outcome, NOW);
    let until = NOW + Duration::from_micros(2_000_001);
    let mut asked = Asked::new(BodyStyle::Problem, "/", None);
    for step in [0, 1, 1_000_000, 1_900_000] {
        let now = NOW + Duration::from_micros(step);
        asked.answer(&Verdict::new(
            Arc::clone(&rule),
            Outcome::BlockedUntil(until),
            now,
        ));
    }
    // Three seconds, two, and one.
    assert_eq!((asked.copied, asked.written), (1, 3));
    asked.answer(&verdict(Outcome::Blocked));
    asked.answer(&verdict(Outcome::Blocked));
    assert_eq!((asked.copied, asked.written), (2, 4));

    let one = refusal(NOW, NOW + Duration::from_secs(3), 0);
    for origin in [Origin::LocalFallback, Origin::FailClosed] {
        let decision = Decision::of_one(NOW, one).with_origin(origin);
        let verdict = refused(&rule, decision, NOW);
        assert_eq!(verdict.told(), None, "{origin:?}");
        asked.answer(&verdict);
    }
    let verdict = refused(&rule, Decision::of(NOW, vec![one, one]), NOW);
    assert_eq!(verdict.told(), None);
    assert!(asked.template.is_none());
}

#[tokio::test]
async fn a_long_answer_is_not_kept() {
    let rule = window(HeaderStyle::GATEWAY, 5).await;
    for (length, kept) in [(1_000, true), (2_000, false)] {
        let path: &str = "/x".repeat(length / 2).leak();
        let mut asked = Asked::new(BodyStyle::Problem, path, None);
        let decision = Decision::of_one(NOW, refusal(NOW, NOW + Duration::from_secs(9), 0));
        let verdict = refused(&rule, decision, NOW);
        asked.answer(&verdict);
        asked.answer(&verdict);
        assert_eq!(
            (asked.copied, asked.template.is_some()),
            (usize::from(kept), kept)
        );
    }
}
