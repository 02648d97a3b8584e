//! Small documents in a store, beside the counters: what every process must see the same of, such as
//! the rules of a service.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

use crate::BackendError;

/// A set of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Collection<'a> {
    /// What it is called: printable ASCII without spaces.
    pub name: &'a str,
    /// What the index of what each document claims is called.
    pub claims: &'a str,
}

/// One document.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// By what it is found.
    pub id: String,
    /// What it says.
    pub body: Vec<u8>,
}

/// It may say anything.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("id", &self.id)
            .field("bytes", &self.body.len())
            .finish()
    }
}

/// A change to one document. A document claims something of which there is one for all of them.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A new one.
    Create {
        /// By what it will be found.
        id: &'a str,
        /// What it claims.
        claim: &'a str,
        /// What it says.
        body: &'a [u8],
    },
    /// Another text in place of the one that is there.
    Replace {
        /// Which.
        id: &'a str,
        /// What it says now: if it says anything else, nothing is changed.
        before: &'a [u8],
        /// What it claims now.
        claim_before: &'a str,
        /// What it will claim.
        claim: &'a str,
        /// What it will say.
        body: &'a [u8],
    },
    /// None any more.
    Delete {
        /// Which.
        id: &'a str,
        /// What it says now: if it says anything else, nothing is changed.
        before: &'a [u8],
        /// What it claims.
        claim: &'a str,
    },
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It was made.
    Yes,
    /// There is no such document.
    Missing,
    /// There is one of this id already.
    Exists,
    /// What it claims is another one's.
    Claimed {
        /// Whose, where the store tells.
        by: Option<String>,
    },
    /// The document does not say any more what it was taken to say.
    Stale,
}

/// A store that keeps documents.
///
/// # Behavior
/// - A change is one atomic step: of many that create the same at one time, one is made.
/// - A call that is dropped has changed something or not.
pub trait DocumentStore: fmt::Debug + Send + Sync + 'static {
    /// All documents of a collection, by their ids.
    fn list(
        &self,
        of: Collection<'_>,
    ) -> impl Future<Output = Result<Vec<Document>, BackendError>> + Send;

    /// Makes a change, if it can be made, and tells whoever watches.
    fn change(
        &self,
        of: Collection<'_>,
        change: Change<'_>,
    ) -> impl Future<Output = Result<Changed, BackendError>> + Send;

    /// Hears of changes by anybody. `None`, by default: nobody tells; ask now and then.
    fn watch(&self, of: Collection<'_>) -> Option<Box<dyn DocumentFeed>> {
        let _ = of;
        None
    }
}

/// Somebody who hears of changes.
#[async_trait]
pub trait DocumentFeed: fmt::Debug + Send + 'static {
    /// Waits until something may have changed: something did, or it listens only now, and what was
    /// changed before is not told of. After an error the next call tries to listen again.
    ///
    /// # Cancellation
    /// A call that is dropped loses nothing that the next would not tell.
    async fn changed(&mut self) -> Result<(), BackendError>;
}

/// [`DocumentStore`] as an object; every store of documents is one.
#[async_trait]
pub trait DynDocumentStore: fmt::Debug + Send + Sync + 'static {
    /// See [`DocumentStore::list`].
    async fn dyn_list(&self, of: Collection<'_>) -> Result<Vec<Document>, BackendError>;
    /// See [`DocumentStore::change`].
    async fn dyn_change(
        &self,
        of: Collection<'_>,
        change: Change<'_>,
    ) -> Result<Changed, BackendError>;
    /// See [`DocumentStore::watch`].
    fn dyn_watch(&self, of: Collection<'_>) -> Option<Box<dyn DocumentFeed>>;
}

#[async_trait]
impl<B: DocumentStore> DynDocumentStore for B {
    async fn dyn_list(&self, of: Collection<'_>) -> Result<Vec<Document>, BackendError> {
        self.list(of).await
    }

    async fn dyn_change(
        &self,
        of: Collection<'_>,
        change: Change<'_>,
    ) -> Result<Changed, BackendError> {
        self.change(of, change).await
    }

    fn dyn_watch(&self, of: Collection<'_>) -> Option<Box<dyn DocumentFeed>> {
        self.watch(of)
    }
}

/// Any store of documents, cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub struct SharedDocuments(Arc<dyn DynDocumentStore>);

impl SharedDocuments {
    /// Erases the type of a store of documents.
    pub fn new(store: impl DocumentStore) -> Self {
        Self::of(Arc::new(store))
    }

    /// The same of a store that is shared already, such as one that counts too.
    pub fn of(store: Arc<impl DocumentStore>) -> Self {
        Self(store)
    }
}

impl DocumentStore for SharedDocuments {
    async fn list(&self, of: Collection<'_>) -> Result<Vec<Document>, BackendError> {
        self.0.dyn_list(of).await
    }

    async fn change(
        &self,
        of: Collection<'_>,
        change: Change<'_>,
    ) -> Result<Changed, BackendError> {
        self.0.dyn_change(of, change).await
    }

    fn watch(&self, of: Collection<'_>) -> Option<Box<dyn DocumentFeed>> {
        self.0.dyn_watch(of)
    }
}
