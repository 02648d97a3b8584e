//! Identities that an operator has blocked for a time.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use tollgate::{
    BackendError, Change, Changed, Clock, Document, Key, SharedBackend, SystemClock, Timestamp,
};

use crate::admin::Failed;
use crate::identity::IdentityType;
use crate::replica::{Replica, Replicated};
use crate::tasks::Tasks;

/// The most blocks at once.
const MOST: usize = 10_000;

/// How often a change is tried again that another one came before.
const TRIES: usize = 8;

/// Type and digest of an identity, as the document is called: `user_id:2bd8..`.
type Name = Box<str>;

/// Who is blocked, and until when. Clones are the same.
#[derive(Clone)]
pub(crate) struct Blocks(Replica<Known>);

struct Known(HashMap<Name, Timestamp>);

/// What a document says.
#[derive(Clone, Copy, Deserialize, Serialize)]
struct Body {
    until: u64,
}

impl Replicated for Known {
    const NAME: &'static str = "blocks";
    const CLAIMS: &'static str = "by-identity";

    fn read(documents: &[Document]) -> (Self, usize) {
        let known: HashMap<_, _> = documents
            .iter()
            .filter_map(|document| Some((document.id.as_str().into(), read(document)?)))
            .collect();
        let unreadable = documents.len() - known.len();
        (Self(known), unreadable)
    }
}

impl Blocks {
    /// Kept in the store that counts. `prefix` is that of its keys: the blocks of services with
    /// different ones are different.
    pub(crate) fn of(backend: &SharedBackend, prefix: &str) -> Self {
        Self(Replica::of(backend, prefix))
    }

    /// Keeps in step with the store as long as the tasks run: at once where it tells of changes, and
    /// in any case after `ttl`.
    pub(crate) async fn keep(&self, ttl: Duration, tasks: &mut Tasks) {
        self.0.keep(ttl, tasks).await;
    }

    /// Until when this identity is blocked, if it is now.
    pub(crate) fn until(
        &self,
        kind: IdentityType,
        key: &Key<'static>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let known = self.0.known();
        let Known(known) = known.as_deref()?;
        if known.is_empty() {
            return None;
        }
        let until = known.get(&*name(kind, key)).copied();
        until.filter(|until| *until > now)
    }

    /// Blocks an identity until then, or lets it in again.
    ///
    /// # Errors
    /// The problem to answer: the store keeps no blocks, does not answer, or has too many.
    pub(crate) async fn set(
        &self,
        kind: IdentityType,
        key: &Key<'static>,
        until: Option<Timestamp>,
    ) -> Result<(), Failed> {
        if !self.0.can_be_kept() {
            let detail = "This store cannot keep blocks; use redis://, dynamodb:// or memory://";
            return Err(Failed::new(StatusCode::NOT_IMPLEMENTED, detail));
        }
        let name = name(kind, key);
        for _ in 0..TRIES {
            let changed = self.try_set(&name, until).await;
            match changed.map_err(|error| unreachable(&error))? {
                Some(Changed::Yes | Changed::Missing) => {
                    self.0.look().await;
                    return Ok(());
                }
                // Somebody else changed it meanwhile.
                Some(_) => {}
                None => {
                    let detail = "There are too many blocks; lift some, or limit by a rule";
                    return Err(Failed::new(StatusCode::CONFLICT, detail));
                }
            }
        }
        let detail = "Others change the same block at the same time; try again";
        Err(Failed::new(StatusCode::CONFLICT, detail))
    }

    /// `None`: there are too many.
    async fn try_set(
        &self,
        name: &str,
        until: Option<Timestamp>,
    ) -> Result<Option<Changed>, BackendError> {
        let stored = self.0.list().await?;
        let before = stored.iter().find(|document| document.id == name);
        let body = until.map(|until| {
            let until = until.as_micros();
            serde_json::to_vec(&Body { until }).expect("a number serialises")
        });
        let change = match (before, &body) {
            (None, None) => return Ok(Some(Changed::Missing)),
            (None, Some(body)) => {
                if self.drop_ended(&stored).await? >= MOST {
                    return Ok(None);
                }
                Change::Create {
                    id: name,
                    claim: name,
                    body,
                }
            }
            (Some(before), None) => Change::Delete {
                id: name,
                before: &before.body,
                claim: name,
            },
            (Some(before), Some(body)) => Change::Replace {
                id: name,
                before: &before.body,
                claim_before: name,
                claim: name,
                body,
            },
        };
        self.0.change(change).await.map(Some)
    }

    /// Forgets blocks that have ended; returns how many are left.
    async fn drop_ended(&self, stored: &[Document]) -> Result<usize, BackendError> {
        let now = SystemClock.now();
        let mut left = stored.len();
        for document in stored {
            if read(document).is_none_or(|until| until <= now) {
                let change = Change::Delete {
                    id: &document.id,
                    before: &document.body,
                    claim: &document.id,
                };
                self.0.change(change).await?;
                left -= 1;
            }
        }
        Ok(left)
    }
}

fn name(kind: IdentityType, key: &Key<'static>) -> String {
    format!("{kind}:{}", key.digest())
}

fn read(document: &Document) -> Option<Timestamp> {
    let Body { until } = serde_json::from_slice(&document.body).ok()?;
    Some(Timestamp::from_micros(until))
}

fn unreachable(error: &BackendError) -> Failed {
    tracing::warn!(%error, "a block cannot be changed");
    Failed::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "The store does not answer: the block may be changed, or not",
    )
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.known().as_ref().map_or(0, |known| known.0.len());
        f.debug_struct("Blocks")
            .field("known", &known)
            .finish_non_exhaustive()
    }
}
