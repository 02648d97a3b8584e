//! Slots of requests that run at the same time.

use std::time::Duration;

use tollgate::{Concurrency, Key, NoSlot, Origin, Permit};

/// What came of asking for a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    /// It was given out, by this one.
    Held(Origin),
    /// One is free; so many are.
    Seen { free: u32, slots: u32 },
    /// All are taken.
    Full {
        slots: u32,
        retry_after: Duration,
        per_client: bool,
    },
    /// The store does not answer, and the failure policy refuses.
    Unavailable { retry_after: Duration },
    /// The store does not answer, and nobody looked.
    Unknown,
}

/// Takes a slot, waiting for it as its rule says, or not at all.
pub(super) async fn take(
    of: &Concurrency,
    key: &Key<'static>,
    waits: bool,
) -> (Slot, Option<Permit>) {
    let taken = match waits {
        true => of.acquire(key).await,
        false => of.acquire_within(key, Duration::ZERO).await,
    };
    let none = match taken {
        Ok(permit) => return (Slot::Held(permit.origin()), Some(permit)),
        Err(NoSlot::Full {
            slots,
            retry_after,
            per_client,
            ..
        }) => Slot::Full {
            slots,
            retry_after,
            per_client,
        },
        Err(error) => Slot::Unavailable {
            retry_after: error.retry_after(),
        },
    };
    (none, None)
}

/// Looks whether one is free.
pub(super) async fn look(of: &Concurrency, key: &Key<'static>) -> Slot {
    let slots = of.slots();
    match of.in_use(key).await {
        Ok(used) if used < slots => Slot::Seen {
            free: slots - used,
            slots,
        },
        Ok(_) => Slot::Full {
            slots,
            retry_after: of.retry_after(),
            per_client: of.is_per_client(),
        },
        Err(_) => Slot::Unknown,
    }
}
