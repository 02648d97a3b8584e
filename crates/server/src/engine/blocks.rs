//! Identities that an operator has blocked for a time.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::StatusCode;
use parking_lot::Mutex;
use tollgate::{Clock, Key, SystemClock, Timestamp};

use crate::admin::Failed;
use crate::identity::IdentityType;

/// The most blocks at once.
pub(crate) const MOST: usize = 10_000;

type Blocked = HashMap<(IdentityType, Key<'static>), Timestamp>;

/// Who is blocked, and until when.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    blocked: ArcSwap<Blocked>,
    writing: Mutex<()>,
}

impl Blocks {
    /// Until when this identity is blocked, if it is now.
    pub(crate) fn until(
        &self,
        kind: IdentityType,
        key: &Key<'static>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let blocked = self.blocked.load();
        if blocked.is_empty() {
            return None;
        }
        blocked
            .get(&(kind, key.clone()))
            .copied()
            .filter(|until| *until > now)
    }
}

impl Blocks {
    /// Blocks an identity until then, or lets it in again.
    ///
    /// # Errors
    /// When there are too many blocks.
    pub(crate) async fn set(
        &self,
        kind: IdentityType,
        key: &Key<'static>,
        until: Option<Timestamp>,
    ) -> Result<(), Failed> {
        let _writing = self.writing.lock();
        let mut blocked = (**self.blocked.load()).clone();
        let now = SystemClock.now();
        blocked.retain(|_, until| *until > now);
        match until {
            Some(until) if blocked.len() < MOST => {
                blocked.insert((kind, key.clone()), until);
            }
            Some(_) => {
                return Err(Failed::new(
                    StatusCode::CONFLICT,
                    "There are too many blocks; wait for some to end, or limit by a rule",
                ));
            }
            None => {
                blocked.remove(&(kind, key.clone()));
            }
        }
        self.blocked.store(Arc::new(blocked));
        Ok(())
    }
}
