//! A store of one's own, from nothing to every algorithm and the whole suite: copy this file.

#![expect(
    clippy::unwrap_used,
    reason = "a test that finds a lock poisoned has failed already"
)]

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use tollgate_core::{BackendError, CasBackend, StateStore, Versioned};
use tollgate_testkit::conformance;

/// Bytes under keys, each with the number of the write that made them.
#[derive(Debug, Default)]
struct Mine(Mutex<Map>);

#[derive(Debug, Default)]
struct Map {
    values: HashMap<String, (u64, Vec<u8>)>,
    /// Never starts anew: were writes counted for each key, a key that is deleted and written again
    /// would have an old number, and a caller that read the old value could replace the new one.
    writes: u64,
}

impl fmt::Display for Mine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mine")
    }
}

impl StateStore for Mine {
    type Token = u64;

    async fn load(&self, key: &str) -> Result<Option<Versioned<u64>>, BackendError> {
        let map = self.0.lock().unwrap();
        Ok(map.values.get(key).map(|(number, value)| Versioned {
            value: value.clone(),
            token: *number,
        }))
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        value: Vec<u8>,
        _ttl: Duration,
    ) -> Result<bool, BackendError> {
        let mut map = self.0.lock().unwrap();
        if map.values.get(key).map(|(number, _)| *number) != expected {
            return Ok(false);
        }
        map.writes += 1;
        let number = map.writes;
        map.values.insert(key.into(), (number, value));
        Ok(true)
    }

    async fn delete(&self, key: &str) -> Result<(), BackendError> {
        self.0.lock().unwrap().values.remove(key);
        Ok(())
    }
}

conformance!(mine, CasBackend::new(Mine::default()));
