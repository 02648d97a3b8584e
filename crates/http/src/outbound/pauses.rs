//! Which servers asked for a pause, and until when.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;
use tollgate_core::{Clock, Key, SystemClock};

/// The most servers that are remembered.
const MOST: usize = 10_000;

/// The longest pause that a server can ask for.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Default)]
pub(super) struct Pauses(Mutex<HashMap<Key<'static>, Instant>>);

impl Pauses {
    /// Until when requests of this key have to wait, if they do.
    pub(super) fn until(&self, key: &Key<'_>, now: Instant) -> Option<Instant> {
        let pauses = self.0.lock().unwrap_or_else(|it| it.into_inner());
        // Most of the time nobody pauses, and nothing has to be hashed.
        if pauses.is_empty() {
            return None;
        }
        pauses.get(key).copied().filter(|until| *until > now)
    }

    /// Pauses for so long; a longer pause stays.
    pub(super) fn pause(&self, key: &Key<'_>, now: Instant, wait: Duration) {
        let until = now + wait.min(LONGEST);
        let key = key.clone().into_owned();
        let mut pauses = self.0.lock().unwrap_or_else(|it| it.into_inner());
        if let Some(known) = pauses.get_mut(&key) {
            *known = (*known).max(until);
            return;
        }
        if pauses.len() >= MOST {
            pauses.retain(|_, until| *until > now);
        }
        if pauses.len() >= MOST
            && let Some(soonest) = pauses.iter().min_by_key(|(_, until)| **until)
        {
            let soonest = soonest.0.clone();
            pauses.remove(&soonest);
        }
        pauses.insert(key, until);
    }
}

/// What a `Retry-After` asks for: seconds, or a date.
pub(super) fn wait(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().map_or(LONGEST, Duration::from_secs));
    }
    let now = SystemClock.now().as_micros() / 1_000_000;
    Some(Duration::from_secs(date(text)?.saturating_sub(now)))
}

/// The second of the epoch of an HTTP date: `Sun, 06 Nov 1994 08:49:37 GMT`. The two obsolete forms
/// are not read.
fn date(text: &str) -> Option<u64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let rest = text.split_once(", ")?.1.strip_suffix(" GMT")?;
    let mut words = rest.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let month = words.next().filter(|it| it.len() == 3)?;
    let month = MONTHS.find(month).filter(|it| it % 3 == 0)? as u64 / 3;
    let year: u64 = words
        .next()?
        .parse()
        .ok()
        .filter(|it| (1970..10_000).contains(it))?;
    let mut time = words.next()?.split(':').map(str::parse::<u64>);
    let (hour, minute, second) = (time.next()?.ok()?, time.next()?.ok()?, time.next()?.ok()?);
    if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 1970, by years that begin in March, so that the leap day is the last.
    let (y, m) = if month < 2 {
        (year - 1, month + 10)
    } else {
        (year, month - 2)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        assert_eq!(date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(date("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        assert_eq!(date("Mon, 01 Mar 2100 00:00:00 GMT"), Some(4_107_542_400));
        for wrong in [
            "",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov -1 08:49:37 GMT",
            "06 Nov 1994",
        ] {
            assert_eq!(date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn seconds_are_read_and_bounded() {
        let wait = |text: &'static str| super::wait(&HeaderValue::from_static(text));
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait("99999999999999999999"), Some(LONGEST));
        assert_eq!(wait("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("-1"), None);
        assert_eq!(wait("soon"), None);
    }

    #[tokio::test]
    async fn as_many_as_fit_are_remembered_and_the_longest_pauses_stay() {
        let (pauses, now) = (Pauses::default(), Instant::now());
        for n in 0..MOST as u64 + 5 {
            let key = Key::from(n.to_string());
            pauses.pause(&key, now, Duration::from_secs(10 + n));
        }
        let until = |n: u64| pauses.until(&Key::from(n.to_string()), now);
        assert_eq!(
            (until(4), until(5)),
            (None, Some(now + Duration::from_secs(15)))
        );
        pauses.pause(&Key::from("5"), now, Duration::from_secs(1));
        assert_eq!(until(5), Some(now + Duration::from_secs(15)));
        assert_eq!(pauses.0.lock().unwrap().len(), MOST);
    }
}
