//! What every backend must answer, on this one: with its own clock and with a given one, and while
//! its bound is reached.

use tollgate_core::{ManualClock, SharedBackend};
use tollgate_memory::MemoryBackend;
use tollgate_testkit::{conformance, lease_conformance};

conformance!(own_clock, MemoryBackend::new());
conformance!(
    manual_clock,
    MemoryBackend::builder()
        .clock(ManualClock::default())
        .build()
);
conformance!(erased, SharedBackend::new(MemoryBackend::new()));

lease_conformance!(leases, MemoryBackend::new());
lease_conformance!(
    leases_by_a_manual_clock,
    MemoryBackend::builder()
        .clock(ManualClock::default())
        .build()
);
