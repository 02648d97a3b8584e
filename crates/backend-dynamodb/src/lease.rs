//! Concurrency slots: one item for each name and key, with a map of holders in it.
//!
//! | attribute | type | is |
//! |---|---|---|
//! | `pk` | S | the key, `{prefix}:lease:v1:{name}:{digest}` |
//! | `shape` | S | `leases` |
//! | `h` | M | for each holder, by its digest, when its time is over, in microseconds |
//! | `fence` | N | the last fencing number |
//! | `expires_at` | N | when the item may be removed, in seconds: never before the last holder's time |
//!
//! Holders that come, renew and go write only their own entry, so they do not make each other try
//! again. Those whose time is over are swept out by the first who finds no room.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use tollgate_core::{
    BackendError, ErrorKind, Key, LeaseAnswer, LeaseBackend, LeaseSubject, Timestamp, lease_key,
};

use crate::backend::{DynamoBackend, expires_at};
use crate::client::Written;
use crate::contention::{TRIES, back_off};
use crate::memory::Remembered;
use crate::record::{Attributes, EXPIRES_AT, PK, SHAPE, n_value, number, number_of};
use crate::update::Update;

/// The most slots: an item may be 400 KB, and a holder takes some 35 bytes.
const MAX_SLOTS: u32 = 8_000;

const WORD: &str = "leases";

const FENCE: &str = "fence";

/// The holders of an item.
#[derive(Debug, Default)]
struct Holders {
    until: HashMap<String, Timestamp>,
    /// When the item may be removed.
    expires_at: u64,
    /// The last number that was given out.
    fence: u64,
    /// The attributes as they are; `None` if there is no item.
    item: Option<Attributes>,
}

impl Holders {
    fn of_item(item: Option<Attributes>) -> Self {
        let attributes = item.iter().flatten();
        let mut holders = Self::default();
        for (name, value) in attributes {
            if let ("h", AttributeValue::M(map)) = (name.as_str(), value) {
                let entries = map.iter().filter_map(|(holder, until)| {
                    let until = number::parse(until.as_n().ok()?)?;
                    Some((holder.clone(), Timestamp::from_micros(until)))
                });
                holders.until = entries.collect();
            }
        }
        let number = |name| {
            item.as_ref()
                .and_then(|all| number_of(all, name))
                .unwrap_or(0)
        };
        holders.expires_at = number(EXPIRES_AT);
        holders.fence = number(FENCE);
        holders.item = item;
        holders
    }

    /// Whether the item is one of leases.
    fn is_good(&self) -> bool {
        let shape = self.item.as_ref().and_then(|item| item.get(SHAPE));
        shape.is_some_and(|shape| shape.as_s().is_ok_and(|word| word == WORD))
            && self
                .item
                .as_ref()
                .is_some_and(|item| matches!(item.get("h"), Some(AttributeValue::M(_))))
    }

    fn is_in(&self, holder: &str, now: Timestamp) -> bool {
        self.until.get(holder).is_some_and(|until| *until > now)
    }

    fn in_use(&self, now: Timestamp) -> u32 {
        let live = self.until.values().filter(|until| **until > now).count();
        u32::try_from(live).unwrap_or(u32::MAX)
    }

    fn answer(&self, ok: bool, now: Timestamp) -> LeaseAnswer {
        LeaseAnswer {
            ok,
            in_use: self.in_use(now),
            fence: None,
        }
    }

    /// The answer to who was let in.
    fn admitted(&self, now: Timestamp) -> LeaseAnswer {
        LeaseAnswer {
            fence: Some(self.fence),
            ..self.answer(true, now)
        }
    }
}

/// What was last seen of the slots of a key. Without, a process whose clock is behind would always
/// be wrong about the fence at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    fence: u64,
    expires_at: u64,
}

impl Remembered for Seen {
    fn weight(&self) -> Option<usize> {
        Some(1)
    }
}

/// One holder's business with one item.
struct Slot {
    key: String,
    me: String,
    now: Timestamp,
    until: Timestamp,
    expires_at: u64,
}

impl Slot {
    /// A write of this holder's entry, given what the item's expiry is known to be: it only moves
    /// on, for another holder may have longer to go.
    fn write(&self, known: Option<Seen>) -> Update {
        let mut update = Update::default();
        update.when_equal(SHAPE, AttributeValue::S(WORD.into()));
        update.names.insert("#me".into(), self.me.clone());
        let until = update.number(self.until.as_micros());
        update.set("h.#me", until);
        let expires = update.number(self.expires_at);
        if known.is_some_and(|known| known.expires_at > self.expires_at) {
            update.when(format!("{EXPIRES_AT} >= {expires}"));
        } else {
            update.when(format!("{EXPIRES_AT} <= {expires}"));
            update.set(EXPIRES_AT, expires);
        }
        update
    }

    /// Takes a slot if this holder has one or one is free, dead holders counted.
    fn enter(&self, slots: u32, known: Option<Seen>) -> Update {
        let mut update = self.write(known);
        let (now, slots) = (update.number(self.now.as_micros()), update.number(slots));
        update.when(format!("(h.#me > {now} OR size(h) < {slots})"));
        // The time, or one more than the last where that is not behind.
        if known.is_some_and(|known| known.fence >= self.now.as_micros()) {
            let one = update.number(1);
            update.when(format!("{FENCE} >= {now}"));
            update.set(FENCE, format!("{FENCE} + {one}"));
        } else {
            update.when(format!("{FENCE} < {now}"));
            update.set(FENCE, now);
        }
        update
    }

    /// Replaces all holders by those who are still in, and this one.
    fn sweep(&self, known: &Holders) -> Update {
        let mut update = Update::default();
        match &known.item {
            None => update.when(format!("attribute_not_exists({PK})")),
            Some(item) => {
                for attribute in [SHAPE, "h", FENCE] {
                    match item.get(attribute) {
                        Some(value) => update.when_equal(attribute, value.clone()),
                        None => update.when(format!("attribute_not_exists({attribute})")),
                    }
                }
                update.when(format!("attribute_exists({PK})"));
            }
        }
        let live = known.until.iter().filter(|(_, until)| **until > self.now);
        let mut map: HashMap<_, _> = live
            .map(|(holder, until)| (holder.clone(), n_value(until.as_micros())))
            .collect();
        map.insert(self.me.clone(), n_value(self.until.as_micros()));
        let map = update.value(AttributeValue::M(map));
        update.set("h", map);
        let word = update.value(AttributeValue::S(WORD.into()));
        update.set(SHAPE, word);
        let fence = update.number(self.now.as_micros().max(known.fence.saturating_add(1)));
        update.set(FENCE, fence);
        update.expire(self.expires_at.max(known.expires_at));
        update
    }
}

impl DynamoBackend {
    fn lease_key(&self, subject: LeaseSubject<'_>) -> Result<String, BackendError> {
        let key = lease_key(&self.prefix, subject.name, subject.key);
        if key.len() > 2_048 {
            return Err(BackendError::new(
                ErrorKind::Config,
                "the name of the leases is too long for a DynamoDB key",
            ));
        }
        Ok(key)
    }

    fn slot(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<Slot, BackendError> {
        let (now, virtual_time) = self.now(subject.at);
        let until = now + ttl;
        Ok(Slot {
            key: self.lease_key(subject)?,
            me: Key::from(holder).digest(),
            now,
            until,
            expires_at: expires_at(until.as_micros(), now, virtual_time),
        })
    }

    async fn enter(&self, slot: &Slot, slots: u32) -> Result<LeaseAnswer, BackendError> {
        let hash = self.leases.hash(&slot.key);
        let mut known: Option<Holders> = None;
        for tries in 0..TRIES {
            back_off(tries).await;
            let swept = match &known {
                None => false,
                Some(holders) => {
                    let (me, now) = (holders.is_in(&slot.me, slot.now), slot.now);
                    if !me && holders.in_use(now) >= slots {
                        return Ok(holders.answer(false, now));
                    }
                    // Nobody here yet, or somebody is whose time is over.
                    !holders.is_good() || holders.until.len() > holders.in_use(now) as usize
                }
            };
            let update = match &known {
                Some(holders) if swept => slot.sweep(holders),
                _ => slot.enter(slots, self.leases.get(hash)),
            };
            match self.write(slot, update).await? {
                (holders, true) => return Ok(holders.admitted(slot.now)),
                (holders, false) => known = Some(holders),
            }
        }
        Err(contended())
    }

    async fn again(&self, slot: &Slot) -> Result<LeaseAnswer, BackendError> {
        let hash = self.leases.hash(&slot.key);
        for tries in 0..TRIES {
            back_off(tries).await;
            let mut update = slot.write(self.leases.get(hash));
            let now = update.number(slot.now.as_micros());
            update.when(format!("h.#me > {now}"));
            let (holders, done) = self.write(slot, update).await?;
            if done || !holders.is_in(&slot.me, slot.now) {
                return Ok(holders.answer(done, slot.now));
            }
        }
        Err(contended())
    }

    async fn leave(&self, slot: &Slot) -> Result<LeaseAnswer, BackendError> {
        let mut update = Update::default();
        update.names.insert("#me".into(), slot.me.clone());
        let now = update.number(slot.now.as_micros());
        update.when(format!("h.#me > {now}"));
        update.remove("h.#me");
        let (holders, done) = self.write(slot, update).await?;
        Ok(holders.answer(done, slot.now))
    }

    /// Writes; what is there afterwards, and whether it was written.
    async fn write(&self, slot: &Slot, update: Update) -> Result<(Holders, bool), BackendError> {
        let written = self
            .client
            .update(&slot.key, update, ReturnValue::AllNew)
            .await?;
        let (item, done) = match written {
            Written::Yes(item) => (Some(item), true),
            Written::No(item) => (item, false),
        };
        let holders = Holders::of_item(item);
        let seen = Seen {
            fence: holders.fence,
            expires_at: holders.expires_at,
        };
        self.leases.put(self.leases.hash(&slot.key), seen);
        Ok((holders, done))
    }
}

fn contended() -> BackendError {
    BackendError::new(
        ErrorKind::Contended,
        format!("other holders came first {TRIES} times in a row"),
    )
}

/// At most two round trips where no other holder comes between: one if the item is there and has
/// room, which is the steady state; a renewal and a release one.
///
/// By the callers' clocks: they must run a time service, and a time to live much longer than their
/// skew.
impl LeaseBackend for DynamoBackend {
    async fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.accepts_slots(slots)?;
        let slot = self.slot(subject, holder, ttl)?;
        self.limited(self.enter(&slot, slots.get())).await
    }

    async fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        let slot = self.slot(subject, holder, ttl)?;
        self.limited(self.again(&slot)).await
    }

    async fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError> {
        let slot = self.slot(subject, holder, Duration::ZERO)?;
        self.limited(self.leave(&slot)).await
    }

    async fn in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError> {
        let (now, _) = self.now(subject.at);
        let key = self.lease_key(subject)?;
        let item = self.limited(self.client.get(&key)).await?;
        Ok(Holders::of_item(item).in_use(now))
    }

    fn accepts_slots(&self, slots: NonZeroU32) -> Result<(), BackendError> {
        if slots.get() > MAX_SLOTS {
            return Err(BackendError::new(
                ErrorKind::Config,
                format!(
                    "slots is {slots}, and a DynamoDB item holds at most {MAX_SLOTS}; use fewer, or several names"
                ),
            ));
        }
        Ok(())
    }
}
