//! The simplest store there is.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::{BackendError, StateStore, Versioned};

/// A map in memory as a [`StateStore`]: under `CasBackend` it is a whole backend, to test wrappers
/// on and to compare others with. It forgets nothing, so it is for tests only.
///
/// ```
/// use tollgate_core::{CasBackend, Cost, CounterBackend, Key, Policy, Subject};
/// use tollgate_testkit::MapStore;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let backend = CasBackend::new(MapStore::default());
/// let policy = Policy::new("login", ["1/h".parse()?])?;
/// let key = Key::from("alice");
/// let subject = Subject::new(&policy, &key);
/// assert!(backend.acquire(subject, Cost::ONE).await?.allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct MapStore(Mutex<Map>);

#[derive(Default)]
struct Map {
    values: HashMap<String, (u64, Vec<u8>)>,
    writes: u64,
}

impl MapStore {
    /// How many keys it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.with(|map| map.values.len())
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn with<T>(&self, f: impl FnOnce(&mut Map) -> T) -> T {
        // A panic of a test never leaves the map half changed.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl StateStore for MapStore {
    /// The number of the write that made the value: no two writes share one.
    type Token = u64;

    async fn load(&self, key: &str) -> Result<Option<Versioned<u64>>, BackendError> {
        Ok(self.with(|map| {
            map.values.get(key).map(|(token, value)| Versioned {
                value: value.clone(),
                token: *token,
            })
        }))
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        value: Vec<u8>,
        _ttl: Duration,
    ) -> Result<bool, BackendError> {
        Ok(self.with(|map| {
            if map.values.get(key).map(|(token, _)| *token) != expected {
                return false;
            }
            map.writes += 1;
            map.values.insert(key.into(), (map.writes, value));
            true
        }))
    }

    async fn delete(&self, key: &str) -> Result<(), BackendError> {
        self.with(|map| map.values.remove(key));
        Ok(())
    }
}

impl fmt::Debug for MapStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapStore")
            .field("len", &self.len())
            .finish()
    }
}

impl fmt::Display for MapStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("map")
    }
}
