//! What every backend must answer, on this one: with its own clock and with a given one, and while
//! its bound is reached.

use tollgate_core::{ManualClock, SharedBackend};
use tollgate_memory::MemoryBackend;
use tollgate_testkit::conformance;

conformance!(own_clock, MemoryBackend::new());
conformance!(
    manual_clock,
    MemoryBackend::builder()
        .clock(ManualClock::default())
        .build()
);
conformance!(erased, SharedBackend::new(MemoryBackend::new()));
