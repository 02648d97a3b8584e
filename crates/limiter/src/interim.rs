//! Until tollgate-memory is there.
#![allow(missing_docs, clippy::unwrap_used)]
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_core::{
    BackendError, CasBackend, Cost, CounterBackend, Decision, Refund, StateStore, Subject,
    Versioned,
};

#[derive(Debug, Default)]
pub struct Map(Mutex<HashMap<String, (u64, Vec<u8>)>>);
impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory://")
    }
}
impl StateStore for Map {
    type Token = u64;
    async fn load(&self, key: &str) -> Result<Option<Versioned<u64>>, BackendError> {
        let map = self.0.lock();
        Ok(map.get(key).map(|(token, value)| Versioned {
            value: value.clone(),
            token: *token,
        }))
    }
    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        value: Vec<u8>,
        _: Duration,
    ) -> Result<bool, BackendError> {
        let mut map = self.0.lock();
        if map.get(key).map(|(token, _)| *token) != expected {
            return Ok(false);
        }
        map.insert(key.into(), (expected.unwrap_or(0) + 1, value));
        Ok(true)
    }
    async fn delete(&self, key: &str) -> Result<(), BackendError> {
        self.0.lock().remove(key);
        Ok(())
    }
}

#[derive(Debug)]
pub struct MemoryBackend(CasBackend<Map>);
impl Default for MemoryBackend {
    fn default() -> Self {
        Self(CasBackend::new(Map::default()))
    }
}
impl MemoryBackend {
    pub fn builder() -> Self {
        Self::default()
    }
    pub fn max_keys(self, _: usize) -> Self {
        self
    }
    pub fn build(self) -> Self {
        self
    }
}
impl fmt::Display for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl CounterBackend for MemoryBackend {
    async fn acquire(&self, s: Subject<'_>, c: Cost) -> Result<Decision, BackendError> {
        self.0.acquire(s, c).await
    }
    async fn acquire_batch(
        &self,
        s: Subject<'_>,
        c: &[Cost],
    ) -> Result<Vec<Decision>, BackendError> {
        self.0.acquire_batch(s, c).await
    }
    async fn peek(&self, s: Subject<'_>, c: Cost) -> Result<Decision, BackendError> {
        self.0.peek(s, c).await
    }
    async fn refund(&self, s: Subject<'_>, r: Refund) -> Result<Decision, BackendError> {
        self.0.refund(s, r).await
    }
    async fn reset(&self, s: Subject<'_>) -> Result<(), BackendError> {
        self.0.reset(s).await
    }
    async fn ping(&self) -> Result<(), BackendError> {
        self.0.ping().await
    }
}
