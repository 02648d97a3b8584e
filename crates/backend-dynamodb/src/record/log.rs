//! The admissions of a sliding log as bytes: for each the time since the one before and the cost, as
//! variable-length integers. An item is billed by its size, and most admissions take 4 to 6 bytes.

use std::collections::VecDeque;

use tollgate_core::algorithm::{Admission, State};

pub(crate) fn encode(admissions: &VecDeque<Admission>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(admissions.len() * 6);
    let mut before = 0;
    for admission in admissions {
        // Times never decrease; should they all the same, the difference wraps, and wraps back.
        push(&mut bytes, admission.at.wrapping_sub(before));
        push(&mut bytes, admission.cost);
        before = admission.at;
    }
    bytes
}

/// The state of a log; `None` for what is none.
pub(crate) fn decode(period: u64, bytes: &[u8]) -> Option<State> {
    let mut bytes = bytes.iter().copied();
    let (mut admissions, mut before, mut total) = (VecDeque::new(), 0_u64, 0_u64);
    while bytes.len() > 0 {
        let at = before.wrapping_add(next(&mut bytes)?);
        let cost = next(&mut bytes)?;
        total = total.checked_add(cost)?;
        // Costs of the same microsecond are one entry, and the oldest comes first.
        if cost == 0 || (at <= before && !admissions.is_empty()) {
            return None;
        }
        admissions.push_back(Admission { at, cost });
        before = at;
    }
    Some(State::SlidingLog {
        period,
        total,
        admissions,
    })
}

fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn next(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        let part = u64::from(byte & 0x7F);
        if part.checked_shl(shift)? >> shift != part {
            return None;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: &[(u64, u64)]) -> VecDeque<Admission> {
        entries
            .iter()
            .map(|&(at, cost)| Admission { at, cost })
            .collect()
    }

    #[test]
    fn it_survives_its_bytes() {
        let now = 1_700_000_000_000_000;
        for entries in [
            log(&[]),
            log(&[(0, 1)]),
            log(&[
                (now, 1),
                (now + 127, 128),
                (now + 1_000_000, 1 << 52),
                (u64::MAX, 300),
            ]),
        ] {
            let Some(State::SlidingLog {
                period,
                total,
                admissions,
            }) = decode(60, &encode(&entries))
            else {
                panic!("{entries:?} reads as none");
            };
            assert_eq!((period, &admissions), (60, &entries));
            assert_eq!(total, entries.iter().map(|entry| entry.cost).sum::<u64>());
        }
    }

    #[test]
    fn what_is_none_reads_as_none() {
        let twice = [encode(&log(&[(5, 1)])), vec![0, 1]].concat();
        let too_much = encode(&log(&[(1, u64::MAX), (2, u64::MAX)]));
        for bytes in [&[0x80][..], &[1], &[1, 0], &[0xFF; 30], &twice, &too_much] {
            assert_eq!(decode(60, bytes), None, "{bytes:?}");
        }
    }
}
