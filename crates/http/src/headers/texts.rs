//! Values that stand for good: a copy of such a value is two words, where one of any other counts its
//! copies in memory that all of them share.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderValue;

use super::value;

/// How many texts of policies a process keeps for good; those that come later are counted. They are
/// written by whoever runs the service, never by a client.
const MOST: usize = 1_024;
/// The longest that is kept, in bytes.
const LONGEST: usize = 128;

/// The value of a text that is written into every answer of a policy.
pub(super) fn constant(text: &str) -> HeaderValue {
    static KEPT: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    kept(text, &KEPT).map_or_else(|| value(text.as_bytes()), HeaderValue::from_static)
}

fn kept(text: &str, texts: &Mutex<HashSet<&'static str>>) -> Option<&'static str> {
    let mut texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = texts.get(text) {
        return Some(kept);
    }
    if text.len() > LONGEST || texts.len() >= MOST {
        return None;
    }
    let text: &'static str = Box::leak(text.into());
    texts.insert(text);
    Some(text)
}

/// The value of a number.
pub(super) fn number(number: u64) -> HeaderValue {
    if number >= SMALL as u64 {
        return value(itoa::Buffer::new().format(number).as_bytes());
    }
    let number = number as usize;
    let zeros = match number {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let text = Bytes::from_static(&DIGITS[number * 3 + zeros..number * 3 + 3]);
    HeaderValue::from_maybe_shared(text).expect("digits are printable ASCII")
}

/// Numbers below are texts of the program: most seconds, and what remains of most quotas.
const SMALL: usize = 1_000;

/// Three digits of each.
static DIGITS: [u8; SMALL * 3] = digits();

const fn digits() -> [u8; SMALL * 3] {
    let (mut all, mut number) = ([b'0'; SMALL * 3], 0);
    while number < SMALL {
        all[number * 3] += (number / 100) as u8;
        all[number * 3 + 1] += (number / 10 % 10) as u8;
        all[number * 3 + 2] += (number % 10) as u8;
        number += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for it in (0..1_100).chain([u64::MAX]) {
            assert_eq!(number(it), it.to_string());
        }
    }

    #[test]
    fn so_many_texts_are_kept_and_no_more() {
        let texts = Mutex::default();
        assert_eq!(kept(&"x".repeat(LONGEST + 1), &texts), None);
        for i in 0..MOST {
            let text = i.to_string();
            assert_eq!(kept(&text, &texts), Some(&*text));
        }
        assert_eq!(kept("one more", &texts), None);
        let [first, again] = [0, 0].map(|_| kept("0", &texts).unwrap().as_ptr());
        assert_eq!(first, again);
        // Whether it is kept or not, it is the same to whoever reads it.
        assert_eq!(constant("\"api\";q=5;w=1"), "\"api\";q=5;w=1");
    }
}
