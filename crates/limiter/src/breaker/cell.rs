//! The state of a breaker: an atomic word that a healthy call only reads, and what is behind it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_core::{BackendError, ErrorKind};

use super::{Breaker, BreakerState};
use crate::time::{FOREVER, Instant};

/// A probe that is neither answered nor dropped for so long is given up, or, where the cooldown is
/// longer, after that. Only a breaker without a timeout inside ever needs it.
const PROBE_PATIENCE: Duration = Duration::from_secs(30);
/// Every so many successes in a window it is looked at whether the window is over.
const LOOK_EVERY: u32 = 64;

/// What the lowest two bits of the word say. Above them are the losses of the era, and the era, which
/// ends with every change of state, so that a result can tell whether it comes too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Closed, and nothing has failed lately.
    Quiet = 0,
    /// Closed, and failures are being counted.
    Watching = 1,
    HalfOpen = 2,
    Open = 3,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

const LOSS: u64 = 1 << 2;
const ERA: u64 = 1 << 18;

impl Word {
    const fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Quiet,
            1 => Phase::Watching,
            2 => Phase::HalfOpen,
            _ => Phase::Open,
        }
    }

    const fn era(self) -> u64 {
        self.0 / ERA
    }

    /// How many broken connections were counted in the era, in 16 bits.
    const fn losses(self) -> u64 {
        self.0 % ERA / LOSS
    }

    const fn with(self, phase: Phase) -> Self {
        Self(self.0 / LOSS * LOSS + phase as u64)
    }

    const fn with_another_loss(self) -> Self {
        Self(self.0 / ERA * ERA + (self.0 + LOSS) % ERA)
    }

    const fn next(self, phase: Phase) -> Self {
        Self((self.era() + 1) * ERA + phase as u64)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    Failure,
    /// The connection broke, or could not be made, and took along whatever else was on it.
    Loss,
}

impl Outcome {
    /// A failure is an error that says that the store is not well, rather than this one request.
    pub(super) fn of<T>(answer: &Result<T, BackendError>) -> Self {
        match answer.as_ref().map_err(BackendError::kind) {
            Ok(_) | Err(ErrorKind::Contended | ErrorKind::Config) => Self::Success,
            Err(ErrorKind::Unavailable) => Self::Loss,
            Err(_) => Self::Failure,
        }
    }
}

pub(super) struct Cell {
    settings: Breaker,
    /// Written only under the lock.
    word: AtomicU64,
    counts: Mutex<Counts>,
    hook: Option<Arc<dyn Fn(BreakerState) + Send + Sync>>,
}

struct Counts {
    in_a_row: u32,
    /// Of the window.
    calls: u32,
    failures: u32,
    began: Instant,
    /// Open: until then. Half-open: the probe is given up then.
    until: Instant,
}

impl Cell {
    pub(super) fn new(mut settings: Breaker) -> Self {
        settings.cooldown = settings.cooldown.min(FOREVER);
        let now = Instant::now();
        Self {
            settings,
            word: AtomicU64::new(0),
            counts: Mutex::new(Counts {
                in_a_row: 0,
                calls: 0,
                failures: 0,
                began: now,
                until: now,
            }),
            hook: None,
        }
    }

    pub(super) fn on_change(&mut self, hook: Arc<dyn Fn(BreakerState) + Send + Sync>) {
        self.hook = Some(hook);
    }

    pub(super) const fn settings(&self) -> &Breaker {
        &self.settings
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.word().phase() {
            Phase::Quiet | Phase::Watching => BreakerState::Closed,
            Phase::HalfOpen => BreakerState::HalfOpen,
            Phase::Open => BreakerState::Open,
        }
    }

    /// Leave to call the store, unless it must be spared.
    pub(super) fn admit(&self) -> Option<Ticket<'_>> {
        let word = self.word();
        match word.phase() {
            Phase::Quiet | Phase::Watching => Some(Ticket {
                cell: self,
                word,
                probe: false,
            }),
            Phase::HalfOpen | Phase::Open => self.admit_probe(),
        }
    }

    #[cold]
    fn admit_probe(&self) -> Option<Ticket<'_>> {
        let mut counts = self.counts.lock();
        let word = self.word();
        let probe = match word.phase() {
            Phase::Quiet | Phase::Watching => false,
            Phase::HalfOpen | Phase::Open => {
                let now = Instant::now();
                if now < counts.until {
                    return None;
                }
                counts.until = now + PROBE_PATIENCE.max(self.settings.cooldown);
                self.enter(word.next(Phase::HalfOpen));
                true
            }
        };
        Some(Ticket {
            cell: self,
            word: self.word(),
            probe,
        })
    }

    /// What became of a call that began when the word was `began`.
    fn record(&self, began: Word, outcome: Outcome) {
        let word = self.word();
        // The healthy way: nothing to count, nothing to write.
        if word.era() != began.era()
            || (outcome == Outcome::Success && word.phase() == Phase::Quiet)
        {
            return;
        }
        self.count(began, outcome);
    }

    #[cold]
    fn count(&self, began: Word, outcome: Outcome) {
        let mut counts = self.counts.lock();
        let mut word = self.word();
        if word.era() != began.era() {
            return;
        }
        if outcome == Outcome::Loss {
            // One connection that breaks under many calls is one failure, or a single break would
            // open the breaker of a store that is well.
            if word.losses() != began.losses() {
                return;
            }
            word = word.with_another_loss();
        }
        match (word.phase(), outcome) {
            (Phase::Quiet, Outcome::Success) | (Phase::Open, _) => {}
            (Phase::Watching, Outcome::Success) => {
                counts.in_a_row = 0;
                counts.calls = counts.calls.saturating_add(1);
                if counts.calls.is_multiple_of(LOOK_EVERY)
                    && counts.began.elapsed() > self.settings.window
                {
                    self.enter(word.with(Phase::Quiet));
                }
            }
            (Phase::HalfOpen, Outcome::Success) => self.enter(word.next(Phase::Quiet)),
            (Phase::Quiet | Phase::Watching, Outcome::Failure | Outcome::Loss) => {
                let now = Instant::now();
                if word.phase() == Phase::Quiet {
                    counts.in_a_row = 0;
                }
                if word.phase() == Phase::Quiet || now - counts.began > self.settings.window {
                    (counts.calls, counts.failures, counts.began) = (0, 0, now);
                }
                counts.in_a_row = counts.in_a_row.saturating_add(1);
                counts.calls = counts.calls.saturating_add(1);
                counts.failures = counts.failures.saturating_add(1);
                if counts.is_too_much(&self.settings) {
                    self.open(&mut counts, now + self.settings.cooldown);
                } else {
                    self.enter(word.with(Phase::Watching));
                }
            }
            (Phase::HalfOpen, Outcome::Failure | Outcome::Loss) => {
                let until = Instant::now() + self.settings.cooldown;
                self.open(&mut counts, until);
            }
        }
    }

    /// A probe that was dropped says nothing; the next call may probe at once.
    fn lost(&self, began: Word) {
        let mut counts = self.counts.lock();
        if self.word().era() == began.era() {
            self.open(&mut counts, Instant::now());
        }
    }

    fn open(&self, counts: &mut Counts, until: Instant) {
        counts.until = until;
        self.enter(self.word().next(Phase::Open));
    }

    fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// Only under the lock.
    fn enter(&self, word: Word) {
        let before = self.state();
        self.word.store(word.0, Ordering::Release);
        let after = self.state();
        if before != after
            && let Some(hook) = &self.hook
        {
            hook(after);
        }
    }
}

impl Counts {
    fn is_too_much(&self, settings: &Breaker) -> bool {
        self.in_a_row >= settings.failures.max(1)
            || settings.ratio.is_some_and(|ratio| {
                self.calls >= settings.min_calls.max(1)
                    && f64::from(self.failures) >= ratio * f64::from(self.calls)
            })
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell")
            .field("state", &self.state())
            .finish()
    }
}

/// Leave for one call.
pub(super) struct Ticket<'a> {
    cell: &'a Cell,
    /// When it began.
    word: Word,
    probe: bool,
}

impl Ticket<'_> {
    pub(super) fn done(mut self, outcome: Outcome) {
        self.probe = false;
        self.cell.record(self.word, outcome);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.probe {
            self.cell.lost(self.word);
        }
    }
}
