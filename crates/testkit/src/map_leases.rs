//! The simplest store of leases there is.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::{
    BackendError, Clock, LeaseAnswer, LeaseBackend, LeaseSubject, SystemClock, Timestamp,
};

/// Leases in a map, to test on and to compare others with. It forgets nothing, so it is for tests
/// only.
#[derive(Debug, Default)]
pub struct MapLeases(Mutex<Map>);

#[derive(Debug, Default)]
struct Map {
    /// Holders of each limit and key, and when each is out.
    holders: HashMap<(String, Vec<u8>), HashMap<String, Timestamp>>,
    fence: u64,
}

impl MapLeases {
    /// One step; it says whether it is a yes, and whether that gives a number.
    fn step(
        &self,
        subject: LeaseSubject<'_>,
        f: impl FnOnce(&mut HashMap<String, Timestamp>, Timestamp) -> (bool, bool),
    ) -> LeaseAnswer {
        let now = subject.at.unwrap_or_else(|| SystemClock.now());
        // A panic of a test never leaves the map half changed.
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Map { holders, fence } = &mut *map;
        let key = (subject.name.into(), subject.key.as_bytes().into());
        let holders = holders.entry(key).or_default();
        holders.retain(|_, out| *out > now);
        let (ok, numbered) = f(holders, now);
        LeaseAnswer {
            ok,
            in_use: u32::try_from(holders.len()).unwrap_or(u32::MAX),
            fence: numbered.then(|| {
                *fence = now.as_micros().max(*fence + 1);
                *fence
            }),
        }
    }
}

impl LeaseBackend for MapLeases {
    async fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        Ok(self.step(subject, |holders, now| {
            let ok = holders.contains_key(holder) || holders.len() < slots.get() as usize;
            if ok {
                holders.insert(holder.into(), now + ttl);
            }
            (ok, ok)
        }))
    }

    async fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        Ok(self.step(subject, |holders, now| {
            let held = holders.get_mut(holder);
            (held.map(|out| *out = now + ttl).is_some(), false)
        }))
    }

    async fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError> {
        Ok(self.step(subject, |holders, _| {
            (holders.remove(holder).is_some(), false)
        }))
    }

    async fn in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError> {
        Ok(self.step(subject, |_, _| (true, false)).in_use)
    }
}
