//! Small documents in the store of which every process keeps a whole copy, so that a request costs
//! no trip: who is blocked, which API keys there are.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use tokio::sync::Mutex;
use tollgate::{
    BackendError, Change, Changed, Collection, Document, DocumentFeed, DocumentStore,
    SharedBackend, SharedDocuments,
};

use crate::rules::PREFIX;
use crate::tasks::Tasks;

/// How long to wait before listening or reading again after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// What a set of documents comes to.
pub(crate) trait Replicated: Send + Sync + Sized + 'static {
    /// What the set is called in the store, and in the log.
    const NAME: &'static str;
    /// What the index of what each document claims is called.
    const CLAIMS: &'static str;

    /// Of these documents, and how many of them say nothing.
    fn read(documents: &[Document]) -> (Self, usize);
}

/// A copy, kept in step. Clones are the same.
pub(crate) struct Replica<T>(Arc<Inner<T>>);

struct Inner<T> {
    known: ArcSwapOption<T>,
    documents: Option<SharedDocuments>,
    collection: Box<str>,
    /// Held by who looks, so that an older look never replaces a newer one.
    looking: Mutex<Trouble>,
}

/// What was told of already.
#[derive(Default)]
struct Trouble {
    /// That they cannot be read.
    away: bool,
    /// How many of them say nothing.
    unreadable: usize,
}

impl<T: Replicated> Replica<T> {
    /// Of what is kept in the store that counts. `prefix` is that of its keys: the documents of
    /// services with different ones are different.
    pub(crate) fn of(backend: &SharedBackend, prefix: &str) -> Self {
        Self(Arc::new(Inner {
            known: ArcSwapOption::default(),
            documents: backend.documents(),
            collection: match prefix {
                PREFIX => T::NAME.into(),
                prefix => format!("{prefix}:{}", T::NAME).into(),
            },
            looking: Mutex::default(),
        }))
    }

    /// Keeps in step with the store as long as the tasks run: at once where it tells of changes, and
    /// in any case after `ttl`.
    pub(crate) async fn keep(&self, ttl: Duration, tasks: &mut Tasks) {
        let Some(documents) = &self.0.documents else {
            return;
        };
        self.look().await;
        let replica = self.clone();
        if let Some(feed) = documents.watch(self.collection()) {
            let feed = Arc::new(Mutex::new(feed));
            tasks.keep(T::NAME, move || replica.clone().listen(Arc::clone(&feed)));
        }
        let replica = self.clone();
        tasks.keep(T::NAME, move || replica.clone().look_now_and_then(ttl));
    }

    /// What is known; nothing until it could be read once.
    pub(crate) fn known(&self) -> Guard<Option<Arc<T>>> {
        self.0.known.load()
    }

    /// Whether the store keeps documents at all.
    pub(crate) fn can_be_kept(&self) -> bool {
        self.0.documents.is_some()
    }

    /// What is stored now.
    ///
    /// # Errors
    /// When the store does not answer, or keeps none.
    pub(crate) async fn list(&self) -> Result<Vec<Document>, BackendError> {
        self.documents()?.list(self.collection()).await
    }

    /// Makes a change. Who has changed something looks afterwards.
    ///
    /// # Errors
    /// When the store does not answer, or keeps none; the change may be made then.
    pub(crate) async fn change(&self, change: Change<'_>) -> Result<Changed, BackendError> {
        self.documents()?.change(self.collection(), change).await
    }

    fn documents(&self) -> Result<&SharedDocuments, BackendError> {
        self.0.documents.as_ref().ok_or_else(|| {
            BackendError::new(
                tollgate::ErrorKind::Unsupported,
                "this store keeps no documents",
            )
        })
    }

    fn collection(&self) -> Collection<'_> {
        Collection {
            name: &self.0.collection,
            claims: T::CLAIMS,
        }
    }

    /// Takes over what is stored. What cannot be read stays as it was, and is read later.
    pub(crate) async fn look(&self) {
        let mut trouble = self.0.looking.lock().await;
        let what = T::NAME;
        match self.list().await {
            Ok(stored) => {
                let (known, unreadable) = T::read(&stored);
                if unreadable > trouble.unreadable {
                    tracing::error!(unreadable, "some {what} in the store say nothing");
                }
                if trouble.away {
                    tracing::info!("{what} can be read again");
                }
                *trouble = Trouble {
                    away: false,
                    unreadable,
                };
                self.0.known.store(Some(Arc::new(known)));
            }
            Err(error) if trouble.away => {
                tracing::debug!(%error, "{what} still cannot be read");
            }
            Err(error) => {
                tracing::warn!(%error, "{what} cannot be read; those known stay");
                trouble.away = true;
            }
        }
    }

    async fn look_now_and_then(self, ttl: Duration) -> Infallible {
        loop {
            let away = self.0.looking.lock().await.away;
            tokio::time::sleep(if away { ttl.min(PAUSE) } else { ttl }).await;
            self.look().await;
        }
    }

    async fn listen(self, feed: Arc<Mutex<Box<dyn DocumentFeed>>>) -> Infallible {
        let mut feed = feed.lock().await;
        let what = T::NAME;
        let mut told = false;
        loop {
            match feed.changed().await {
                Ok(()) => {
                    if told {
                        tracing::info!("changes of {what} are told of again");
                    }
                    told = false;
                    self.look().await;
                }
                Err(error) => {
                    if !told {
                        tracing::warn!(
                            %error,
                            "nobody tells of changes of {what}; they are looked for at intervals"
                        );
                    }
                    told = true;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

impl<T> Clone for Replica<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Replicated> fmt::Debug for Replica<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("of", &self.0.collection)
            .finish_non_exhaustive()
    }
}
