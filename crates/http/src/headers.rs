//! The rate limit fields of a response.

mod fields;
mod ready;
mod texts;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sfv::{Integer, KeyRef, ListSerializer, StringRef};
use tollgate_core::{Decision, Policy, Quota, Timestamp};

use self::fields::{Fields, Values};
use self::ready::{Changed, Numbers};
use self::texts::number;
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
    /// No other has it; clones do.
    id: u64,
    /// Those of an answer that was enforced, with what does not change.
    fields: Fields,
    /// What begins each item of `RateLimit`: `"name";r=`.
    items: Box<[Box<[u8]>]>,
    /// The longest that `RateLimit` can get.
    room: usize,
    policy_field: HeaderValue,
    /// The limit of each quota, as fields of one quota tell it.
    limits: Box<[HeaderValue]>,
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
        let limits = quotas
            .iter()
            .map(|quota| texts::constant(itoa::Buffer::new().format(quota.capacity())));
        let items: Box<[_]> = items.iter().map(|item| beginning(item)).collect();
        let limits: Box<[_]> = limits.collect();
        let policy_field = texts::constant(&list.finish().unwrap_or_default());
        Self {
            fields: Fields::new(style, policy_field.clone(), &limits[0]),
            policy_field,
            policy: policy.clone(),
            limits,
            quotas,
            style,
            id: ready::next_id(),
            room: items.iter().map(|item| item.len() + AROUND).sum(),
            items,
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
        if self.fields.len() == 0 {
            return;
        }
        let Some((speaker, numbers)) = self.numbers(decision, now) else {
            self.write_unenforced(headers);
            return;
        };
        if self.quotas.len() == 1 {
            ready::put(self, decision, numbers, headers);
            return;
        }
        let values = self.values(decision, speaker, numbers);
        self.fields.put(Some(values), headers);
    }

    /// Nobody counted: there is the policy, and no numbers.
    fn write_unenforced(&self, headers: &mut HeaderMap) {
        for (name, _) in self.fields.iter() {
            headers.remove(name);
        }
        if self.style.contains(HeaderStyle::IETF) {
            headers.insert(RATELIMIT_POLICY, self.policy_field.clone());
        }
    }

    /// The quota that speaks, and what it says; none if nobody counted.
    fn numbers(&self, decision: &Decision, now: Timestamp) -> Option<(usize, Numbers)> {
        if !decision.origin().is_enforced() {
            return None;
        }
        // Of one there is none to choose.
        let (position, answer) = match (&self.quotas[..], decision.quotas()) {
            ([_], [answer]) => (0, answer),
            (quotas, _) => {
                let speaker = speaker_of(quotas, decision)?;
                (speaker.position, speaker.answer)
            }
        };
        let numbers = Numbers {
            remaining: answer.remaining,
            more: answer.more_after.map(ceil),
            reset: ceil(answer.reset_after),
            epoch: epoch_second(now, answer.reset_after),
        };
        Some((position, numbers))
    }

    /// All that changes from answer to answer.
    fn values(&self, decision: &Decision, speaker: usize, numbers: Numbers) -> Values {
        Values {
            limit: Some(self.limits[speaker].clone()),
            ..self.changed(decision, numbers, Changed::all(self.style))
        }
    }

    /// Those values that have changed.
    fn changed(&self, decision: &Decision, new: Numbers, changed: Changed) -> Values {
        let remaining = |family| {
            let told = changed.has(Changed::REMAINING) && self.style.contains(family);
            told.then(|| number(new.remaining))
        };
        Values {
            ratelimit: match changed.has(Changed::RATELIMIT) {
                true => self.ratelimit(decision),
                false => None,
            },
            limit: None,
            remaining: [HeaderStyle::TRIPLE, HeaderStyle::X_RATELIMIT].map(remaining),
            reset: changed.has(Changed::RESET).then(|| number(new.reset)),
            epoch: changed.has(Changed::EPOCH).then(|| number(new.epoch)),
        }
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
        if self.style.contains(HeaderStyle::IETF) {
            headers.append(RATELIMIT_POLICY, self.policy_field.clone());
            if let Some(field) = self.ratelimit(decision) {
                headers.append(RATELIMIT, field);
            }
        }
        if speaks {
            self.write_threes(decision, now, headers);
        }
    }

    /// The families that have room for one quota.
    fn write_threes(&self, decision: &Decision, now: Timestamp, headers: &mut HeaderMap) {
        let (mut fields, spoken) = (self.fields.clone(), self.numbers(decision, now));
        if let Some((speaker, numbers)) = spoken {
            fields.fill(self.values(decision, speaker, numbers));
        }
        for (name, value) in fields.iter() {
            match spoken {
                _ if *name == RATELIMIT || *name == RATELIMIT_POLICY => {}
                Some(_) => drop(headers.insert(name, value.clone())),
                None => drop(headers.remove(name)),
            }
        }
    }

    /// The field `RateLimit`; none if nobody counted.
    fn ratelimit(&self, decision: &Decision) -> Option<HeaderValue> {
        if !decision.origin().is_enforced() || decision.quotas().is_empty() {
            return None;
        }
        // One allocation, that of the value: most are short.
        let (mut short, mut long);
        let room: &mut [u8] = if self.room <= SHORT {
            short = [0; SHORT];
            &mut short
        } else {
            long = vec![0; self.room];
            &mut long
        };
        let (mut end, mut digits) = (0, itoa::Buffer::new());
        for (i, (item, answer)) in self.items.iter().zip(decision.quotas()).enumerate() {
            if i > 0 {
                end = text_at(room, end, b", ");
            }
            end = text_at(room, end, item);
            end = text_at(
                room,
                end,
                digits.format(answer.remaining.min(MOST)).as_bytes(),
            );
            if let Some(wait) = answer.more_after {
                end = text_at(room, end, b";t=");
                end = text_at(room, end, digits.format(ceil(wait).min(MOST)).as_bytes());
            }
        }
        Some(value(&room[..end]))
    }
}

/// A `RateLimit` field that is built without an allocation.
const SHORT: usize = 96;

/// The most that stands around the beginning of an item: `, `, two numbers and `;t=`.
const AROUND: usize = 2 + 20 + 3 + 20;

/// The largest integer of a structured field.
const MOST: u64 = 999_999_999_999_999;

fn value(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).expect("names are printable ASCII, and so are digits")
}

/// Writes text where the text before ends, and says where this one does.
fn text_at(room: &mut [u8], start: usize, text: &[u8]) -> usize {
    let end = start + text.len();
    room[start..end].copy_from_slice(text);
    end
}

/// `"name";r=`.
fn beginning(item: &str) -> Box<[u8]> {
    let mut list = ListSerializer::new();
    let _ = list.bare_item(quoted(item));
    let mut text = list.finish().unwrap_or_default().into_bytes();
    text.extend_from_slice(b";r=");
    text.into()
}

/// What each quota is called: the policy's name, with the period where there are several.
pub(crate) fn item_names(policy: &Policy) -> Box<[Box<str>]> {
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

#[cfg(test)]
mod tests;
