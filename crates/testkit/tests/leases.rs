//! The traces of leases on the simplest store that can hold them.

#![expect(
    clippy::unwrap_used,
    reason = "a test that finds a lock poisoned has failed already"
)]

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Duration;

use tollgate_core::{BackendError, LeaseAnswer, LeaseBackend, LeaseSubject, Timestamp};
use tollgate_testkit::conformance::lease_vectors;

/// Holders of each limit and key, and when each is out.
#[derive(Debug, Default)]
struct Leases(Mutex<HashMap<(String, Vec<u8>), Holders>>);

type Holders = HashMap<String, Timestamp>;

impl Leases {
    fn with<T>(
        &self,
        subject: LeaseSubject<'_>,
        f: impl FnOnce(&mut Holders, Timestamp) -> T,
    ) -> T {
        let now = subject.at.expect("the traces run in virtual time");
        let mut all = self.0.lock().unwrap();
        let key = (subject.name.into(), subject.key.as_bytes().into());
        let holders = all.entry(key).or_default();
        holders.retain(|_, out| *out > now);
        f(holders, now)
    }
}

fn answer(ok: bool, holders: &Holders) -> LeaseAnswer {
    let in_use = u32::try_from(holders.len()).unwrap();
    LeaseAnswer { ok, in_use }
}

impl LeaseBackend for Leases {
    async fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        Ok(self.with(subject, |holders, now| {
            let ok = holders.contains_key(holder) || holders.len() < slots.get() as usize;
            if ok {
                holders.insert(holder.into(), now + ttl);
            }
            answer(ok, holders)
        }))
    }

    async fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        Ok(self.with(subject, |holders, now| {
            let ok = holders
                .get_mut(holder)
                .map(|out| *out = now + ttl)
                .is_some();
            answer(ok, holders)
        }))
    }

    async fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError> {
        Ok(self.with(subject, |holders, _| {
            let ok = holders.remove(holder).is_some();
            answer(ok, holders)
        }))
    }

    async fn in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError> {
        Ok(self.with(subject, |holders, _| answer(true, holders).in_use))
    }
}

#[tokio::test]
async fn vectors_leases() {
    lease_vectors(&Leases::default()).await;
}
