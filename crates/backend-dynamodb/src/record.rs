//! One item holds the state of every quota of a policy for one identity.
//!
//! | attribute | type | is |
//! |---|---|---|
//! | `pk` | S | the key, `{prefix}:v1:{policy}:{digest}` |
//! | `shape` | S | what the numbers mean, a word a quota: `b{tick},{n}`, `s{period}`, `f{period}`, `l{period}`, or `-` for no state |
//! | `t{i}` | N | token bucket: the moment quota `i` is full again, in units of `1/n` tick |
//! | `w{i}`, `p{i}`, `c{i}` | N | windows: number, count of the one before (sliding only), count |
//! | `l{i}` | B | sliding log: its admissions |
//! | `rev` | N | with a log: changes with every write |
//! | `expires_at` | N | when the item may be removed, in seconds of the epoch |
//!
//! Every condition checks the shape, so numbers of a changed quota are never taken for those of
//! another. What is none of this reads as absent, and is replaced.

mod log;
pub(crate) mod number;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use tollgate_core::algorithm::State;
use tollgate_core::record::Record;
use tollgate_core::{Algorithm, Quota};

pub(crate) type Attributes = HashMap<String, AttributeValue>;

pub(crate) const PK: &str = "pk";
pub(crate) const SHAPE: &str = "shape";
pub(crate) const REVISION: &str = "rev";
pub(crate) const EXPIRES_AT: &str = "expires_at";

/// What is stored under a key, as far as is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    pub(crate) record: Record,
    /// The attributes that it came from, `pk` and `expires_at` left out; `None` if there is no item.
    pub(crate) attributes: Option<Attributes>,
}

impl Held {
    /// What an item holds.
    pub(crate) fn of_item(item: Option<Attributes>) -> Self {
        let Some(mut attributes) = item else {
            return Self::default();
        };
        attributes.retain(|name, _| is_ours(name));
        Self {
            record: decode(&attributes).unwrap_or_default(),
            attributes: Some(attributes),
        }
    }

    /// What an item of this record holds.
    pub(crate) fn of_record(record: Record, revision: Option<u64>) -> Self {
        Self {
            attributes: Some(encode(&record, revision)),
            record,
        }
    }

    pub(crate) fn revision(&self) -> Option<u64> {
        number_of(self.attributes.as_ref()?, REVISION)
    }

    /// What comes next.
    pub(crate) fn next(&self, record: Record) -> Self {
        let revision = has_log(&record).then(|| match self.revision() {
            Some(revision) => revision.wrapping_add(1),
            // An item that is removed and made anew must not meet one of its old revisions.
            None => RandomState::new().hash_one(0) >> 1,
        });
        Self::of_record(record, revision)
    }

    /// Whether the numbers are those of these quotas.
    pub(crate) fn has_shape_of(&self, quotas: &[Quota]) -> bool {
        let shape = self.attributes.as_ref().and_then(|all| all.get(SHAPE));
        shape.and_then(|shape| shape.as_s().ok()) == Some(&shape_of(quotas))
    }
}

/// An attribute that belongs to a record.
fn is_ours(name: &str) -> bool {
    name == SHAPE
        || name == REVISION
        || name
            .strip_prefix(['t', 'w', 'p', 'c', 'l'])
            .is_some_and(|number| {
                !number.is_empty()
                    && number.len() <= 2
                    && number.bytes().all(|b| b.is_ascii_digit())
            })
}

fn has_log(record: &Record) -> bool {
    record
        .iter()
        .flatten()
        .any(|state| matches!(state, State::SlidingLog { .. }))
}

/// The shape of a record that has a state for each quota.
pub(crate) fn shape_of(quotas: &[Quota]) -> String {
    let mut shape = String::new();
    for (i, quota) in quotas.iter().enumerate() {
        if i > 0 {
            shape.push(';');
        }
        let period = quota.period_ticks() * quota.tick_micros();
        // Writing to a String cannot fail.
        let _ = match quota.algorithm() {
            Algorithm::TokenBucket => {
                write!(shape, "b{},{}", quota.tick_micros(), quota.units_per_tick())
            }
            Algorithm::SlidingWindow => write!(shape, "s{period}"),
            Algorithm::FixedWindow => write!(shape, "f{period}"),
            _ => write!(shape, "l{period}"),
        };
    }
    shape
}

fn encode(record: &Record, revision: Option<u64>) -> Attributes {
    let mut shape = String::new();
    let mut attributes = Attributes::with_capacity(2 + 3 * record.len());
    for (i, state) in record.iter().enumerate() {
        if i > 0 {
            shape.push(';');
        }
        let mut put = |name: char, value| attributes.insert(format!("{name}{i}"), value);
        let _ = match state {
            None => write!(shape, "-"),
            Some(State::TokenBucket { tick, n, tat }) => {
                put('t', n_value(tat));
                write!(shape, "b{tick},{n}")
            }
            Some(State::SlidingWindow {
                period,
                window,
                previous,
                current,
            }) => {
                put('w', n_value(window));
                put('p', n_value(previous));
                put('c', n_value(current));
                write!(shape, "s{period}")
            }
            Some(State::FixedWindow {
                period,
                window,
                count,
            }) => {
                put('w', n_value(window));
                put('c', n_value(count));
                write!(shape, "f{period}")
            }
            Some(State::SlidingLog {
                period, admissions, ..
            }) => {
                put('l', AttributeValue::B(Blob::new(log::encode(admissions))));
                write!(shape, "l{period}")
            }
        };
    }
    attributes.insert(SHAPE.into(), AttributeValue::S(shape));
    if let Some(revision) = revision {
        attributes.insert(REVISION.into(), n_value(revision));
    }
    attributes
}

fn decode(attributes: &Attributes) -> Option<Record> {
    let shape = attributes.get(SHAPE)?.as_s().ok()?;
    let words = shape.split(';').enumerate();
    words
        .map(|(i, word)| match word {
            "-" => Some(None),
            word => decode_state(i, word, attributes).map(Some),
        })
        .collect()
}

fn decode_state(i: usize, word: &str, attributes: &Attributes) -> Option<State> {
    let number = |name: char| number_of(attributes, &format!("{name}{i}"));
    let kind = word.chars().next()?;
    let numbers = &word[kind.len_utf8()..];
    if kind == 'b' {
        let (tick, n) = numbers.split_once(',')?;
        let (tick, n) = (tick.parse().ok()?, n.parse().ok()?);
        let tat = attributes.get(&format!("t{i}"))?.as_n().ok()?;
        let tat = number::parse(tat)?;
        return (tick > 0 && n > 0).then_some(State::TokenBucket { tick, n, tat });
    }
    let period = numbers.parse().ok()?;
    match kind {
        's' => Some(State::SlidingWindow {
            period,
            window: number('w')?,
            previous: number('p')?,
            current: number('c')?,
        }),
        'f' => Some(State::FixedWindow {
            period,
            window: number('w')?,
            count: number('c')?,
        }),
        'l' => {
            let log = attributes.get(&format!("l{i}"))?.as_b().ok()?;
            log::decode(period, log.as_ref())
        }
        _ => None,
    }
}

pub(crate) fn number_of(attributes: &Attributes, name: &str) -> Option<u64> {
    number::parse(attributes.get(name)?.as_n().ok()?)
}

pub(crate) fn n_value(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

#[cfg(test)]
mod tests;
