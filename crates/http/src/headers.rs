//! The rate limit fields of a response.

use bytes::BytesMut;
use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sfv::{Integer, KeyRef, ListSerializer, StringRef};
use tollgate_core::{Decision, Policy, Quota, QuotaAnswer, Timestamp};

use crate::HeaderStyle;
use crate::seconds::{ceil, epoch_second, retry_after_seconds, window};
use crate::speaker::speaker_of;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const TRIPLE: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// Writes the fields of one policy; what does not change from answer to answer is worked out once.
///
/// # Behavior
/// - `RateLimit-Policy` lists the quotas in order: `"name"` for one, `"name.1s"`, `"name.1h"` for
///   several (`"name.1h.2"` for a second one with the same period). `q` is the capacity, `w` the
///   seconds in which it comes back. `RateLimit` says of each what remains, `r`, and in `t` after
///   how many seconds more than that would be there; `t` is left out when nothing is used.
/// - The other families have room for one quota, the [`speaker`](fn@crate::speaker). `RateLimit-Reset` is the time
///   until nothing is used, `X-RateLimit-Reset` the second of the epoch in which that is.
/// - Fields of the chosen families that a handler or an upstream wrote are replaced; the other
///   families are left alone.
/// - A refusal carries `Cache-Control: no-store` and, where waiting helps, `Retry-After`, in every
///   style. Nothing that was admitted carries `Retry-After` from here.
/// - An answer that was not enforced (an outage) carries `RateLimit-Policy` only.
/// - Times are whole seconds, rounded up. Structured fields hold no number above 10^15 - 1; a
///   larger one is given as that.
///
/// The name of a [`Policy`] is printable ASCII, so every field is well formed.
#[derive(Clone, Debug)]
pub struct RateLimitHeaders {
    policy: Policy,
    /// Of all policies, as are the items.
    quotas: Box<[Quota]>,
    style: HeaderStyle,
    /// What begins each item of `RateLimit`: `"name";r=`.
    items: Box<[Box<[u8]>]>,
    policy_field: HeaderValue,
}

impl RateLimitHeaders {
    /// The fields of a policy in a style.
    #[must_use]
    pub fn new(policy: &Policy, style: HeaderStyle) -> Self {
        Self::joined(std::slice::from_ref(policy), style)
    }

    /// The fields of several policies that are decided together: all their quotas, in order. The
    /// answers are then those of a [`Decision::of`] all.
    pub(crate) fn joined(policies: &[Policy], style: HeaderStyle) -> Self {
        let items: Vec<_> = policies.iter().flat_map(item_names).collect();
        let quotas: Box<[_]> = policies.iter().flat_map(Policy::quotas).cloned().collect();
        let policy = policies.first().expect("there is a policy");
        let mut list = ListSerializer::new();
        for (item, quota) in items.iter().zip(&quotas) {
            let _ = list
                .bare_item(quoted(item))
                .parameter(param("q"), integer(quota.capacity()))
                .parameter(param("w"), integer(window(quota)));
        }
        Self {
            policy_field: text(&list.finish().unwrap_or_default()),
            policy: policy.clone(),
            quotas,
            style,
            items: items.iter().map(|item| beginning(item)).collect(),
        }
    }

    /// The policy they speak of; the first of several.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Writes the fields of an answer that was given at `now`, by the wall clock.
    pub fn write(&self, decision: &Decision, now: Timestamp, headers: &mut HeaderMap) {
        self.write_fields(decision, now, headers);
        if !decision.allowed() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.remove(RETRY_AFTER);
            if let Some(seconds) = retry_after_seconds(decision) {
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
        }
    }

    /// The rate limit fields only, in place of what is there.
    pub(crate) fn write_fields(
        &self,
        decision: &Decision,
        now: Timestamp,
        headers: &mut HeaderMap,
    ) {
        // All at once, or the map grows twice.
        headers.reserve(8);
        let mut text = BytesMut::with_capacity(ROOM);
        if self.style.contains(HeaderStyle::IETF) {
            headers.insert(RATELIMIT_POLICY, self.policy_field.clone());
            match self.ratelimit(decision, &mut text) {
                Some(field) => {
                    headers.insert(RATELIMIT, field);
                }
                None => {
                    headers.remove(RATELIMIT);
                }
            }
        }
        self.write_threes(decision, now, headers, &mut text);
    }

    /// The same beside those that another layer has written. The fields that have room for one quota
    /// are replaced if this one `speaks`.
    pub(crate) fn add_fields(
        &self,
        decision: &Decision,
        now: Timestamp,
        speaks: bool,
        headers: &mut HeaderMap,
    ) {
        let mut text = BytesMut::with_capacity(ROOM);
        if self.style.contains(HeaderStyle::IETF) {
            headers.append(RATELIMIT_POLICY, self.policy_field.clone());
            if let Some(field) = self.ratelimit(decision, &mut text) {
                headers.append(RATELIMIT, field);
            }
        }
        if speaks {
            self.write_threes(decision, now, headers, &mut text);
        }
    }

    fn write_threes(
        &self,
        decision: &Decision,
        now: Timestamp,
        headers: &mut HeaderMap,
        text: &mut BytesMut,
    ) {
        let (triple, epoch) = (
            self.style.contains(HeaderStyle::TRIPLE),
            self.style.contains(HeaderStyle::X_RATELIMIT),
        );
        if !triple && !epoch {
            return;
        }
        let speaker = decision
            .origin()
            .is_enforced()
            .then(|| speaker_of(&self.quotas, decision))
            .flatten();
        let one = |reset: fn(Timestamp, &QuotaAnswer) -> u64| {
            speaker.map(|it| {
                [
                    it.quota.capacity(),
                    it.answer.remaining,
                    reset(now, it.answer),
                ]
            })
        };
        if triple {
            three(
                headers,
                text,
                TRIPLE,
                one(|_, answer| ceil(answer.reset_after)),
            );
        }
        if epoch {
            let reset = one(|now, answer| epoch_second(now, answer.reset_after));
            three(headers, text, X_RATELIMIT, reset);
        }
    }

    /// The field `RateLimit`; none if nobody counted.
    fn ratelimit(&self, decision: &Decision, text: &mut BytesMut) -> Option<HeaderValue> {
        if !decision.origin().is_enforced() || decision.quotas().is_empty() {
            return None;
        }
        for (i, (item, answer)) in self.items.iter().zip(decision.quotas()).enumerate() {
            if i > 0 {
                text.extend_from_slice(b", ");
            }
            text.extend_from_slice(item);
            digits(text, answer.remaining.min(MOST));
            if let Some(wait) = answer.more_after {
                text.extend_from_slice(b";t=");
                digits(text, ceil(wait).min(MOST));
            }
        }
        Some(taken(text))
    }
}

/// Room for the values of all fields of a policy with one quota: one allocation for them all.
const ROOM: usize = 160;

/// The largest integer of a structured field.
const MOST: u64 = 999_999_999_999_999;

/// The value that was written, out of the buffer.
fn taken(text: &mut BytesMut) -> HeaderValue {
    HeaderValue::from_maybe_shared(text.split().freeze())
        .expect("names are printable ASCII, and so are digits")
}

/// Writes a number.
fn digits(text: &mut BytesMut, mut number: u64) {
    let (mut digits, mut start) = ([0; 20], 20);
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[start..]);
}

/// `"name";r=`.
fn beginning(item: &str) -> Box<[u8]> {
    let mut list = ListSerializer::new();
    let _ = list.bare_item(quoted(item));
    let mut text = list.finish().unwrap_or_default().into_bytes();
    text.extend_from_slice(b";r=");
    text.into()
}

/// Replaces three fields, or removes them.
fn three(
    headers: &mut HeaderMap,
    text: &mut BytesMut,
    names: [HeaderName; 3],
    values: Option<[u64; 3]>,
) {
    match values {
        Some(values) => {
            for (name, value) in names.into_iter().zip(values) {
                digits(text, value);
                headers.insert(name, taken(text));
            }
        }
        None => {
            for name in names {
                headers.remove(name);
            }
        }
    }
}

/// What each quota is called: the policy's name, with the period where there are several.
fn item_names(policy: &Policy) -> Box<[Box<str>]> {
    let name = policy.name();
    if policy.quotas().len() == 1 {
        return Box::new([name.into()]);
    }
    let periods: Vec<String> = policy.quotas().iter().map(period).collect();
    periods
        .iter()
        .enumerate()
        .map(|(i, period)| {
            match periods[..i].iter().filter(|other| *other == period).count() {
                0 => format!("{name}.{period}"),
                earlier => format!("{name}.{period}.{}", earlier + 1),
            }
            .into()
        })
        .collect()
}

/// A period as it is written in quotas.
fn period(quota: &Quota) -> String {
    let text = quota.to_string();
    let period = text.split(['/', ' ']).nth(1);
    period.expect("a quota prints as limit/period").to_owned()
}

fn quoted(item: &str) -> &StringRef {
    StringRef::from_str(item).expect("the name of a policy is printable ASCII")
}

fn param(name: &'static str) -> &'static KeyRef {
    KeyRef::from_str(name).expect("a lower-case letter is a key")
}

fn integer(number: u64) -> Integer {
    Integer::try_from(number).unwrap_or(Integer::MAX)
}

fn text(field: &str) -> HeaderValue {
    HeaderValue::from_str(field).expect("a serialised structured field is printable ASCII")
}

#[cfg(test)]
mod tests;
