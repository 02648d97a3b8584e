//! A record on the wire: the commands that read and write it, and when it expires.

use std::borrow::Cow;
use std::time::Duration;

use memcache::exp::{MetaCommand, MetaOp};
use tollgate_core::{Key, Timestamp};

/// The longest key that memcached takes, in bytes.
pub(crate) const MAX_KEY: usize = 250;

/// Up to here an expiry is read as a span of time, and above as a moment of the Unix epoch.
const LONGEST_SPAN: u64 = 30 * 24 * 60 * 60;

/// Reads the value and its token.
pub(crate) fn get(key: &str) -> MetaCommand {
    MetaCommand::new(MetaOp::Get, wire_key(key).as_bytes())
        .flag("v")
        .flag("c")
}

/// Writes a value if there is none. Answers with its token, as [`swap`] does.
pub(crate) fn add(key: &str, value: &[u8], expiry: u32) -> MetaCommand {
    set(key, value, expiry).flag("ME")
}

/// Writes a value if the present one has this token.
pub(crate) fn swap(key: &str, value: &[u8], expiry: u32, cas: u64) -> MetaCommand {
    set(key, value, expiry).flag(format!("C{cas}"))
}

/// Writes a value.
pub(crate) fn set(key: &str, value: &[u8], expiry: u32) -> MetaCommand {
    MetaCommand::new(MetaOp::Set, wire_key(key).as_bytes())
        .value(value)
        .flag(format!("T{expiry}"))
        .flag("c")
}

/// Forgets the value.
pub(crate) fn delete(key: &str) -> MetaCommand {
    MetaCommand::new(MetaOp::Delete, wire_key(key).as_bytes())
}

/// A key as memcached takes it. Keys are printable ASCII without spaces already; one that a long
/// prefix or name of a policy made too long keeps its beginning and gets a digest of all.
pub(crate) fn wire_key(key: &str) -> Cow<'_, str> {
    if key.len() <= MAX_KEY {
        return Cow::Borrowed(key);
    }
    let kept = key.get(..200).unwrap_or_default();
    Cow::Owned(format!("{kept}:{}", Key::from(key).digest()))
}

/// The expiry of a value that is to live for `ttl` from `now`, and not less.
///
/// Seconds are all there is, and the server's clock moves once a second, so it is up to two seconds
/// later than asked for. A moment after January 2038 cannot be said; what must live until then never
/// expires (`0`), and goes when the server needs the room.
pub(crate) fn expiry(ttl: Duration, now: Timestamp) -> u32 {
    let part = u64::from(ttl.subsec_nanos() > 0);
    let seconds = ttl.as_secs().saturating_add(part + 1);
    let expiry = if seconds <= LONGEST_SPAN {
        seconds
    } else {
        seconds.saturating_add(now.as_micros() / 1_000_000)
    };
    i32::try_from(expiry).map_or(0, i32::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_500_000);

    #[test]
    fn an_expiry_is_right_below_a_second_and_above_thirty_days() {
        let at = |ttl| expiry(ttl, NOW);
        // Never 0, which would be for ever.
        assert_eq!(at(Duration::ZERO), 1);
        assert_eq!(at(Duration::from_millis(100)), 2);
        assert_eq!(at(Duration::from_secs(1)), 2);
        let month = Duration::from_secs(LONGEST_SPAN);
        assert_eq!(at(month - Duration::from_secs(1)), 2_592_000);
        assert_eq!(at(month), 1_700_000_000 + 2_592_001);
        assert_eq!(
            at(Duration::from_secs(31 * 86_400)),
            1_700_000_000 + 31 * 86_400 + 1
        );
        assert_eq!(at(Duration::from_secs(447_483_646)), i32::MAX as u32);
        assert_eq!(at(Duration::from_secs(447_483_647)), 0);
        assert_eq!(at(Duration::MAX), 0);
    }

    #[test]
    fn a_long_key_is_cut_and_stays_its_own() {
        assert_eq!(wire_key("tollgate:v1:p:d"), "tollgate:v1:p:d");
        let long = "x".repeat(MAX_KEY);
        assert_eq!(wire_key(&long), long);
        let (a, b) = (format!("{long}a"), format!("{long}b"));
        let (a, b) = (wire_key(&a), wire_key(&b));
        assert_ne!(a, b);
        assert!(a.len() <= MAX_KEY && a.bytes().all(|byte| matches!(byte, b'!'..=b'~')));
    }
}
