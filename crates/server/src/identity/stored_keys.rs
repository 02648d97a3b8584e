//! API keys that are kept in the store: their digests, whose they are and how long they hold.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use tollgate::{BackendError, Change, Changed, Clock, Document, SharedBackend, SystemClock};
use tollgate_http::ApiKeys;

use super::{Identity, IdentityType};
use crate::replica::{Replica, Replicated};
use crate::rules::Moment;
use crate::tasks::Tasks;

/// Keys that are kept in the store. Clones are the same.
#[derive(Clone)]
pub(crate) struct StoredKeys(Replica<Known>);

/// By their digests.
struct Known(HashMap<[u8; 32], Owned>);

/// What a key gives whoever has it.
struct Owned {
    owner: Box<[u8]>,
    plan: Option<Arc<str>>,
    /// In microseconds since the epoch.
    expires: u64,
}

/// A key, as it is stored: its document is called by its id, and claims its digest.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct StoredKey {
    /// Its SHA-256, in base64 without padding.
    pub(crate) digest: String,
    pub(crate) owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<String>,
    pub(crate) created: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<Moment>,
    #[serde(default)]
    pub(crate) disabled: bool,
}

impl Replicated for Known {
    const NAME: &'static str = "keys";
    const CLAIMS: &'static str = "by-digest";

    fn read(documents: &[Document]) -> (Self, usize) {
        let mut known = HashMap::with_capacity(documents.len());
        let mut unreadable = 0;
        for document in documents {
            let key = StoredKey::of(document);
            let read = key.and_then(|key| Some((URL_SAFE_NO_PAD.decode(&key.digest).ok()?, key)));
            let Some((Ok(digest), key)) = read.map(|(it, key)| (it.try_into(), key)) else {
                unreadable += 1;
                continue;
            };
            if key.disabled {
                continue;
            }
            let owned = Owned {
                owner: key.owner.into_bytes().into(),
                plan: key.plan.map(Into::into),
                expires: key.expires.map_or(u64::MAX, |it| it.as_micros()),
            };
            known.insert(digest, owned);
        }
        (Self(known), unreadable)
    }
}

/// What is found out about a key.
pub(super) enum Told {
    Of(Identity),
    Unknown,
    /// The keys could not be read yet.
    NotYet,
}

impl StoredKeys {
    /// Those of the store that counts. `None`: it cannot keep any.
    pub(crate) fn of(backend: &SharedBackend, prefix: &str) -> Option<Self> {
        let keys = Self(Replica::of(backend, prefix));
        keys.0.can_be_kept().then_some(keys)
    }

    /// Keeps in step with the store as long as the tasks run.
    pub(crate) async fn keep(&self, ttl: Duration, tasks: &mut Tasks) {
        self.0.keep(ttl, tasks).await;
    }

    /// Whose key this is, now.
    pub(super) fn told(&self, key: &[u8]) -> Told {
        let known = self.0.known();
        let Some(Known(known)) = known.as_deref() else {
            return Told::NotYet;
        };
        match known.get(&ApiKeys::digest(key)) {
            Some(it) if it.expires == u64::MAX || SystemClock.now().as_micros() < it.expires => {
                let identity = Identity::new(IdentityType::ApiKey, it.owner.clone());
                Told::Of(identity.with_plan(it.plan.clone()))
            }
            _ => Told::Unknown,
        }
    }

    /// What is stored now; what says nothing is left out.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn list(&self) -> Result<Vec<(Document, StoredKey)>, BackendError> {
        let documents = self.0.list().await?.into_iter();
        let read = documents.filter_map(|it| StoredKey::of(&it).map(|key| (it, key)));
        Ok(read.collect())
    }

    /// Adds a key by this id.
    ///
    /// # Errors
    /// When the store does not answer; the key may be there then.
    pub(crate) async fn create(&self, id: &str, key: &StoredKey) -> Result<Changed, BackendError> {
        self.change(Change::Create {
            id,
            claim: &key.digest,
            body: &key.body(),
        })
        .await
    }

    /// Another text for the same key.
    ///
    /// # Errors
    /// When the store does not answer; it may have been done then.
    pub(crate) async fn replace(
        &self,
        before: &Document,
        key: &StoredKey,
    ) -> Result<Changed, BackendError> {
        self.change(Change::Replace {
            id: &before.id,
            before: &before.body,
            claim_before: &key.digest,
            claim: &key.digest,
            body: &key.body(),
        })
        .await
    }

    /// Removes a key.
    ///
    /// # Errors
    /// When the store does not answer; it may be gone then.
    pub(crate) async fn delete(
        &self,
        before: &Document,
        key: &StoredKey,
    ) -> Result<Changed, BackendError> {
        self.change(Change::Delete {
            id: &before.id,
            before: &before.body,
            claim: &key.digest,
        })
        .await
    }

    async fn change(&self, change: Change<'_>) -> Result<Changed, BackendError> {
        let changed = self.0.change(change).await?;
        self.0.look().await;
        Ok(changed)
    }
}

impl StoredKey {
    /// `None`: the document says nothing.
    fn of(document: &Document) -> Option<Self> {
        serde_json::from_slice(&document.body).ok()
    }

    fn body(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and a flag serialise")
    }
}

/// What a key is known by in the store.
pub(crate) fn digest(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(ApiKeys::digest(key))
}

/// How many are known.
impl fmt::Debug for StoredKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.known().as_ref().map_or(0, |known| known.0.len());
        f.debug_struct("StoredKeys")
            .field("known", &known)
            .finish_non_exhaustive()
    }
}
