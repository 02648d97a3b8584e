//! Fields that are written already: most answers of a policy say what the answer before said, or
//! nearly.
//!
//! Each thread keeps those of some policies, so that nobody waits for another.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Decision;

use super::fields::{Fields, Values};
use super::{RateLimitHeaders, number};
use crate::HeaderStyle;

/// Of how many policies a thread keeps fields.
const KEPT: usize = 32;

thread_local! {
    static READY: RefCell<Vec<Option<Ready>>> = const { RefCell::new(Vec::new()) };
}

struct Ready {
    /// Whose.
    id: u64,
    numbers: Option<Numbers>,
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

/// Passes on the fields of a policy with one quota.
pub(super) fn with(
    of: &RateLimitHeaders,
    decision: &Decision,
    numbers: Numbers,
    then: impl FnOnce(&Fields),
) {
    READY.with_borrow_mut(|kept| {
        if kept.is_empty() {
            kept.resize_with(KEPT, || None);
        }
        let place = &mut kept[(of.id % KEPT as u64) as usize];
        let ready = match place {
            Some(ready) if ready.id == of.id => ready,
            _ => place.insert(Ready {
                id: of.id,
                numbers: None,
                fields: of.fields.clone(),
            }),
        };
        if ready.numbers != Some(numbers) {
            let changed = Values::changed(of, decision, ready.numbers, numbers);
            ready.fields.fill(changed);
            ready.numbers = Some(numbers);
        }
        then(&ready.fields);
    });
}

impl Values {
    /// Those that are no longer what they were, of the fields that there are.
    pub(super) fn changed(
        of: &RateLimitHeaders,
        decision: &Decision,
        old: Option<Numbers>,
        new: Numbers,
    ) -> Self {
        let [ietf, triple, epoch] = [
            HeaderStyle::IETF,
            HeaderStyle::TRIPLE,
            HeaderStyle::X_RATELIMIT,
        ]
        .map(|family| of.style.contains(family));
        let changed =
            |number: fn(&Numbers) -> u64| old.is_none_or(|it| number(&it) != number(&new));
        let remaining = changed(|it| it.remaining);
        let more = old.is_none_or(|it| it.more != new.more);
        Self {
            ratelimit: match ietf && (remaining || more) {
                true => of.ratelimit(decision),
                false => None,
            },
            limit: None,
            remaining: ((triple || epoch) && remaining).then(|| number(new.remaining)),
            reset: (triple && changed(|it| it.reset)).then(|| number(new.reset)),
            epoch: (epoch && changed(|it| it.epoch)).then(|| number(new.epoch)),
        }
    }
}
