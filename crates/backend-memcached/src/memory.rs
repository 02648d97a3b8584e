//! What this process wrote last, so that its next write of the same key need not read first.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::RandomState;
use moka::sync::Cache;
use tollgate_core::Versioned;

use crate::pool::Token;

/// What an entry takes besides its value, about.
const OVERHEAD: u32 = 160;

/// Longer values are read again each time. Logs are long, and copying them costs more than it saves.
const LONGEST: usize = 16 << 10;

/// After another process won, so many writes read first.
const SHARED: u8 = 8;

/// Values and tokens by a hash of the key with a random seed: no identity, not even its digest.
pub(crate) struct Memory {
    known: Cache<u128, Known>,
    enabled: bool,
    seeds: [RandomState; 2],
}

#[derive(Clone)]
enum Known {
    /// The value that this process wrote. The number is of the writes until then that had to read.
    Written(Arc<[u8]>, Token, u8),
    /// Somebody else writes it too.
    Shared,
}

impl Memory {
    pub(crate) fn new(bytes: u64) -> Self {
        let weigh = |_: &u128, known: &Known| match known {
            Known::Written(value, ..) => {
                OVERHEAD.saturating_add(u32::try_from(value.len()).unwrap_or(u32::MAX))
            }
            Known::Shared => OVERHEAD,
        };
        Self {
            known: Cache::builder().weigher(weigh).max_capacity(bytes).build(),
            enabled: bytes > 0,
            seeds: [RandomState::default(), RandomState::default()],
        }
    }

    /// Under what number a key is remembered here.
    pub(crate) fn number(&self, key: &str) -> u128 {
        let [high, low] = self
            .seeds
            .each_ref()
            .map(|seed| u128::from(seed.hash_one(key)));
        high << 64 | low
    }

    /// Whether it remembers anything.
    pub(crate) const fn is_on(&self) -> bool {
        self.enabled
    }

    /// What the value is, unless somebody else wrote meanwhile.
    pub(crate) fn recall(&self, number: u128) -> Option<Versioned<Token>> {
        if !self.enabled {
            return None;
        }
        match self.known.get(&number)? {
            Known::Written(value, token, 0) => Some(Versioned {
                value: value.to_vec(),
                token,
            }),
            _ => None,
        }
    }

    /// This process wrote a value and got a token for it.
    pub(crate) fn wrote(&self, number: u128, value: &[u8], token: Token) {
        if !self.enabled {
            return;
        }
        if value.len() > LONGEST {
            return self.forget(number);
        }
        let reads = match self.known.get(&number) {
            Some(Known::Written(_, _, reads)) => reads.saturating_sub(1),
            Some(Known::Shared) => SHARED,
            None => 0,
        };
        self.known
            .insert(number, Known::Written(value.into(), token, reads));
    }

    /// Somebody else wrote it: it is read first for a while, because they may go on.
    pub(crate) fn lost(&self, number: u128) {
        if self.enabled {
            self.known.insert(number, Known::Shared);
        }
    }

    /// Nothing is known of it.
    pub(crate) fn forget(&self, number: u128) {
        if self.enabled {
            self.known.invalidate(&number);
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("keys", &self.known.entry_count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token { cas: 5, asked: 1 };

    #[test]
    fn what_was_written_is_known_until_somebody_else_writes() {
        let memory = Memory::new(1 << 20);
        let number = memory.number("k");
        assert!(memory.recall(number).is_none());
        memory.wrote(number, b"v", TOKEN);
        let known = memory.recall(number).unwrap();
        assert_eq!((&known.value[..], known.token), (&b"v"[..], TOKEN));
        memory.lost(number);
        for _ in 0..=SHARED {
            assert!(memory.recall(number).is_none());
            memory.wrote(number, b"v", TOKEN);
        }
        assert!(memory.recall(number).is_some());
        memory.forget(number);
        assert!(memory.recall(number).is_none());
        memory.wrote(number, &[b'v'; LONGEST + 1], TOKEN);
        assert!(memory.recall(number).is_none());
    }

    #[test]
    fn it_is_bounded_and_holds_no_key() {
        let memory = Memory::new(100_000);
        for n in 0..20_000 {
            memory.wrote(memory.number(&format!("key{n}")), &[b'v'; 40], TOKEN);
        }
        memory.known.run_pending_tasks();
        let kept = memory.known.entry_count();
        assert!((1..=500).contains(&kept), "{kept}");
        assert!(memory.known.weighted_size() <= 100_000);
        let off = Memory::new(0);
        off.wrote(1, b"v", TOKEN);
        off.lost(1);
        assert!(off.recall(1).is_none());
        // Each process, and each memory, has seeds of its own.
        assert_ne!(memory.number("k"), off.number("k"));
    }
}
