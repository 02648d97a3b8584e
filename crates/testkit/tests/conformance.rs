//! The suite passes on a right backend, and fails on each of a row of wrong ones.

use tollgate_core::{CasBackend, SharedBackend};
use tollgate_testkit::{MapStore, conformance};

conformance!(cas_over_a_map, CasBackend::new(MapStore::default()));
conformance!(
    erased,
    SharedBackend::new(CasBackend::new(MapStore::default()))
);
