//! Identities that an operator has blocked for a time: documents in the store, of which every
//! process keeps a copy, so that a request costs no trip.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tollgate::{
    BackendError, Change, Changed, Clock, Collection, Document, DocumentFeed, DocumentStore, Key,
    SharedBackend, SharedDocuments, SystemClock, Timestamp,
};

use crate::admin::Failed;
use crate::identity::IdentityType;
use crate::rules::PREFIX;

/// The most blocks at once.
const MOST: usize = 10_000;

/// How often a change is tried again that another one came before.
const TRIES: usize = 8;

/// How long to wait before listening again after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Type and digest of an identity, as the document is called: `user_id:2bd8..`.
type Name = Box<str>;

/// Who is blocked, and until when. Clones are the same.
#[derive(Clone)]
pub(crate) struct Blocks(Arc<Inner>);

struct Inner {
    known: ArcSwap<HashMap<Name, Timestamp>>,
    documents: Option<SharedDocuments>,
    collection: Box<str>,
    /// Held by who looks, so that an older look never replaces a newer one.
    looking: Mutex<Trouble>,
}

/// What was told of already.
#[derive(Default)]
struct Trouble {
    /// That the blocks cannot be read.
    away: bool,
    /// How many of them say nothing.
    unreadable: usize,
}

/// What a document says.
#[derive(Clone, Copy, Deserialize, Serialize)]
struct Body {
    until: u64,
}

impl Blocks {
    /// Kept in the store that counts. `prefix` is that of its keys: the blocks of services with
    /// different ones are different.
    pub(crate) fn of(backend: &SharedBackend, prefix: &str) -> Self {
        Self(Arc::new(Inner {
            known: ArcSwap::default(),
            documents: backend.documents(),
            collection: match prefix {
                PREFIX => "blocks".into(),
                prefix => format!("{prefix}:blocks").into(),
            },
            looking: Mutex::default(),
        }))
    }

    /// Keeps in step with the store as long as the tasks run: at once where it tells of changes, and
    /// in any case after `ttl`.
    pub(crate) async fn keep(&self, ttl: Duration, tasks: &mut JoinSet<()>) {
        let Some(documents) = &self.0.documents else {
            return;
        };
        self.look().await;
        if let Some(feed) = documents.watch(self.collection()) {
            tasks.spawn(self.clone().listen(feed));
        }
        let blocks = self.clone();
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(ttl).await;
                blocks.look().await;
            }
        });
    }

    /// Until when this identity is blocked, if it is now.
    pub(crate) fn until(
        &self,
        kind: IdentityType,
        key: &Key<'static>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let known = self.0.known.load();
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
        let documents = self.0.documents.as_ref().ok_or_else(|| {
            let detail = "This store cannot keep blocks; use redis://, dynamodb:// or memory://";
            Failed::new(StatusCode::NOT_IMPLEMENTED, detail)
        })?;
        let name = name(kind, key);
        for _ in 0..TRIES {
            let changed = self.try_set(documents, &name, until).await;
            match changed.map_err(|error| unreachable(&error))? {
                Some(Changed::Yes | Changed::Missing) => {
                    self.look().await;
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
        documents: &SharedDocuments,
        name: &str,
        until: Option<Timestamp>,
    ) -> Result<Option<Changed>, BackendError> {
        let stored = documents.list(self.collection()).await?;
        let before = stored.iter().find(|document| document.id == name);
        let body = until.map(|until| {
            let until = until.as_micros();
            serde_json::to_vec(&Body { until }).expect("a number serialises")
        });
        let change = match (before, &body) {
            (None, None) => return Ok(Some(Changed::Missing)),
            (None, Some(body)) => {
                if self.drop_ended(documents, &stored).await? >= MOST {
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
        documents.change(self.collection(), change).await.map(Some)
    }

    /// Forgets blocks that have ended; returns how many are left.
    async fn drop_ended(
        &self,
        documents: &SharedDocuments,
        stored: &[Document],
    ) -> Result<usize, BackendError> {
        let now = SystemClock.now();
        let mut left = stored.len();
        for document in stored {
            if read(document).is_none_or(|until| until <= now) {
                let change = Change::Delete {
                    id: &document.id,
                    before: &document.body,
                    claim: &document.id,
                };
                documents.change(self.collection(), change).await?;
                left -= 1;
            }
        }
        Ok(left)
    }

    fn collection(&self) -> Collection<'_> {
        Collection {
            name: &self.0.collection,
            claims: "by-identity",
        }
    }

    /// Takes over what is stored. What cannot be read stays as it was, and is read later.
    async fn look(&self) {
        let Some(documents) = &self.0.documents else {
            return;
        };
        let mut trouble = self.0.looking.lock().await;
        match documents.list(self.collection()).await {
            Ok(stored) => {
                let known: HashMap<_, _> = stored
                    .iter()
                    .filter_map(|document| Some((document.id.as_str().into(), read(document)?)))
                    .collect();
                let unreadable = stored.len() - known.len();
                if unreadable > trouble.unreadable {
                    tracing::error!(
                        unreadable,
                        "what is stored as a block is none, and blocks nobody"
                    );
                }
                if trouble.away {
                    tracing::info!("blocks can be read again");
                }
                *trouble = Trouble {
                    away: false,
                    unreadable,
                };
                self.0.known.store(Arc::new(known));
            }
            Err(error) if trouble.away => {
                tracing::debug!(%error, "blocks still cannot be read");
            }
            Err(error) => {
                tracing::warn!(%error, "blocks cannot be read; those known stay");
                trouble.away = true;
            }
        }
    }

    async fn listen(self, mut feed: Box<dyn DocumentFeed>) {
        let mut told = false;
        loop {
            match feed.changed().await {
                Ok(()) => {
                    if told {
                        tracing::info!("changes of blocks are told of again");
                    }
                    told = false;
                    self.look().await;
                }
                Err(error) => {
                    if !told {
                        tracing::warn!(
                            %error,
                            "nobody tells of changes of blocks; they are looked for at intervals"
                        );
                    }
                    told = true;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
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
        f.debug_struct("Blocks")
            .field("known", &self.0.known.load().len())
            .finish_non_exhaustive()
    }
}
