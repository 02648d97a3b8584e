//! API keys that are verified here: a file with their digests, read again when it changes.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tollgate_http::ApiKeys;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The keys of a file.
#[derive(Clone)]
pub(crate) struct KeyFile {
    path: PathBuf,
    keys: Arc<ArcSwap<ApiKeys>>,
    /// What it looked like when it was read.
    seen: Stamp,
}

impl KeyFile {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read, or a line is none.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        // Before it is read: what is written meanwhile is a change.
        let seen = Stamp::of(path);
        let keys = read(path)?;
        Ok(Self {
            path: path.into(),
            seen,
            keys: Arc::new(ArcSwap::from_pointee(keys)),
        })
    }

    pub(super) fn known(&self) -> Arc<ApiKeys> {
        self.keys.load_full()
    }

    /// Whether these are the keys that are known.
    pub(super) fn is_known(&self, keys: &Arc<ApiKeys>) -> bool {
        Arc::ptr_eq(&self.keys.load(), keys)
    }

    /// Reads the file again whenever it changes, for ever. One that cannot be read changes nothing
    /// and is told of.
    pub(crate) async fn watch(self) -> Infallible {
        let mut seen = self.seen;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = Stamp::of(&self.path);
            if now == seen {
                continue;
            }
            seen = now;
            match read(&self.path) {
                Ok(keys) => {
                    tracing::info!(keys = keys.len(), "the API keys were read again");
                    self.keys.store(Arc::new(keys));
                }
                Err(error) => {
                    tracing::error!(error, "the API keys stay as they were");
                }
            }
        }
    }
}

fn read(path: &Path) -> Result<ApiKeys, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    // The header is looked at by the resolver, which knows how others are read.
    let keys = ApiKeys::new("x-api-key").expect("this is a name of a header");
    keys.with_list(&text)
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// By which a changed file is known, also one that a link was turned to.
#[derive(Clone, PartialEq, Eq)]
struct Stamp(Option<(u64, SystemTime, PathBuf)>);

impl Stamp {
    fn of(path: &Path) -> Self {
        Self(std::fs::metadata(path).ok().and_then(|it| {
            let place = std::fs::canonicalize(path).ok()?;
            Some((it.len(), it.modified().ok()?, place))
        }))
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFile")
            .field("path", &self.path)
            .field("keys", &self.known().len())
            .finish()
    }
}
