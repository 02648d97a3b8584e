//! What time it is: the backend's own clock, or one that it was given.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Clock, SystemClock, Timestamp};

/// A monotonic clock in microseconds since the Unix epoch.
///
/// It asks the wall clock once, when it is made, and counts on from there by the processor's time
/// stamp counter (where there is none that can be trusted, by the system's monotonic clock). So a
/// step of the wall clock changes no decision. Over days it drifts from a disciplined wall clock
/// by some parts in a million; only the edges of windows, which are aligned to the epoch, feel it.
pub(crate) struct MonotonicClock {
    counter: quanta::Clock,
    started: u64,
    epoch: u64,
    /// Microseconds a count, times 2^64.
    scale: u64,
}

/// Counts to learn the scale from: as many as keep every bit that the counter's own scale has.
const COUNTS: u32 = 40;

impl MonotonicClock {
    pub(crate) fn new() -> Self {
        let counter = quanta::Clock::new();
        let nanos = u128::from(counter.delta_as_nanos(0, 1 << COUNTS));
        let scale = (nanos << (64 - COUNTS)) / 1_000;
        Self {
            scale: u64::try_from(scale).expect("a counter counts faster than a megahertz"),
            started: counter.raw(),
            epoch: SystemClock.now().as_micros(),
            counter,
        }
    }

    #[inline]
    fn micros(&self) -> u64 {
        // On another processor the counter may be behind a little.
        let counts = self.counter.raw().saturating_sub(self.started);
        let micros = (u128::from(counts) * u128::from(self.scale)) >> 64;
        self.epoch + micros as u64
    }
}

/// Who is asked for the time.
pub(crate) enum Time {
    /// Never moves back, so what is idle now stays idle.
    Own(MonotonicClock),
    /// May move back, as a wall clock or a manual one does.
    Given(Arc<dyn Clock>),
}

impl Time {
    /// The moment of a call: `at` if the caller says, else now.
    #[inline]
    pub(crate) fn moment(&self, at: Option<Timestamp>) -> Moment {
        match (at, self) {
            (None, Self::Own(clock)) => Moment {
                now: clock.micros(),
                may_go_back: false,
            },
            (None, Self::Given(clock)) => Moment {
                now: clock.now().as_micros(),
                may_go_back: true,
            },
            (Some(at), _) => Moment {
                now: at.as_micros(),
                may_go_back: true,
            },
        }
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(_) => f.write_str("monotonic"),
            Self::Given(clock) => clock.fmt(f),
        }
    }
}

/// The time of one call, asked for once and passed down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Microseconds since the Unix epoch.
    pub(crate) now: u64,
    /// Whether a later call may be earlier. Idle records then still matter: after a step back they
    /// decide unlike none, so they are only dropped when the bound needs their room.
    pub(crate) may_go_back: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_time_is_wall_time_and_never_moves_back() {
        let clock = MonotonicClock::new();
        let wall = SystemClock.now().as_micros();
        let mut last = clock.micros();
        assert!(last.abs_diff(wall) < 1_000_000, "{last} is not near {wall}");
        let nanos = |counts| clock.counter.delta_as_nanos(0, counts);
        for counts in [1 << 20, 1 << 40, 1 << 60] {
            let micros = (u128::from(counts) * u128::from(clock.scale)) >> 64;
            let exact = u128::from(nanos(counts) / 1_000);
            assert!(
                micros.abs_diff(exact) <= 1 + (exact >> 30),
                "{micros} {exact}"
            );
        }
        for _ in 0..100_000 {
            let now = clock.micros();
            assert!(now >= last);
            last = now;
        }
    }
}
