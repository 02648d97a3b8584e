//! What a memory backend holds, for operators.

/// How much a [`MemoryBackend`](crate::MemoryBackend) holds.
///
/// ```
/// use tollgate_core::{Cost, Policy};
/// use tollgate_memory::MemoryBackend;
///
/// let backend = MemoryBackend::new();
/// let policy = Policy::new("search", ["1/h".parse()?])?;
/// backend.try_acquire(&policy, "alice", Cost::ONE);
/// assert_eq!(backend.stats().live, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Records in use: those that do not decide like none.
    pub live: u64,
    /// Records in memory, with those that are idle and whose place is free for others; a record of
    /// a sliding log counts as many as it has admissions. Never above `max_keys`.
    pub held: u64,
    /// The bound.
    pub max_keys: u64,
    /// Decisions made on an overflow record since the start, because the bound was reached.
    pub overflow_decisions: u64,
}
