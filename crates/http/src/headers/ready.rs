//! Fields that are written already: most answers of a policy say what the answer before said, or
//! nearly.
//!
//! Each thread keeps those of some policies, so that nobody waits for another.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use tollgate_core::Decision;

use super::RateLimitHeaders;
use super::fields::Fields;
use crate::HeaderStyle;

/// Of how many policies a thread keeps fields.
const KEPT: usize = 32;

thread_local! {
    static READY: RefCell<Vec<Option<Ready>>> = const { RefCell::new(Vec::new()) };
}

struct Ready {
    /// Whose.
    id: u64,
    /// What the last answer said.
    last: Option<Numbers>,
    /// Which of its values are not kept: those that the answer before did not have. What changes
    /// from answer to answer is written into the answer and not kept.
    missing: Changed,
    fields: Fields,
}

/// What one quota says, in the units of the fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) remaining: u64,
    pub(super) more: Option<u64>,
    pub(super) reset: u64,
    pub(super) epoch: u64,
}

pub(super) fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Values of an answer, as a set: those that are others than in the answer before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Changed(u8);

impl Changed {
    pub(super) const RATELIMIT: Self = Self(1);
    pub(super) const REMAINING: Self = Self(2);
    pub(super) const RESET: Self = Self(4);
    pub(super) const EPOCH: Self = Self(8);

    /// Those that a style has.
    pub(super) fn all(style: HeaderStyle) -> Self {
        let of = |family, values| if style.contains(family) { values } else { 0 };
        Self(
            of(HeaderStyle::IETF, Self::RATELIMIT.0)
                | of(HeaderStyle::TRIPLE, Self::REMAINING.0 | Self::RESET.0)
                | of(HeaderStyle::X_RATELIMIT, Self::REMAINING.0 | Self::EPOCH.0),
        )
    }

    /// Those of these that differ between two answers.
    fn between(self, old: Numbers, new: Numbers) -> Self {
        let remaining = old.remaining != new.remaining;
        let differs = [
            (Self::RATELIMIT, remaining || old.more != new.more),
            (Self::REMAINING, remaining),
            (Self::RESET, old.reset != new.reset),
            (Self::EPOCH, old.epoch != new.epoch),
        ];
        let differs = differs.map(|(value, differs)| value.0 * u8::from(differs));
        Self(self.0 & differs.into_iter().fold(0, |all, value| all | value))
    }

    const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(super) const fn has(self, value: Self) -> bool {
        self.0 & value.0 != 0
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Puts the fields of a policy with one quota into the headers of an answer.
pub(super) fn put(
    of: &RateLimitHeaders,
    decision: &Decision,
    new: Numbers,
    headers: &mut HeaderMap,
) {
    READY.with_borrow_mut(|kept| {
        if kept.is_empty() {
            kept.resize_with(KEPT, || None);
        }
        let all = Changed::all(of.style);
        let place = &mut kept[(of.id % KEPT as u64) as usize];
        let ready = match place {
            Some(ready) if ready.id == of.id => ready,
            _ => place.insert(Ready {
                id: of.id,
                last: None,
                missing: all,
                fields: of.fields.clone(),
            }),
        };
        let changed = ready.last.map_or(all, |last| all.between(last, new));
        if changed.is_empty() && ready.missing.is_empty() {
            return ready.fields.put(None, headers);
        }
        let again = ready.missing.without(changed);
        if !again.is_empty() {
            ready.fields.fill(of.changed(decision, new, again));
        }
        let gone = changed.without(ready.missing);
        if !gone.is_empty() {
            ready.fields.clear(gone);
        }
        (ready.last, ready.missing) = (Some(new), changed);
        let values = (!changed.is_empty()).then(|| of.changed(decision, new, changed));
        ready.fields.put(values, headers);
    });
}
