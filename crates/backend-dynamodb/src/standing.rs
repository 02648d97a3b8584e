//! What is known about the table: that it is good, that it is wrong, or not yet.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tollgate_core::{BackendError, ErrorKind};

use crate::client::Client;
use crate::config;

/// Between two looks at a table that could not be reached.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Standing {
    known: Arc<Known>,
    /// Looks until it knows; ends with this value.
    watch: Option<Watch>,
}

#[derive(Debug, Default)]
struct Known {
    wrong: OnceLock<(ErrorKind, String)>,
    warnings: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Standing {
    pub(crate) fn good(warnings: Vec<String>) -> Self {
        let standing = Self::default();
        warn_of(&warnings);
        *standing.known.warnings.lock() = warnings;
        standing
    }

    pub(crate) fn to_be_checked(client: Client, limit: Duration) -> Self {
        let known = Arc::new(Known::default());
        let watch = Watch(tokio::spawn(watch(Arc::clone(&known), client, limit)));
        Self {
            known,
            watch: Some(watch),
        }
    }

    /// The error of a table that is known to be wrong.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        match self.known.wrong.get() {
            Some((kind, text)) => Err(BackendError::new(*kind, text.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.known.warnings.lock().clone();
        let looking = self
            .watch
            .as_ref()
            .is_some_and(|watch| !watch.0.is_finished());
        if looking {
            warnings.push("the table has not been checked yet, for it did not answer".into());
        }
        warnings
    }
}

async fn watch(known: Arc<Known>, client: Client, limit: Duration) {
    loop {
        tokio::time::sleep(PAUSE).await;
        match config::check(&client, limit).await {
            Ok(warnings) => {
                tracing::info!(store = %client, "the table is there, and as it must be");
                warn_of(&warnings);
                *known.warnings.lock() = warnings;
                return;
            }
            Err(error) if error.is_transient() => {}
            Err(error) => {
                tracing::error!(store = %client, %error, "the table cannot be used");
                let text = error.to_string();
                let text = text
                    .split_once(": ")
                    .map_or(text.as_str(), |(_, text)| text);
                let _ = known.wrong.set((error.kind(), text.into()));
                return;
            }
        }
    }
}

fn warn_of(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}
