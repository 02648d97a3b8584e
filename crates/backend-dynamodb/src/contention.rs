//! What a call does against others that always come first.
//!
//! Only exact writes (a log, the last units of a range, leases) can lose that often. Whoever wins knows
//! at once what the next write must be conditioned on, so a process that writes a log without a pause
//! wins again and again, against another that is told of it only when it loses.

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use crate::record::Held;

/// How many writes a call makes before it gives up.
pub(crate) const TRIES: u32 = 64;

/// How often a call is tried again because a transaction or another region had hold of the item.
pub(crate) const CONFLICTS: u32 = 8;

/// After so many losses of a log it is claimed.
const PATIENCE: u32 = 4;

/// The longest that a process makes way for one that claims.
const MAKE_WAY: Duration = Duration::from_millis(50);

/// How long one keeps its turn over others of this process that write the same log.
const LONGEST_TURN: Duration = Duration::from_millis(100);

/// Waits for a request, and gives up the turn if that takes too long: a store that does not answer
/// must not keep a log for itself.
pub(crate) async fn in_turn<T, G: Send>(
    turn: &mut Option<G>,
    request: impl Future<Output = T> + Send,
) -> T {
    if turn.is_none() {
        return request.await;
    }
    let mut request = pin!(request);
    match tokio::time::timeout(LONGEST_TURN, &mut request).await {
        Ok(answer) => answer,
        Err(_) => {
            *turn = None;
            request.await
        }
    }
}

/// Another process that writes the same item.
#[derive(Debug, Default)]
pub(crate) struct Rival {
    losses: u32,
    /// Of the write that is under way.
    began: Option<Instant>,
}

impl Rival {
    pub(crate) fn begins(&mut self) {
        self.began = Some(Instant::now());
    }

    /// Whether it is time to claim the item. It then knows the revision first, and its write gets there
    /// before that of anybody who is told by a loss.
    pub(crate) fn claims(&mut self, held: &Held) -> bool {
        let claims = self.losses >= PATIENCE && held.revision().is_some();
        if claims {
            self.losses = 0;
        }
        claims
    }

    /// It came first. If nothing but the revision is new, it has claimed the item and writes next: one
    /// who is closer to the store would be there before it, and so lets it pass.
    pub(crate) async fn won(&mut self, before: &Held, found: &Held) {
        self.losses += 1;
        let claimed = found.revision().is_some()
            && found.revision() != before.revision()
            && found.record == before.record;
        if claimed && let Some(began) = self.began {
            tokio::time::sleep((2 * began.elapsed()).min(MAKE_WAY)).await;
        }
    }
}

/// After every eighth write that lost: waits a moment, not as long as others do. The others follow at
/// once, for what the failed one brought is what the next one needs, and grows old.
pub(crate) async fn back_off(writes: u32) {
    if writes > 0 && writes.is_multiple_of(8) {
        pause(writes / 8).await;
    }
}

/// A random part of 1 ms, 2 ms, .. 32 ms.
pub(crate) async fn pause(turn: u32) {
    let most = 500_u64 << turn.min(6);
    let micros = RandomState::new().hash_one(turn) % most;
    tokio::time::sleep(Duration::from_micros(micros)).await;
}
