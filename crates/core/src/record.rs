//! One stored record holds the state of every quota of a policy for one identity; and its text
//! form, for stores that keep bytes.
//!
//! The text is `b{tick},{n},{tat}`, `s{period},{window},{previous},{current}`,
//! `f{period},{window},{count}` or `l{period},{at}:{cost},..`; `-` for no state; joined by `;`.
//! Whatever else is found reads as absent: a record of another program or release is replaced, not
//! guessed at.

use std::fmt::Write as _;
use std::str::FromStr;

use crate::algorithm::{Admission, State};

/// The states of a policy's quotas, in order.
pub type Record = Vec<Option<State>>;

/// The moment, in microseconds, from which the whole record decides like none.
#[must_use]
pub fn expires_at(record: &[Option<State>]) -> u64 {
    record
        .iter()
        .flatten()
        .map(State::expires_at)
        .max()
        .unwrap_or(0)
}

/// The text of a record.
#[must_use]
pub fn encode(record: &[Option<State>]) -> Vec<u8> {
    let mut text = String::new();
    for (i, state) in record.iter().enumerate() {
        if i > 0 {
            text.push(';');
        }
        // Writing to a String cannot fail.
        let _ = match state {
            None => write!(text, "-"),
            Some(State::TokenBucket { tick, n, tat }) => write!(text, "b{tick},{n},{tat}"),
            Some(State::SlidingWindow {
                period,
                window,
                previous,
                current,
            }) => {
                write!(text, "s{period},{window},{previous},{current}")
            }
            Some(State::FixedWindow {
                period,
                window,
                count,
            }) => {
                write!(text, "f{period},{window},{count}")
            }
            Some(State::SlidingLog {
                period, admissions, ..
            }) => {
                let _ = write!(text, "l{period}");
                admissions
                    .iter()
                    .try_for_each(|entry| write!(text, ",{}:{}", entry.at, entry.cost))
            }
        };
    }
    text.into_bytes()
}

/// Reads a record. What is not one reads as absent.
#[must_use]
pub fn decode(bytes: &[u8]) -> Record {
    let states = std::str::from_utf8(bytes).ok().and_then(|text| {
        text.split(';')
            .map(|state| {
                if state == "-" {
                    Some(None)
                } else {
                    decode_state(state).map(Some)
                }
            })
            .collect()
    });
    states.unwrap_or_default()
}

fn decode_state(text: &str) -> Option<State> {
    let kind = text.chars().next()?;
    let mut fields = text[kind.len_utf8()..].split(',');
    let state = match kind {
        'b' => {
            let (tick, n) = (number(&mut fields)?, number(&mut fields)?);
            if tick == 0 || n == 0 {
                return None;
            }
            State::TokenBucket {
                tick,
                n,
                tat: number(&mut fields)?,
            }
        }
        's' => State::SlidingWindow {
            period: number(&mut fields)?,
            window: number(&mut fields)?,
            previous: number(&mut fields)?,
            current: number(&mut fields)?,
        },
        'f' => State::FixedWindow {
            period: number(&mut fields)?,
            window: number(&mut fields)?,
            count: number(&mut fields)?,
        },
        'l' => {
            let period = number(&mut fields)?;
            let admissions = fields
                .by_ref()
                .map(|entry| {
                    let (at, cost) = entry.split_once(':')?;
                    Some(Admission {
                        at: at.parse().ok()?,
                        cost: cost.parse().ok()?,
                    })
                })
                .collect::<Option<std::collections::VecDeque<_>>>()?;
            let total = admissions
                .iter()
                .try_fold(0_u64, |sum, entry| sum.checked_add(entry.cost))?;
            State::SlidingLog {
                period,
                total,
                admissions,
            }
        }
        _ => return None,
    };
    fields.next().is_none().then_some(state)
}

fn number<'a, T: FromStr>(fields: &mut impl Iterator<Item = &'a str>) -> Option<T> {
    fields.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_survives_its_text() {
        let record = vec![
            Some(State::TokenBucket {
                tick: 1_000,
                n: 7,
                tat: u128::from(u64::MAX) * 9,
            }),
            None,
            Some(State::SlidingWindow {
                period: 60,
                window: 1,
                previous: 2,
                current: 3,
            }),
            Some(State::FixedWindow {
                period: 60,
                window: 1,
                count: 3,
            }),
            Some(State::SlidingLog {
                period: 60,
                total: 5,
                admissions: [Admission { at: 1, cost: 2 }, Admission { at: 4, cost: 3 }].into(),
            }),
        ];
        assert_eq!(decode(&encode(&record)), record);
    }

    #[test]
    fn numbers_out_of_all_proportion_panic_nowhere() {
        let max = u64::MAX;
        for text in [
            format!("b1000000,1,{}", u128::MAX),
            format!("b{max},{max},{}", u128::MAX),
            format!("s1000000,{max},{max},{max}"),
            format!("f1000000,{max},{max}"),
            format!("l1000000,{max}:{max}"),
        ] {
            for algorithm in crate::Algorithm::ALL {
                let quota =
                    crate::Quota::new(algorithm, 3, std::time::Duration::from_secs(1)).unwrap();
                for now in [0, 1_700_000_000_000_000, max] {
                    let mut record = decode(text.as_bytes());
                    let _ = expires_at(&record);
                    let now = crate::Timestamp::from_micros(now);
                    let acquire = crate::algorithm::Operation::Acquire(crate::Cost::ONE);
                    crate::algorithm::apply(&[quota], &mut record, now, acquire);
                }
            }
        }
    }

    #[test]
    fn what_is_no_record_reads_as_absent() {
        for text in [
            "", "{json}", "b1,1", "b0,1,5", "b1,0,5", "b1,1,5,5", "s1,2,3", "l5,7", "f1,2,-3", "é",
        ] {
            assert_eq!(decode(text.as_bytes()), Record::new(), "{text}");
        }
    }
}
